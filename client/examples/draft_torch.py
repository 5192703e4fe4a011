#!/usr/bin/env python3
"""Draws a block of draft tokens for each of three sequences, from base logits that PyTorch wrote into memory which draftd reads where
it lies: on the GPU if both have one, else in host memory. Usage: draft_torch.py [SOCKET]"""

import sys

import torch

import draft

ROWS = 3


def main():
    with draft.connect(sys.argv[1] if len(sys.argv) > 1 else None, client_name="example") as d:
        steps, vocab = d.limits.max_steps, d.model.vocab
        on_gpu = d.model.backend == "cuda" and torch.cuda.is_available()
        region = d.region_open(2 * ROWS * steps * vocab, memory="device" if on_gpu else "host")
        view = region.tensor([ROWS, steps, vocab])

        # In a serving engine the drafter's forward pass writes its base logits [rows, steps, vocab] here.
        base = torch.from_dlpack(view)
        torch.manual_seed(1)
        base.copy_(2 * torch.randn(base.shape))
        if on_gpu:
            torch.cuda.synchronize(base.device)  # written before draftd is asked to read

        anchors = [1, 2, 3]  # the last token that each sequence has
        tokens, _ = d.draft(
            anchors,
            [10, 20, 30],  # position of the first token to draw
            view,
            steps=steps,
            seeds=[7, 8, 9],
            temperatures=[0.0, 0.7, 1.0],  # 0 is greedy
        )
        print(f"base logits on {base.device}")
        for anchor, row in zip(anchors, tokens.tolist()):
            print(f"after {anchor}:", *row)


try:
    main()
except draft.DraftError as error:
    sys.exit(f"{error.name}: {error}")
