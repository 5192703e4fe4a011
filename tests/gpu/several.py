#!/usr/bin/env python3
"""draftd on several GPUs of this machine. Golden cases on two that share the vocabulary (in the block form, and by step through NCCL)
and on two replicas, with the rows inline, in host memory and in memory of either GPU; two daemons on the same GPUs at once; what two
replicas draft a second under load, beside one.

Usage: several.py [--all] [BIN], BIN the folder of draftd and draftctl, from an unpacked archive or the sources (built). Through NCCL only where
libnccl.so.2 is found. Ends with "N passed, N failed, N waived"; exit code 1 if anything failed.
"""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
PACKED = (HERE.parents[3] / "bin/draftd").exists()
OPERANDS = [word for word in sys.argv[1:] if word != "--all"]
BIN = pathlib.Path(OPERANDS[0]).resolve() if OPERANDS else HERE.parents[3] / "bin" if PACKED else HERE.parents[2] / "build"
GOLDEN = HERE.parents[1] / "golden"
START_S = 120
ALL, SOME = sorted(GOLDEN.glob("*.safetensors")), ("greedy_small", "sampled_odd_vocab", "nan_logits", "many_rows")
GAIN = 1.9  # of two replicas over one

count = {"passed": 0, "failed": 0, "waived": 0}


def check(name, right, why=""):
    count["passed" if right else "failed"] += 1
    if not right:
        print(f"FAILED: {name}: {why}", flush=True)


class Daemon:
    def __init__(self, folder, name, model, *options):
        self.socket = folder / f"{name}.sock"
        command = [BIN / "draftd", "--backend", "cuda", "--model", model, "--socket", self.socket, "--log-level", "error", *options]
        self.process = subprocess.Popen(command)

    def __enter__(self):
        end = time.monotonic() + START_S
        while self.ctl("ping", "--count", "1", "--quiet").returncode:
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"draftd did not start: {self.process.args}")
            time.sleep(0.05)
        return self

    def ctl(self, *words):
        return subprocess.run([BIN / "draftctl", "--socket", self.socket, *map(str, words)], capture_output=True, text=True)

    def popen(self, *words):
        return subprocess.Popen([BIN / "draftctl", "--socket", self.socket, *map(str, words)], stdout=subprocess.PIPE, text=True)

    def __exit__(self, *_):
        self.process.terminate()
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "none: it did not stop"
        check(f"{self.process.args}: stops", code == 0, code)


def golden(folder, label, cases, *options):
    for case in cases:
        with Daemon(folder, "golden", case, *options) as daemon:
            for base in "inline", "host", "device":
                done = daemon.ctl("replay", "--base", base, case)
                check(f"{label}: {case.stem}, {base}", done.returncode == 0, done.stdout + done.stderr)
    print(f"{label}: {len(cases)} golden cases", flush=True)


def has_nccl():
    try:
        return bool(ctypes.CDLL("libnccl.so.2"))
    except OSError:
        return False


def bench_words(model, seconds, concurrency):
    return (
        "bench", "--base", "device", "--rows", 4, "--steps", 7, "--temperature", 1, "-c", 16, "-t", 8, "-n", concurrency, "--warmup", 0.5,
        "--duration", seconds, "--verify", "--model", model, "--json", "-",
    )  # fmt: skip


def load(folder, name, model, concurrency, *options):
    """Rows a second."""
    with Daemon(folder, name, model, "--max-rows", "16", *options) as daemon:
        done = daemon.ctl(*bench_words(model, 4, concurrency))
        report = json.loads(done.stdout or "{}")
        right = done.returncode == 0 and report["verified"]["checked"] > 0 and report["verified"]["different"] == 0
        check(f"{name}: load", right, done.stderr)
        stats = daemon.ctl("stats").stdout
    print(f"{name}: {report['per_second']['rows']:.0f} rows/s, p50 {report['latency_us']['seen']['p50']} us", flush=True)
    return report["per_second"]["rows"], stats


def side_by_side(folder, model):
    with Daemon(folder, "one", model, "--devices", "0,1") as one, Daemon(folder, "other", model, "--devices", "1,0") as other:
        benches = [daemon.popen(*bench_words(model, 4, 16)) for daemon in (one, other)]
        for name, bench in zip(("one", "other"), benches):
            out, _ = bench.communicate(timeout=120)
            report = json.loads(out or "{}")
            right = bench.returncode == 0 and report["verified"]["different"] == 0
            check(f"two daemons on the same GPUs: {name}", right, out[-300:])
            print(f"two daemons on the same GPUs, {name}: {report['per_second']['rows']:.0f} rows/s", flush=True)


def main():
    gpus = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.count("GPU ") if os.path.exists("/dev/nvidia0") else 0
    if gpus < 2:
        print(f"waived: {gpus} GPUs here, this needs two\n0 passed, 0 failed, 1 waived")
        return 0
    some = [case for case in ALL if case.stem in SOME]
    with tempfile.TemporaryDirectory(prefix="draftd-", dir="/tmp") as name:
        folder = pathlib.Path(name)
        golden(folder, "two GPUs, one launch a block", ALL if "--all" in sys.argv else some, "--devices", "0,1")
        if has_nccl():
            golden(folder, "two GPUs, a launch a step through NCCL", some[:2], "--devices", "0,1", "--cuda-form", "step")
        else:
            count["waived"] += 1
            print("waived: libnccl.so.2 is not found; put its folder on LD_LIBRARY_PATH")
        golden(folder, "two replicas", some[:2], "--devices", "0,1", "--tensor-parallel", "1")
        model = folder / "model.safetensors"
        subprocess.run([BIN / "draftctl", "model", "make", "--vocab", "202048", "--rank", "512", model], check=True, stdout=subprocess.DEVNULL)
        side_by_side(folder, model)
        one, _ = load(folder, "one GPU", model, 16)
        group, _ = load(folder, "two GPUs together", model, 16, "--devices", "0,1")
        two, stats = load(folder, "two replicas", model, 32, "--devices", "0,1", "--tensor-parallel", "1")
        print(f"beside one GPU: together {group / one:.2f} times the rows a second, replicas {two / one:.2f}")
        check("two replicas", two >= GAIN * one, f"{two / one:.2f} times one's rows a second, not {GAIN}\n{stats}")
    print("{passed} passed, {failed} failed, {waived} waived".format(**count))
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
