"""How else a draft block could be computed on a GPU, for comparison: the ways of a serving engine, in PyTorch and Triton.

eager  the step as an engine's loop captures it: embedding, cuBLAS product, add, Gumbel-max a block of ids, argmax, gather, copy
split  the cuBLAS product, then one fused launch; its last block takes the winner and fetches the next embedding
one    product and step in one launch, for one row

Each is a CUDA graph of all steps, with the noise of kernels/NUMERICS.md, so that its tokens can be compared with ours. The sums of
the product may round differently, so a few may differ. Every peer reads the same base logits and stores the same draft logits as draftd.
"""

import statistics

import torch
import triton
import triton.language as tl

BLOCK = 1024  # ids a program of a step takes
WARM_UPS = 5
REPLAYS = 41


# ---- the noise: NUMERICS.md, section 4 ----


@triton.jit
def hash_word(h, k):
    k = k * 0xCC9E2D51
    k = (k << 15) | (k >> 17)
    h = h ^ (k * 0x1B873593)
    h = (h << 13) | (h >> 19)
    return h * 5 + 0xE6546B64


@triton.jit
def gumbel(seed, position, step, ids):
    """G(v) of a row, for temperature != 0; subtracted from the value."""
    s = seed ^ (step.to(tl.int64) << 32)
    q = position + step - 1 + 1073741824
    h = (s - s).to(tl.uint32)
    h = hash_word(h, s.to(tl.uint32))
    h = hash_word(h, (s >> 32).to(tl.uint32))
    h = hash_word(h, q.to(tl.uint32))
    h = hash_word(h, ids.to(tl.uint32))
    h = h ^ 16
    h = (h ^ (h >> 16)) * 0x85EBCA6B
    h = (h ^ (h >> 13)) * 0xC2B2AE35
    h = h ^ (h >> 16)
    u = tl.fma((h >> 16).to(tl.float32), 0.0000152587890625, ((h & 0xFFFF).to(tl.float32) + 0.5) * 2.3283064365386963e-10)
    series = u * 0.125 + 0.14285714924335479736328125
    series = tl.fma(u, series, 0.16666667163372039794921875)
    series = tl.fma(u, series, 0.20000000298023223876953125)
    series = tl.fma(u, series, 0.25)
    series = tl.fma(u, series, 0.3333333432674407958984375)
    series = tl.fma(u, series, 0.5)
    series = tl.fma(u, series, 1.0)
    log = tl.where(u < 0.25, series * -u, tl.log(tl.maximum(1.0 - u, 5.9604644775390625e-08)))
    return tl.log(-log)


@triton.jit
def noised(logit, temperature, seed, position, step, ids):
    value = logit.to(tl.float32)
    if temperature != 0:
        value = value / temperature - gumbel(seed, position, step, ids)
    return value


# ---- eager ----


@triton.jit(do_not_specialize=["step"])
def gumbel_block_argmax(logits, row_stride, temperatures, seeds, positions, values, winners, step, vocab, blocks, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    row = tl.program_id(1)
    ids = block * BLOCK + tl.arange(0, BLOCK)
    logit = tl.load(logits + row.to(tl.int64) * row_stride + ids, mask=ids < vocab, other=0)
    value = noised(logit, tl.load(temperatures + row), tl.load(seeds + row), tl.load(positions + row), step, ids)
    best, at = tl.max(tl.where(ids < vocab, value, float("-inf")), axis=0, return_indices=True)
    tl.store(values + row * blocks + block, best)
    tl.store(winners + row * blocks + block, (block * BLOCK + at).to(tl.int64))


def eager_step(work, step):
    embedding = torch.nn.functional.embedding(work.previous, work.w1)
    bias = torch.nn.functional.linear(embedding, work.w2)
    logits = work.draft[:, step]
    torch.add(work.base[:, step], bias, out=logits)
    gumbel_block_argmax[(work.blocks, work.rows)](
        logits, logits.stride(0), work.temperatures, work.seeds, work.positions, work.values, work.winners, step,
        work.vocab, work.blocks, BLOCK=BLOCK,
    )
    token = work.winners.gather(1, work.values.argmax(1, keepdim=True)).squeeze(1)
    work.tokens[:, step].copy_(token)
    work.previous.copy_(token)


# ---- split and one ----


@triton.jit
def finish(values, winners, arrivals, tokens, w1, embedding, row, step, block, best, winner, blocks, rank, row_steps,
           BLOCKS: tl.constexpr, RANK: tl.constexpr):
    """Leaves the block's winner; the last block of the row takes the best of all, and the next step's embedding."""
    tl.store(values + row * blocks + block, best)
    tl.store(winners + row * blocks + block, winner)
    before = tl.atomic_add(arrivals + row, 1, sem="acq_rel")
    if before % blocks == blocks - 1:
        all_blocks = tl.arange(0, BLOCKS)
        value = tl.load(values + row * blocks + all_blocks, mask=all_blocks < blocks, other=float("-inf"), cache_modifier=".cg")
        _, at = tl.max(value, axis=0, return_indices=True)
        token = tl.load(winners + row * blocks + at, cache_modifier=".cg")
        tl.store(tokens + row * row_steps + step, token)
        columns = tl.arange(0, RANK)
        tl.store(
            embedding + row * rank + columns, tl.load(w1 + token * rank + columns, mask=columns < rank), mask=columns < rank
        )


@triton.jit(do_not_specialize=["step"])
def fused_step(bias, base, draft, temperatures, seeds, positions, values, winners, arrivals, tokens, w1, embedding, step, vocab,
               blocks, rank, row_steps, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, RANK: tl.constexpr):
    block = tl.program_id(0)
    row = tl.program_id(1)
    ids = block * BLOCK + tl.arange(0, BLOCK)
    inside = ids < vocab
    at = (row * row_steps + step).to(tl.int64) * vocab
    logit = tl.load(base + at + ids, mask=inside, other=0).to(tl.float32)
    logit += tl.load(bias + row.to(tl.int64) * vocab + ids, mask=inside, other=0).to(tl.float32)
    logit = logit.to(tl.bfloat16)
    tl.store(draft + at + ids, logit, mask=inside)
    value = noised(logit, tl.load(temperatures + row), tl.load(seeds + row), tl.load(positions + row), step, ids)
    best, place = tl.max(tl.where(inside, value, float("-inf")), axis=0, return_indices=True)
    finish(values, winners, arrivals, tokens, w1, embedding, row, step, block, best, (block * BLOCK + place).to(tl.int64), blocks,
           rank, row_steps, BLOCKS, RANK)


@triton.jit(do_not_specialize=["step"])
def product_and_step(w2, base, draft, temperatures, seeds, positions, values, winners, arrivals, tokens, w1, embedding,
                     next_embedding, step, vocab, blocks, rank, row_steps, TILE: tl.constexpr, CHUNK: tl.constexpr,
                     BLOCKS: tl.constexpr, RANK: tl.constexpr):
    """One row. Reads one embedding and leaves the next elsewhere, for the other blocks may not have read this one yet."""
    block = tl.program_id(0)
    row = tl.program_id(1)
    ids = block * TILE + tl.arange(0, TILE)
    inside = ids < vocab
    columns = tl.arange(0, CHUNK)
    sums = tl.zeros((TILE, CHUNK), tl.float32)
    for first in range(0, rank, CHUNK):
        weights = tl.load(w2 + ids.to(tl.int64)[:, None] * rank + (first + columns)[None, :], mask=inside[:, None], other=0)
        sums += weights.to(tl.float32) * tl.load(embedding + first + columns).to(tl.float32)[None, :]
    bias = tl.sum(sums, axis=1).to(tl.bfloat16)
    at = step.to(tl.int64) * vocab
    logit = tl.load(base + at + ids, mask=inside, other=0).to(tl.float32) + bias.to(tl.float32)
    logit = logit.to(tl.bfloat16)
    tl.store(draft + at + ids, logit, mask=inside)
    value = noised(logit, tl.load(temperatures), tl.load(seeds), tl.load(positions), step, ids)
    best, place = tl.max(tl.where(inside, value, float("-inf")), axis=0, return_indices=True)
    finish(values, winners, arrivals, tokens, w1, next_embedding, row, step, block, best, (block * TILE + place).to(tl.int64),
           blocks, rank, row_steps, BLOCKS, RANK)


def split_step(work, step):
    torch.mm(work.embedding[0], work.w2.t(), out=work.bias)
    fused_step[(work.blocks, work.rows)](
        work.bias, work.base, work.draft, work.temperatures, work.seeds, work.positions, work.values, work.winners, work.arrivals,
        work.tokens, work.w1, work.embedding[0], step, work.vocab, work.blocks, work.rank, work.steps, BLOCK=BLOCK,
        BLOCKS=triton.next_power_of_2(work.blocks), RANK=triton.next_power_of_2(work.rank),
    )


def one_step(tile, chunk, warps):
    def step_of(work, step):
        product_and_step[(work.blocks, 1)](
            work.w2, work.base, work.draft, work.temperatures, work.seeds, work.positions, work.values, work.winners,
            work.arrivals, work.tokens, work.w1, work.embedding[step % 2], work.embedding[1 - step % 2], step,
            work.vocab, work.blocks, work.rank, work.steps, TILE=tile, CHUNK=chunk, BLOCKS=triton.next_power_of_2(work.blocks),
            RANK=triton.next_power_of_2(work.rank), num_warps=warps,
        )

    return tile, step_of


# Of each, (ids that a program of a step takes, the step): the fastest variant counts.
PEERS = {
    "eager": [(BLOCK, eager_step)],
    "split": [(BLOCK, split_step)],
    "one": [one_step(32, 256, 4), one_step(64, 256, 8)],
}


# ---- the same model and requests as figures.c ----

MASK = (1 << 64) - 1


def signed(x):
    x &= MASK
    return x - (1 << 64) if x >> 63 else x


def shifted(x, n):
    """Logically, of a tensor of signed numbers."""
    return (x >> n) & ((1 << (64 - n)) - 1)


def mixed_number(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def mixed(x):
    x = (x ^ shifted(x, 30)) * signed(0xBF58476D1CE4E5B9)
    x = (x ^ shifted(x, 27)) * signed(0x94D049BB133111EB)
    return x ^ shifted(x, 31)


def normal(count, deviation, seed, device):
    """What harness.c's fill_normal() makes."""
    to = torch.empty(count, dtype=torch.bfloat16, device=device)
    for first in range(0, count, 1 << 24):
        index = torch.arange(first, min(first + (1 << 24), count), dtype=torch.int64, device=device)
        a = mixed(index * signed(0x9E3779B97F4A7C15) + signed(mixed_number(seed)))
        b = mixed(a + 1)
        total = torch.zeros_like(index)
        for part in range(6):
            total += ((a >> 10 * part) & 1023) + ((b >> 10 * part) & 1023)
        to[first : first + len(index)] = ((total - 6138).to(torch.float32) * (deviation / 1024)).to(torch.bfloat16)
    return to


class Shape:
    """A model and its requests on the GPU, made once for all sizes."""

    def __init__(self, vocab, rank, rows, steps, device="cuda"):
        self.vocab, self.rank, self.steps, self.device = vocab, rank, steps, device
        self.w1 = normal(vocab * rank, 1.0, 1, device).view(vocab, rank)
        self.w2 = normal(vocab * rank, 0.05, 2, device).view(vocab, rank)
        self.base = normal(len(rows) * steps * vocab, 4.0, 3, device).view(len(rows), steps, vocab)
        self.draft = torch.empty_like(self.base)
        self.rows = rows


class Work:
    """What the steps of a peer read and write, for the first `rows` rows."""

    def __init__(self, shape, rows, tile):
        device = shape.device
        columns = shape.rows[:rows]
        self.vocab, self.rank, self.steps, self.rows = shape.vocab, shape.rank, shape.steps, rows
        self.w1, self.w2 = shape.w1, shape.w2
        self.base, self.draft = shape.base[:rows], shape.draft[:rows]
        self.anchors = torch.tensor([r["anchor"] for r in columns], device=device)
        self.positions = torch.tensor([r["position"] for r in columns], device=device)
        self.seeds = torch.tensor([r["seed"] for r in columns], device=device)
        self.temperatures = torch.ones(rows, dtype=torch.float32, device=device)
        self.expected = torch.tensor([r["tokens"] for r in columns], device=device)
        self.blocks = triton.cdiv(self.vocab, tile)
        self.values = torch.empty((rows, self.blocks), dtype=torch.float32, device=device)
        self.winners = torch.empty((rows, self.blocks), dtype=torch.int64, device=device)
        self.arrivals = torch.zeros(rows, dtype=torch.int32, device=device)
        self.tokens = torch.full((rows, self.steps), -1, dtype=torch.int64, device=device)
        self.previous = self.anchors.clone()
        self.embedding = [torch.empty((rows, self.rank), dtype=torch.bfloat16, device=device) for _ in range(2)]
        self.bias = torch.empty((rows, self.vocab), dtype=torch.bfloat16, device=device)

    def block(self, step):
        self.previous.copy_(self.anchors)
        torch.index_select(self.w1, 0, self.anchors, out=self.embedding[0])
        for i in range(self.steps):
            step(self, i)


def measure(shape, rows, peer):
    """(microseconds a block, tokens that differ from ours): the fastest of the peer's variants."""
    return min(measure_variant(Work(shape, rows, tile), step) for tile, step in PEERS[peer])


def measure_variant(work, step):
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            work.block(step)
    torch.cuda.synchronize()
    work.arrivals.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work.block(step)
    times = []
    work.tokens.fill_(-1)
    for i in range(-WARM_UPS, REPLAYS):
        begun, done = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        graph.replay()
        done.record()
        done.synchronize()
        if i >= 0:
            times.append(begun.elapsed_time(done) * 1000)
    return statistics.median(times), int((work.tokens != work.expected).sum())


def bandwidth(gigabytes=4):
    """Bytes a second of a large copy within the device, read and written counted."""
    source = torch.empty(gigabytes << 30, dtype=torch.uint8, device="cuda")
    to = torch.empty_like(source)
    times = []
    for _ in range(9):
        begun, done = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        to.copy_(source)
        done.record()
        done.synchronize()
        times.append(begun.elapsed_time(done) / 1000)
    return 2 * len(source) / statistics.median(times)
