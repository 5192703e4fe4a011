#!/usr/bin/env python3
"""Mixed load on a daemon with the CUDA backend, verified: all draft lengths, 1 to 64 rows, random temperatures.

Usage: load.py BIN_FOLDER [SECONDS [CLIENTS]]: BIN_FOLDER holds draftd and draftctl (build/, or an unpacked archive's bin/). Makes a
model of V=151,936, R=256, starts the daemon, and keeps CLIENTS (3) `draftctl bench --verify` with random settings running. At the
end: what was drafted, recomputed on the CPU and different, and the GPU's memory over time, which must stay as after the first
requests. Exit code 1 if anything was wrong.
"""

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

RUN_SECONDS = 6
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
    def __init__(self, number, binaries, folder, until):
        super().__init__()
        self.random = random.Random(number)
        self.command = [binaries / "draftctl", "bench", "--socket", folder / "socket", "--verify", "--model", folder / "model.safetensors"]
        self.until = until
        self.runs = self.rows = self.tokens = self.checked = self.different = 0
        self.problems = []

    def settings(self):
        pick = self.random
        rows = pick.choice([1, 1, 2, 3, 5, 8, 13, 16, 24, 32, 48, 64])
        settings = {
            "--rows": rows,
            "--steps": pick.randint(1, 8),
            "--temperature": pick.choice([0, 0, round(pick.uniform(0.05, 3), 3), 1]),
            "--base": pick.choice(["host", "host", "inline"]) if rows <= 16 else "host",  # a frame has 64 MiB
            "--concurrency": pick.randint(1, 4 if rows > 16 else 12),
            "--seed": pick.randrange(1 << 31),
            "--duration": RUN_SECONDS,
        }
        words = [str(word) for pair in settings.items() for word in pair]
        return words + (["--logits"] if pick.random() < 0.5 and rows <= 16 else [])

    def run(self):
        while time.monotonic() < self.until:
            settings = self.settings()
            done = subprocess.run([*self.command, *settings, "--json", "-"], capture_output=True, text=True)
            try:
                report = json.loads(done.stdout)
                self.rows += report["totals"]["rows"]
                self.tokens += report["totals"]["tokens"]
                self.checked += report["verified"]["checked"] * report["mix"][0]["rows"]
                self.different += report["verified"]["different"]
            except (ValueError, KeyError):
                self.problems.append(f"no report: {done.stderr[-300:]}")
            if done.returncode:
                self.problems.append(f"{' '.join(settings)}: exit code {done.returncode}: {done.stderr[-300:]}")
            self.runs += 1


def main():
    binaries = Path(sys.argv[1]).resolve()
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 600
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model.safetensors"
        subprocess.run([binaries / "draftctl", "model", "make", "--vocab", "151936", "--rank", "256", model], check=True)
        daemon = subprocess.Popen([binaries / "draftd", "--backend", "cuda", "--model", model, "--socket", folder / "socket"])
        while subprocess.run([binaries / "draftctl", "ping", "--socket", folder / "socket"], capture_output=True).returncode:
            if daemon.poll() is not None:
                sys.exit("the daemon did not start")
            time.sleep(0.2)
        start = time.monotonic()
        clients = [Client(number, binaries, folder, start + seconds) for number in range(count)]
        for client in clients:
            client.start()
        memory = []
        while any(client.is_alive() for client in clients):
            time.sleep(min(10, seconds / 10))
            memory.append(gpu_mib(daemon.pid))
            rows, wrong = (sum(getattr(c, field) for c in clients) for field in ("rows", "different"))
            print(f"{time.monotonic() - start:4.0f} s: {rows} rows, {wrong} replies different, {memory[-1]} MiB of the GPU", flush=True)
        alive = daemon.poll() is None
        subprocess.run([binaries / "draftctl", "stats", "--socket", folder / "socket"])
        daemon.terminate()
        code = daemon.wait(30)
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
