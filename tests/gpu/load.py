#!/usr/bin/env python3
"""Mixed load on a daemon with the CUDA backend, verified: all draft lengths, 1 to 64 rows, random temperatures.

Usage: load.py [SECONDS [CLIENTS]], from the unpacked archive or the sources (built). Makes a model of V=151,936, R=256, starts the
daemon, and for SECONDS (600) keeps CLIENTS (3) `draftctl bench --verify` with random settings running. At the end: what was drafted,
recomputed on the CPU and different, and the GPU's memory over time, which must stay as after the first requests. Exit code 1 if
anything was wrong.
"""

import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

from daemon import SHAPES, Daemon, make_model, need_gpus, report_of

MODEL = "qwen3"
RUN_SECONDS = 6
INLINE_BYTES = 32 << 20  # of a client's requests in flight; as much may be in replies, and a user's share of all is limited
TOLERANCE_MIB = 64  # between samples: where the driver does not tell processes apart, another's start


def smi(query):
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits", "--id=0"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def gpu_mib(pid):
    """What the process has of the GPU's memory; where that is not told, what all have."""
    for line in smi("--query-compute-apps=pid,used_memory").splitlines():
        process, used = line.split(", ")
        if process == str(pid) and used.isdigit():
            return int(used)
    return int(smi("--query-gpu=memory.used"))


class Client(threading.Thread):
    def __init__(self, number, daemon, model, until):
        super().__init__()
        self.random = random.Random(number)
        self.daemon, self.model, self.until = daemon, model, until
        self.runs = self.rows = self.tokens = self.checked = self.different = 0
        self.problems = []

    def settings(self):
        pick = self.random
        rows = pick.choice([1, 1, 2, 3, 5, 8, 13, 16, 24, 32, 48, 64])
        steps = pick.randint(1, 8)
        base = pick.choice(["host", "host", "inline"]) if rows <= 16 else "host"  # a frame has 64 MiB
        most = 4 if rows > 16 else 12
        if base == "inline":
            most = max(1, min(most, INLINE_BYTES // (rows * steps * SHAPES[MODEL][0] * 2)))
        settings = {
            "--rows": rows,
            "--steps": steps,
            "--temperature": pick.choice([0, 0, round(pick.uniform(0.05, 3), 3), 1]),
            "--base": base,
            "--concurrency": pick.randint(1, most),
            "--seed": pick.randrange(1 << 31),
            "--duration": RUN_SECONDS,
        }
        words = [word for pair in settings.items() for word in pair]
        return words + (["--logits"] if pick.random() < 0.5 and rows <= 16 else [])

    def run(self):
        while time.monotonic() < self.until:
            settings = self.settings()
            try:
                report = report_of(self.daemon.start_bench("--verify", "--model", self.model, *settings))
                self.rows += report["totals"]["rows"]
                self.tokens += report["totals"]["tokens"]
                self.checked += report["verified"]["checked"] * report["mix"][0]["rows"]
                self.different += report["verified"]["different"]
            except (RuntimeError, ValueError) as error:
                self.problems.append(str(error))
            self.runs += 1


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    need_gpus(1)
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(pathlib.Path(folder) / "model.safetensors", *SHAPES[MODEL])
        with Daemon(model) as daemon:
            start = time.monotonic()
            clients = [Client(number, daemon, model, start + seconds) for number in range(count)]
            for client in clients:
                client.start()
            memory = []
            while any(client.is_alive() for client in clients):
                time.sleep(min(10, seconds / 10))
                memory.append(gpu_mib(daemon.process.pid))
                rows, wrong = (sum(getattr(c, field) for c in clients) for field in ("rows", "different"))
                print(f"{time.monotonic() - start:4.0f} s: {rows} rows, {wrong} replies different, {memory[-1]} MiB of the GPU", flush=True)
            alive = daemon.process.poll() is None
            print(daemon.ctl("stats").stdout)
            code = daemon.stop()
    problems = [problem for client in clients for problem in client.problems]
    for problem in problems:
        print(problem)
    runs, rows, tokens, checked, different = (
        sum(getattr(c, field) for c in clients) for field in ("runs", "rows", "tokens", "checked", "different")
    )
    half = memory[len(memory) // 4 :] or [0]
    print(
        f"{time.monotonic() - start:.0f} s, {runs} runs: {rows} rows ({tokens} tokens), {checked} rows recomputed, {different} replies different, "
        f"{len(problems)} problems; GPU memory {min(half)} to {max(half)} MiB after the first quarter; daemon's exit code {code}"
    )
    sys.exit(0 if alive and not code and not different and not problems and max(half) - min(half) <= TOLERANCE_MIB else 1)


if __name__ == "__main__":
    main()
