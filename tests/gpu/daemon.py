"""draftd, for the scripts beside this file: where it and its parts lie, in the unpacked archive or in the sources (built, in build/ or
in the folder that $BUILD names), and one that runs."""

import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import tally

HERE = pathlib.Path(__file__).resolve().parent
if (HERE.parents[2] / "bin/draftd").exists():
    TOP = HERE.parents[2]
    PROGRAMS, PRELOADED, GOLDEN = TOP / "bin", HERE, TOP / "share/draftd/golden"
    PACKAGES, EXAMPLES = TOP / "lib/python3/dist-packages", TOP / "share/doc/draftd/client/examples"
else:
    TOP = HERE.parents[1]
    PROGRAMS = pathlib.Path(os.environ.get("BUILD", TOP / "build")).resolve()
    PRELOADED, GOLDEN = PROGRAMS / "tests", TOP / "tests/golden"
    PACKAGES, EXAMPLES = TOP / "client/python", TOP / "client/examples"
sys.path.insert(0, str(PACKAGES))

START_S = 120  # a first start may load for long
STOP_S = 30
PAIR = "--devices", "0,1"  # which share the vocabulary
REPLICAS = *PAIR, "--tensor-parallel", "1"
SHAPES = {"muse": (202048, 512), "qwen3": (151936, 256), "dsv4": (129280, 256)}


def gpus():
    """The UUIDs of this machine's GPUs, by their numbers."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    except OSError:
        return []
    return [line.rpartition("UUID: ")[2].rstrip(")") for line in listed.splitlines() if line.startswith("GPU ")]


def need_gpus(count):
    """Ends the script where there are fewer."""
    found = len(gpus())
    if found < count:
        tally.waive(f"{found} GPUs here, this needs {count}")
        tally.end()


def has_nccl():
    try:
        return bool(ctypes.CDLL("libnccl.so.2"))
    except OSError:
        tally.waive("libnccl.so.2 is not found; put its folder on LD_LIBRARY_PATH")
        return False


def make_model(path, vocab, rank):
    subprocess.run(
        [PROGRAMS / "draftctl", "model", "make", "--vocab", str(vocab), "--rank", str(rank), "--seed", "1", path], check=True,
        stdout=subprocess.DEVNULL,
    )
    return path


class Daemon:
    """A draftd that starts, in a folder of its own. A `with` block begins when it is ready and ends when it has stopped, which is
    checked. `before`: what runs it, the words before its own; `how`: more for Popen."""

    def __init__(self, model, *options, backend="cuda", socket=None, before=(), **how):
        self.folder = tempfile.TemporaryDirectory(prefix="draftd-", dir="/tmp")
        self.socket = str(socket or f"{self.folder.name}/draftd.sock")
        words = [*before, PROGRAMS / "draftd", "--backend", backend, "--model", model, "--socket", self.socket, *options]
        self.process = subprocess.Popen([str(word) for word in words], stderr=subprocess.PIPE, text=True, cwd=self.folder.name, **how)
        self.lines, self.gone_at = [], None
        self._said = threading.Event()
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._follower.start()

    def _follow(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if "ready on" in line:
                self._said.set()
        self.process.wait()
        self.gone_at = time.monotonic()
        self._said.set()

    def log(self):
        return "".join(self.lines)

    def is_ready(self, seconds=START_S):
        """Waits until it serves; False if it ended instead, or took too long."""
        return self._said.wait(seconds) and self.process.poll() is None

    def wait(self, seconds=STOP_S):
        """Its exit code when it has gone by itself; None if it had to be killed. Then log() and gone_at are whole."""
        self._follower.join(seconds)
        ended = not self._follower.is_alive()
        if not ended:
            self.process.kill()
            self._follower.join()
        return self.process.returncode if ended else None

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def __enter__(self):
        if not self.is_ready():
            self.stop()
            raise RuntimeError(f"draftd did not start: {self.log()}")
        return self

    def __exit__(self, kind, *_):
        code = self.stop()
        if kind is None:
            tally.check(f"{' '.join(self.process.args)}: stops", code == 0, f"{code}\n{self.log()}")
        self.folder.cleanup()

    def connect(self, **options):
        import draft

        return draft.connect(self.socket, client_name="tests/gpu", **options)

    def ctl(self, *words, **how):
        return subprocess.run(self._ctl(words), **{"capture_output": True, "text": True, "timeout": 120} | how)

    def start_bench(self, *words):
        """A process; report_of() is what comes of it."""
        return subprocess.Popen(self._ctl(["bench", "--json", "-", *words]), stdout=subprocess.PIPE, text=True)

    def _ctl(self, words):
        return [PROGRAMS / "draftctl", str(words[0]), "--socket", self.socket, *map(str, words[1:])]


def report_of(bench):
    """Of a start_bench(), when it has ended; without errors and differences, or it raises."""
    out, _ = bench.communicate()
    if bench.returncode:
        raise RuntimeError(f"{' '.join(map(str, bench.args))}: exit code {bench.returncode}: {out}")
    return json.loads(out)
