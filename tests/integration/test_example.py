"""The C examples, as a user would build them: installed header and library, pkg-config, nothing else."""

import os
import shutil
import subprocess
import sys

import pytest

from conftest import BUILD, PATIENCE_S, ROOT, SANITIZED

PYTHON_PACKAGE = "lib/python3/dist-packages/draft"
EXAMPLES = sorted((ROOT / "client/examples").glob("*.c"))


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_is_an_example():
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_built_example_runs(daemon, path):
    assert run(BUILD / "examples" / path.stem, daemon.socket).strip()


def test_examples_are_short():
    assert min(len(path.read_text().splitlines()) for path in EXAMPLES) <= 70


@pytest.mark.skipif(SANITIZED, reason="an instrumented library can't be linked plainly")
def test_install_compile_and_run(daemon, folder):
    """make install DESTDIR=…; compile against it by pkg-config; run; make uninstall leaves nothing."""
    make = ["make", "--no-print-directory", "-C", str(ROOT), f"BUILD={BUILD}", f"DESTDIR={folder}/root", "PREFIX=/usr"]
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "LIBDRAFT")}
    run(*make, "install", env=environment)
    root = folder / "root"
    for name in "bin/draftd", "bin/draftctl", "include/draft.h", "lib/libdraft.so.0", "lib/pkgconfig/libdraft.pc", PYTHON_PACKAGE:
        assert (root / "usr" / name).exists(), name
    assert (root / "usr/share/doc/draftd/LICENSE").exists()
    assert os.readlink(root / "usr/lib/libdraft.so") == "libdraft.so.0"

    pkg = environment | {"PKG_CONFIG_PATH": str(root / "usr/lib/pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": str(root)}
    flags = run("pkg-config", "--cflags", "--libs", "libdraft", env=pkg).split()
    for path in EXAMPLES:
        program = folder / path.stem
        run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", path, "-o", program, *flags)
        library = {"LD_LIBRARY_PATH": str(root / "usr/lib")}
        assert run(program, daemon.socket, env=os.environ | library).strip()
    # and as C++ sees the header
    if shutil.which("c++"):
        source = folder / "x.cc"
        source.write_text("#include <draft.h>\nint main() { return draft_version() == nullptr; }\n")
        run("c++", "-Wall", "-Werror", source, "-o", folder / "x", *flags)
    # the Python package finds the library beside which it was installed
    python = environment | {"PYTHONPATH": str((root / "usr" / PYTHON_PACKAGE).parent)}
    found = run(sys.executable, "-B", "-c", "import draft; print(draft._library.library._name)", env=python)
    assert found.strip() == str(root / "usr/lib/libdraft.so.0")
    # draftctl finds its library beside it
    assert run(root / "usr/bin/draftctl", "--socket", daemon.socket, "ping")
    assert run(root / "usr/bin/draftd", "--version").startswith("draftd ")

    # settings are the operator's once they were edited
    settings = root / "etc/draftd/draftd.conf"
    installed = settings.read_text()
    settings.write_text("edited")
    run(*make, "install", env=environment)
    run(*make, "uninstall", env=environment)
    assert [path for path in root.rglob("*") if not path.is_dir()] == [settings] and settings.read_text() == "edited"
    settings.write_text(installed)
    run(*make, "uninstall", env=environment)
    assert [path for path in root.rglob("*") if not path.is_dir()] == []
