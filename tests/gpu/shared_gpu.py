#!/usr/bin/env python3
"""What it costs that the daemon and its client share a GPU: the client's PyTorch copies base logits of one row into a device region and
then drafts, on the daemon's GPU and (where there is one) on another; without MPS, then under it. Microseconds, beside a draft whose
base logits are there already.

Usage: shared_gpu.py [vocab rank], from the unpacked archive (default 129280 256). MPS is started for the second half alone, by
nvidia-cuda-mps-control in folders of its own, and stopped again; without that program the second half is left out.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[3]
CALLS, WARMUP, STEPS = 1000, 100, 7


def client(socket):
    """In a process of its own, started under MPS or not. Prints a line for each GPU."""
    sys.path.insert(0, str(TOP / "lib/python3/dist-packages"))
    import draft
    import torch

    with draft.connect(socket, spin_us=1000) as d:
        vocab = d.model.vocab
        for index in range(torch.cuda.device_count()):
            uuid = f"GPU-{torch.cuda.get_device_properties(index).uuid}"
            region = d.region_open(2 * STEPS * vocab, memory="device", device=uuid)
            view = region.tensor([1, STEPS, vocab])
            base = torch.from_dlpack(view)
            ready = torch.randn(base.shape, device=base.device).to(base.dtype)
            base.copy_(ready)
            torch.cuda.synchronize(index)
            for what in "a draft", "a copy, then a draft":
                us = []
                for call in range(WARMUP + CALLS):
                    start = time.perf_counter_ns()
                    if what != "a draft":
                        base.copy_(ready)
                        torch.cuda.synchronize(index)
                    d.draft([call % vocab], [call], view, steps=STEPS, temperatures=1.0)
                    us.append((time.perf_counter_ns() - start) / 1e3)
                us = sorted(us[WARMUP:])
                where = "the daemon's GPU" if uuid == d.devices[0].uuid else "another GPU"
                print(f"  {what + ', ' + where:44} {us[len(us) // 2]:8.1f} {us[len(us) * 99 // 100]:8.1f}", flush=True)
            del base, view


def measure(folder, environment, label):
    socket = folder / "socket"
    command = [TOP / "bin/draftd", "-b", "cuda", "-m", folder / "model.safetensors", "-s", socket, "--engine-spin", "1ms", "--loop-spin", "1ms"]
    daemon = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        while subprocess.run([TOP / "bin/draftctl", "ping", "-s", socket], capture_output=True).returncode:
            if daemon.poll() is not None:
                sys.exit("the daemon did not start")
            time.sleep(0.1)
        print(label, flush=True)
        subprocess.run([sys.executable, __file__, "client", socket], env=environment, check=True)
    finally:
        daemon.terminate()
        daemon.wait(30)


def main():
    vocab, rank = sys.argv[1:3] if len(sys.argv) > 2 else ("129280", "256")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run(
            [TOP / "bin/draftctl", "model", "make", "--vocab", vocab, "--rank", rank, folder / "model.safetensors"], check=True
        )
        print(f"{STEPS} tokens a draft; microseconds                          p50      p99")
        measure(folder, dict(os.environ), "without MPS")
        if not shutil.which("nvidia-cuda-mps-control"):
            print("there is no nvidia-cuda-mps-control here")
            return
        under = dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=str(folder / "mps"), CUDA_MPS_LOG_DIRECTORY=str(folder / "mps"))
        (folder / "mps").mkdir()
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=under, check=True)
        try:
            measure(folder, under, "under MPS")
        finally:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env=under)


if __name__ == "__main__":
    if sys.argv[1:2] == ["client"]:
        client(sys.argv[2])
    else:
        main()
