"""What operators read and type says what the programs do: manual pages, draftd.conf, completions, the Kubernetes example.

The option tables are read here from --help by other means than packaging/generate does it."""

import os
import re
import subprocess

import pytest
import yaml

from conftest import BUILD, MODEL, ROOT, SANITIZED, WRAPPER, draftctl

FILES = BUILD / "files"
OPTION = re.compile(r"^ {2,6}(?:(-\w), )?(--[a-z0-9-]+)(?: ([A-Z]+))?(?= |$)", re.M)


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def help_of(program, *command):
    environment = {k: v for k, v in os.environ.items() if k != "DRAFTD_SOCKET"}
    return run(BUILD / program, *command, "--help", env=environment)


def page(name):
    """The page as a person sees it, in one line."""
    text = run("mandoc", "-Tutf8", "-Owidth=200", FILES / name)
    return " ".join(re.sub(".\b", "", text).split())


def commands():
    listed = help_of("draftctl").split("Commands:\n")[1].split("\n\n")[0].splitlines()
    return [re.match(r"  (\w+( \w+)?)(  |$)", line)[1].strip() for line in listed]


def keys():
    """(section, key, range, default, option) of every key."""
    text = help_of("draftd")
    found = re.findall(r"(--[a-z0-9-]+)[^\n]*\n +\[(\w+)\] (\w+)(?:: ([^\n]*))?\n", text)
    assert len(found) == len(re.findall(r"\n {20,}\[\w+\] ", text))
    for option, section, key, facts in found:
        *limits, default = re.split(r"(?:; |^)default ", facts) if "default " in facts else (facts, "")
        yield section, key, "".join(limits), default, option


def sections(text):
    """{section: [line]} of a configuration file."""
    parts = re.split(r"^\[(\w+)\]$", text, flags=re.M)
    return {name: body.splitlines() for name, body in zip(parts[1::2], parts[2::2])}


def test_configuration_names_every_key_with_its_default():
    file = sections((FILES / "draftd.conf").read_text())
    shown = {(section, line[1:].split(" = ")[0]): line.split(" = ")[1]
             for section, lines in file.items() for line in lines if re.match(r"#\w+ = ", line)}
    wanted = {(section, key): default for section, key, _, default, _ in keys()}
    assert len(wanted) > 20 and shown.keys() == wanted.keys()
    assert {name: value for name, value in shown.items() if wanted[name]} == {n: d for n, d in wanted.items() if d}


def test_configuration_is_valid(folder):
    """As it is, with a model; and with every default written out."""
    text = (FILES / "draftd.conf").read_text()
    assert not [line for line in text.splitlines() if line and line[0] not in "#["]
    without_defaults = {key for _, key, _, default, _ in keys() if not default}
    written = re.sub(r"^#(\w+)( = .*)$", lambda m: m[0] if m[1] in without_defaults else m[1] + m[2], text, flags=re.M)
    for body in text, written.replace("#path = /srv", f"path = {MODEL}\n#path = /srv"):
        (folder / "draftd.conf").write_text(body)
        run(BUILD / "draftd", "--config", folder / "draftd.conf", "--model", MODEL, "--check-config")
    assert written.count("\n#") < text.count("\n#") - 20


def test_manual_of_draftd():
    text = page("draftd.8")
    options = OPTION.findall(help_of("draftd"))
    assert len(options) > 25
    for letter, name, value in options:
        assert f"{letter}{' ' + value if value else ''}, {name}" in text if letter else f"{name} {value}".strip() in text
    for section, key, *_ in keys():
        assert f"([{section}] {key})" in text
    for word in "SIGTERM", "SIGHUP", "SIGINT", "NOTIFY_SOCKET", "LISTEN_FDS", "WATCHDOG_USEC", "JOURNAL_STREAM", "draftd.sock.lock":
        assert word in text
    for unit in (ROOT / "packaging/systemd").glob("draftd*"):
        assert unit.name.removesuffix(".in").replace("metrics.service", "metrics.timer") in text


def test_manual_of_the_configuration():
    text = page("draftd.conf.5")
    for section, key, limits, default, option in keys():
        shown = re.search(rf"(?<![\w]){key} = [A-Z]+ ((?!\) ).)*?{option}\)", text)
        assert shown, key
        assert limits in shown[0] and (not default or f"default {default};" in shown[0])
        assert f" [{section}] " in text
    # what --help says of a reload
    for key in re.search(r"the socket, (.*?)\s+need", help_of("draftd"), re.S)[1].replace(" and", ",").split(","):
        assert re.search(rf"a reload that.*{key.strip()}|{key.strip()}.*so a reload that", text), key


def test_manual_of_draftctl():
    text = page("draftctl.1")
    for command in [[], *map(str.split, commands())]:
        shown = help_of("draftctl", *command)
        options = OPTION.findall(shown)
        assert len(options) >= 4
        for letter, name, value in options:
            assert f"{letter}{' ' + value if value else ''}, {name}" in text if letter else f"{name} {value}".strip() in text
        for limits in re.findall(r"\([^()]*default[^()]*\)", shown):
            assert " ".join(limits.split()) in text
        if command:
            first = shown.split("\n\n")[1].splitlines()[0]
            assert " ".join(command) in text and first in text
    assert "DRAFTD_SOCKET" in text


@pytest.mark.parametrize("name", sorted(page.name.removesuffix(".in") for page in (ROOT / "packaging/man").iterdir()))
def test_quotes_and_brackets_close(name):
    """mdoc closes what its macros open at the end of the line, wherever it was meant to."""
    text = page(name)
    assert not re.search("“[^”]*“|””", text)
    assert not re.search(r"\[E[A-Z]+,", text)


def test_manual_of_libdraft():
    text = page("libdraft.3")
    header = (ROOT / "client/draft.h").read_text()
    exported = run("nm", "-D", "--defined-only", BUILD / "libdraft.so.0")
    functions = set(re.findall(r" T (draft_\w+)", exported))
    assert len(functions) > 25
    for function in functions:
        # the same prototype, and a word about it
        prototype = re.search(rf"^[a-z][^;/*]*\W{function}\([^;]*\);", header, re.M)[0]
        prototype = re.sub(r"\( ", "(", " ".join(prototype.split())).replace(" *draft_", " * draft_")
        assert prototype in text, prototype
        assert text.count(function + "(") >= 2, function
    for code in set(re.findall(r"DRAFT_E_\w+(?= =)", header)):
        assert code in text
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    for struct in re.findall(r"^struct draft_(?:options|request|place|result) \{(.*?)^\};", code, re.M | re.S):
        for field in re.findall(r"(\w+);", struct):
            assert field in text, field


def test_symbols_of_the_package():
    exported = run("nm", "-D", "--defined-only", BUILD / "libdraft.so.0")
    listed = re.findall(r"^ (draft_\w+)@DRAFT_0 ", (ROOT / "packaging/debian/libdraft0.symbols").read_text(), re.M)
    assert sorted(listed) == sorted(set(re.findall(r" T (draft_\w+)", exported)))


@pytest.mark.skipif(SANITIZED, reason="an instrumented library can't be linked plainly")
def test_example_of_libdraft(daemon, folder):
    source = re.search(r"^\.Sh EXAMPLES\n\.Bd -literal\n(.*?)^\.Ed", (FILES / "libdraft.3").read_text(), re.M | re.S)[1]
    source = source.replace("draft_connect(NULL,", f'draft_connect(&(struct draft_options){{.size = sizeof(struct draft_options), '
                            f'.socket_path = "{daemon.socket}"}},').replace("\\e", "\\")
    (folder / "x.c").write_text(source)
    run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/client", folder / "x.c", "-o", folder / "x",
        f"-L{BUILD}", "-ldraft", f"-Wl,-rpath,{BUILD}")
    assert len(run(folder / "x").split()) == 4


def test_manual_of_the_protocol():
    text = page("draft-protocol.7")
    protocol = (ROOT / "proto/PROTOCOL.md").read_text()
    for code, name in re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", protocol, re.M):
        assert re.search(rf"\b{code} {name}\b", text), name
    methods = re.split(r"^### ", protocol.split("\n## Methods\n")[1].split("\n## What")[0], flags=re.M)[1:]
    assert len(methods) == 14
    for method in methods:
        name = method.split()[0]
        assert re.search(rf"\b{name}\b", text), name
        for row in re.findall(r"^\| ((?:`[\w.]+`(?:, )?)+)", method, re.M) if name != "stats" else []:
            for key in re.findall(r"`([\w.]+)`", row):
                assert re.search(rf"\b{key.split('.')[-1]}\b", text), key
    dumps = [(ROOT / f"tests/wire/good-ping-{kind}.bin").read_bytes().hex(" ") for kind in ("request", "reply")]
    assert all(dump in text for dump in dumps)


COMPLETE = r"""
source "$1"
program=$2
shift 2
COMP_WORDS=("$program" "$@")
COMP_CWORD=$#
COMPREPLY=()
"_$program" "$program" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"""


def complete(program, *words, cwd=None):
    shown = run("bash", "-c", COMPLETE, "bash", FILES / f"{program}.bash", program, *words, cwd=cwd)
    return set(shown.split())


def test_completion_of_draftd(folder):
    options = OPTION.findall(help_of("draftd"))
    assert complete("draftd", "--") == {name for _, name, _ in options}
    assert complete("draftd", "--cuda-l") == {"--cuda-l2"}
    for _, key, limits, _, option in keys():
        if key in ("name", "form", "wait", "l2", "level"):
            assert complete("draftd", option, "") == set(limits.split(", "))
            assert complete("draftd", option, "=", "") == set(limits.split(", "))
            assert complete("draftd", option, "=") == set(limits.split(", "))
    assert complete("draftd", "--max-rows", "") == set()
    (folder / "m.safetensors").touch()
    assert complete("draftd", "--model", "m", cwd=folder) == complete("draftd", "-m", "m", cwd=folder) == {"m.safetensors"}


def test_completion_of_draftctl(folder):
    names = commands()
    assert complete("draftctl", "") == {name.split()[0] for name in names}
    assert complete("draftctl", "--socket", "/tmp/s", "re") == {"replay", "reload"}
    assert complete("draftctl", "--socket", "=", "/tmp/s", "-t", "1", "re") == {"replay", "reload"}
    assert complete("draftctl", "model", "") == {"make", "show"}
    for name in names:
        wanted = {option for _, option, _ in OPTION.findall(help_of("draftctl", *name.split()))}
        assert complete("draftctl", "--timeout", "3", *name.split(), "--") == wanted
    # "(inline or host, default inline)"
    bases = re.search(r"--base WHERE[^(]*\(([^)]*), default", help_of("draftctl", "replay"))[1]
    assert complete("draftctl", "replay", "--base", "") == set(re.findall(r"\w+", bases)) - {"or"}
    assert complete("draftctl", "bench", "--base", "=", "h") == {"host"}
    (folder / "a.safetensors").touch()
    for words in (["replay"], ["draft", "--base"], ["model", "show"], ["metrics", "--textfile"], ["bench", "--model"], ["-s"]):
        assert complete("draftctl", *words, "a", cwd=folder) == {"a.safetensors"}
    assert complete("draftctl", "ping", "") == complete("draftctl", "ping", "-c", "") == set()


def test_kubernetes_example(daemon, folder):
    """It can be read; what it has draftd and draftctl do, they do."""
    config, daemons = yaml.safe_load_all((ROOT / "packaging/kubernetes/draftd.yaml").read_text())
    assert (config["kind"], config["apiVersion"]) == ("ConfigMap", "v1")
    assert (daemons["kind"], daemons["apiVersion"]) == ("DaemonSet", "apps/v1")
    (folder / "draftd.conf").write_text(config["data"]["draftd.conf"])
    instead = ["--backend", "auto"] if os.environ.get("CUDA") == "0" else []  # its backend was not built
    run(BUILD / "draftd", "--config", folder / "draftd.conf", "--model", MODEL, *instead, "--check-config")

    pod = daemons["spec"]["template"]["spec"]
    assert daemons["spec"]["selector"]["matchLabels"].items() <= daemons["spec"]["template"]["metadata"]["labels"].items()
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in container["volumeMounts"] + pod["initContainers"][0]["volumeMounts"]:
        assert mount["name"] in volumes
    assert volumes["socket"]["hostPath"]["path"] == "/run/draftd"
    for probe in "startupProbe", "readinessProbe", "livenessProbe":
        program, *arguments = container[probe]["exec"]["command"]
        assert program == "draftctl" and draftctl(*arguments, socket=daemon.socket).returncode == 0
        assert draftctl(*arguments, socket=folder / "none").returncode == 1


@pytest.mark.skipif(SANITIZED or bool(WRAPPER), reason="these programs need more of the system")
def test_sandbox_of_the_service():
    """What the unit allows is enough; on a GPU machine the same is tried with the CUDA backend."""
    done = run(ROOT / "tests/gpu/sandbox.py", "--backend", "cpu", env=os.environ | {"BUILD": str(BUILD)})
    assert re.fullmatch(r"21 passed, 0 failed, \d waived", done.splitlines()[-1]), done


def test_version_of_the_packages():
    version = run(BUILD / "draftd", "--version").split()[1]
    assert (ROOT / "packaging/debian/changelog").read_text().startswith(f"draftd ({version})")
    assert f"libdraft (-ldraft), version {version.rpartition('.')[0]};" in page("libdraft.3")
    assert f"image: draftd:{version}" in (ROOT / "packaging/kubernetes/draftd.yaml").read_text()


def test_the_operators_walk_is_tried():
    walk = (ROOT / "README.md").read_text().split("## An operator's walk\n")[1].split("\n## ")[0]
    typed = [line.strip() for line in walk.splitlines() if re.match(r"    [a-z]", line)]
    assert len(typed) > 12
    tried = (ROOT / "tests/deb/booted.sh").read_text().replace(" -y -q", "")
    assert [line for line in typed if line not in tried] == ["editor /etc/draftd/draftd.conf"]
