#!/usr/bin/env python3
"""Microseconds a block on this machine's GPU: ours, the limit, and the best peer, in one run.

Usage: bench_gpu.py PROGRAM [SHAPE...]: PROGRAM is the GPU tests' (build/tests/gpu), a shape is muse, qwen3 or dsv4.

All times are medians of 31 or more graph replays with events around them, 7 steps, temperature 1, independent normal logits.
#wrong counts our tokens and logits that differ from those that the CPU's reference confirmed; #differ the best peer's tokens that differ
from ours. The limit is w2 read once a step (best of several ways to keep part of it in L2), plus the base logits read and the
draft logits written at the speed of a large copy. Exit code 1 if anything of ours is wrong.
"""

import subprocess
import sys
import time

SHAPES = ["muse", "qwen3", "dsv4"]
ROWS = [1, 4, 8, 16, 32, 64]


class Figures:
    """What `PROGRAM figures=SHAPE` printed."""

    def __init__(self, program, shape):
        done = subprocess.run([program, f"figures={shape}"], stdout=subprocess.PIPE, text=True)
        self.rows, self.times, self.wrong, self.stream = [], {}, {}, None
        for words in map(str.split, done.stdout.splitlines()):
            if words[:1] == ["shape"]:
                self.vocab, self.rank, self.steps = map(int, words[2:])
            elif words[:1] == ["row"]:
                anchor, position, seed, *tokens = map(int, words[1:])
                self.rows.append({"anchor": anchor, "position": position, "seed": seed, "tokens": tokens})
            elif words[:1] == ["time"]:
                key = words[1], int(words[2])
                self.times[key], self.wrong[key] = float(words[3]), int(words[4])
            elif words[:1] == ["stream"]:
                self.stream = float(words[1])
            elif words[:1] in (["FAILED"], ["waived:"]):
                print(" ".join(words))
        self.failed = done.returncode != 0 or self.stream is None


def best_peer(peers, shape, rows):
    """(us, tokens that differ, name), and a text with all of them."""
    found, texts = [], []
    for name in peers.PEERS:
        if name == "one" and rows > 1:
            continue
        try:
            us, different = peers.measure(shape, rows, name)
        except Exception as error:  # a peer that a version of PyTorch or Triton can't run is no reason to stop
            texts.append(f"{name} failed: {str(error).splitlines()[0][:100] if str(error) else type(error).__name__}")
            continue
        found.append((us, different, name))
        texts.append(f"{name} {us:.0f} ({different})")
    return min(found) if found else None, ", ".join(texts)


def bench(program, name, peers, bytes_a_second):
    figures = Figures(program, name)
    if figures.failed and figures.stream is None:
        return False
    shape = peers and peers.Shape(figures.vocab, figures.rank, figures.rows, figures.steps)
    for rows in ROWS:
        limit = figures.stream + 4 * figures.steps * figures.vocab * rows / bytes_a_second * 1e6
        ours, keep = figures.times["block", rows], figures.times["keep", rows]
        step = figures.times.get(("step", rows))
        peer, text = best_peer(peers, shape, rows) if peers else (None, "")
        wrong = sum(count for (_, r), count in figures.wrong.items() if r == rows)
        print(
            f"{name:6} {rows:4} {ours:8.1f} {keep:8.1f} {f'{step:8.0f}' if step else '       -'}"
            + (f" {peer[0]:8.0f} {peer[2]:5}" if peer else "        - -    ")
            + f" {figures.stream:8.0f} {limit:8.0f} {ours / limit:10.2f}"
            + (f" {peer[0] / ours:9.2f}" if peer else "         -")
            + f" {wrong:7}"
            + (f" {peer[1]:7}" if peer else "       -")
            + f"   {text}",
            flush=True,
        )
    return not figures.failed and not any(figures.wrong.values())


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program, shapes = sys.argv[1], sys.argv[2:] or SHAPES
    try:
        import peers
        import torch
        import triton

        torch.cuda.get_device_properties(0)
        bytes_a_second = peers.bandwidth()
        torch.cuda.empty_cache()
        print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, Triton {triton.__version__}, "
              f"a copy moves {bytes_a_second / 1e12:.2f} TB/s, {time.strftime('%Y-%m-%d')}")
    except Exception as error:
        print(f"without peers: {str(error).splitlines()[0]}")
        peers, bytes_a_second = None, 4.36e12
    print(f"{'shape':6} {'rows':>4} {'ours us':>8} {'kept L2':>8} {'a step':>8} {'peer us':>8} {'best':5} {'stream':>8} {'limit':>8} "
          f"{'ours/limit':>10} {'peer/ours':>9} {'#wrong':>7} {'#differ':>7}   all peers: us (tokens that differ)", flush=True)
    fine = [bench(program, shape, peers, bytes_a_second) for shape in shapes]
    sys.exit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()
