#!/usr/bin/env python3
"""What it costs that the daemon and its client share a GPU: the client's PyTorch copies base logits of one row into a device region and
then drafts, on the daemon's GPU and (where there is one) on another; without MPS, then under it. Microseconds, beside a draft whose
base logits are there already.

Usage: shared_gpu.py [vocab rank], from the unpacked archive or the sources (built; default 129280 256). MPS is started for the second half alone, by
nvidia-cuda-mps-control in folders of its own, and stopped again; without that program the second half is left out.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from daemon import SHAPES, Daemon, make_model, need_gpus

CALLS, WARMUP, STEPS = 1000, 100, 7


def client(socket):
    """In a process of its own, started under MPS or not. Prints a line for each GPU."""
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


def measure(model, environment, label):
    with Daemon(model, "--engine-spin", "1ms", "--loop-spin", "1ms", env=environment) as daemon:
        print(label, flush=True)
        subprocess.run([sys.executable, __file__, "client", daemon.socket], env=environment, check=True)


def main():
    vocab, rank = sys.argv[1:3] if len(sys.argv) > 2 else SHAPES["dsv4"]
    need_gpus(1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = make_model(folder / "model.safetensors", vocab, rank)
        print(f"{STEPS} tokens a draft; microseconds                          p50      p99")
        measure(model, dict(os.environ), "without MPS")
        if not shutil.which("nvidia-cuda-mps-control"):
            print("there is no nvidia-cuda-mps-control here")
            return
        under = dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=str(folder / "mps"), CUDA_MPS_LOG_DIRECTORY=str(folder / "mps"))
        (folder / "mps").mkdir()
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=under, check=True)
        try:
            measure(model, under, "under MPS")
        finally:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env=under)


if __name__ == "__main__":
    if sys.argv[1:2] == ["client"]:
        client(sys.argv[2])
    else:
        main()
