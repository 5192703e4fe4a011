"""kernels/NUMERICS.md once more, in NumPy: tokens and logits of random drafts, for tests to expect.

Nothing here comes from the C code. Two tables of the page are left out, and so models and requests must be such that they aren't
needed: weights are multiples of 1/8 up to 1, whose sums are the same in any order; there is no soft cap; temperatures are zero, powers
of two (subnormal ones, too), infinities or NaN, whose reciprocals are exact.
"""

import json

import numpy as np

F32 = np.float32
TEMPERATURES = (
    0.0, -0.0, 0.125, 0.5, 1.0, 1.0, 2.0, 8.0, -1.0, 2.0**-126, 2.0**-149, -(2.0**-130), 2.0**127,
    float("inf"), float("-inf"), float("nan"),
)
M64 = 2**64 - 1


def f32_of_bits(*bits):
    values = np.array(bits, np.uint32).view(F32)
    return values if len(bits) > 1 else values[0]


def widen(bf16):
    return (bf16.astype(np.uint32) << 16).view(F32)


def narrow(values):
    """FP32 to BF16, nearest even; NaN becomes 0x7FFF."""
    bits = np.ascontiguousarray(values, F32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)


def fma(a, b, c):
    """One rounding: the product is exact in double, and the sum is rounded to odd there before it is rounded to float."""
    product, c = np.multiply(a, b, dtype=np.float64), np.float64(c)
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)
    bits = np.atleast_1d(total).view(np.int64)
    nudge = (error != 0) & np.isfinite(total) & ((bits & 1) == 0)
    return (bits + np.where(nudge, np.where((error > 0) == (total > 0), 1, -1), 0)).view(np.float64).astype(F32)


def fma_ftz(a, b, c):
    result = fma(a, b, c)
    return np.where(np.abs(result) < f32_of_bits(0x00800000), np.copysign(F32(0), result), result)


def div_full(a, b):
    """Section 5. `b` is what TEMPERATURES says."""
    size = np.abs(b)
    scale = np.where((size > 2.0**126) & np.isfinite(b), F32(0.25), np.where((size > 0) & (size < 2.0**-126), F32(2**24), F32(1)))
    return (a * scale) * (F32(1) / (b * scale))


LOG = f32_of_bits(0xBDF8CDCC, 0x3E0F2955, 0xBE2AD8B9, 0x3E4CED0B, 0xBE7FFF22, 0x3EAAAA78, 0xBF000000)
SERIES = f32_of_bits(0x3E124925, 0x3E2AAAAB, 0x3E4CCCCD, 0x3E800000, 0x3EAAAAAB, 0x3F000000, 0x3F800000)


def log_sfu(x):
    """Of what is between 2^-33 and 23, which all of the noise is: section 4's addend is 0 then."""
    bits = x.view(np.int32)
    exponent = (bits - np.int32(0x3F2AAAAB)) & np.int32(-0x800000)
    m = (bits - exponent).view(F32) - F32(1)
    t = fma_ftz(exponent.astype(F32), f32_of_bits(0x34000000), F32(0))
    q = fma_ftz(f32_of_bits(0xBE055027), m, f32_of_bits(0x3E1039F6))
    for c in LOG:
        q = fma_ftz(q, m, c)
    q = m * q
    return fma_ftz(t, f32_of_bits(0x3F317218), fma_ftz(q, m, m))


def rotate(words, by):
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))


def mix(h, words):
    k = rotate(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return rotate(h ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def noise(seeds, positions, step, vocab):
    """G of section 4, [rows, vocab]. `positions` are those of step 0."""
    s = [(seed & M64) ^ (step << 32) for seed in seeds]
    q = [(first + step - 1 + 2**30) & 0xFFFFFFFF for first in positions]
    h = np.zeros((len(seeds), 1), np.uint32)
    for words in [w & 0xFFFFFFFF for w in s], [w >> 32 for w in s], q:
        h = mix(h, np.array(words, np.uint32)[:, None])
    h = mix(h, np.arange(vocab, dtype=np.uint32)[None, :]) ^ np.uint32(16)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    u = ((h >> 16).astype(np.float64) * 2.0**-16 + ((h & 0xFFFF) + 0.5) * 2.0**-32).astype(F32)
    series = np.full_like(u, f32_of_bits(0x3E000000))
    for c in SERIES:
        series = fma(u, series, c)
    logarithm = log_sfu(np.maximum(F32(1) - u, f32_of_bits(0x33800000)))
    return log_sfu(-np.where(u < F32(0.25), series * -u, logarithm))


class Head:
    """A Markov head. Its w1 has `target_vocab` rows, its w2 `vocab`."""

    def __init__(self, w1, w2, multiplier):
        self.w1, self.w2, self.multiplier = w1, w2, F32(multiplier)
        self.target_vocab, self.vocab = len(w1), len(w2)
        self.bias = widen(narrow((widen(w1).astype(np.float64) @ widen(w2).astype(np.float64).T).astype(F32)))

    @classmethod
    def random(cls, seed, vocab, rank):
        dice = np.random.default_rng(seed)
        weights = [narrow(dice.integers(-8, 9, (vocab, rank)).astype(F32) / F32(8)) for _ in range(2)]
        return cls(*weights, (1.0, 0.4375, 2.0)[seed % 3])

    def write(self, path):
        sizes = self.w1.nbytes, self.w1.nbytes + self.w2.nbytes
        header = {"__metadata__": {"output_multiplier": str(float(self.multiplier))}}
        for name, start, weights in ("markov_w1", 0, self.w1), ("markov_w2", sizes[0], self.w2):
            header[f"markov_head.{name}.weight"] = {
                "dtype": "BF16", "shape": list(weights.shape), "data_offsets": [start, start + weights.nbytes],
            }
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + self.w1.tobytes() + self.w2.tobytes())

    def draft(self, base, anchors, positions, seeds, temperatures, padding):
        """base: BF16 bits [rows, K, V]; padding: [rows] of bool. Returns tokens [rows, K], flags [rows], logits as base."""
        rows, steps, vocab = base.shape
        temperature = np.where(padding, 0, np.array(temperatures, F32)).astype(F32)[:, None]
        seeds = [0 if p else seed for seed, p in zip(seeds, padding)]
        sampled = temperature[:, 0] != 0
        tokens, logits = np.zeros((rows, steps), np.int64), np.zeros_like(base)
        flags = np.zeros(rows, bool)
        previous = np.array(anchors, np.int64)
        with np.errstate(all="ignore"):
            for step in range(steps):
                x = narrow(widen(base[:, step]) + self.bias[np.minimum(previous, self.target_vocab - 1)])
                logits[:, step] = narrow(self.multiplier * widen(x))
                value = widen(logits[:, step])
                if sampled.any():
                    noised = div_full(value, temperature) - noise(seeds, positions, step, vocab)
                    value = np.where(sampled[:, None], noised, value)
                previous = np.argmax(value, axis=1)  # NumPy's order is section 6's: the first NaN, else the first of the largest
                tokens[:, step] = previous
                flags |= np.isnan(value[np.arange(rows), previous])
        return tokens, flags, logits
