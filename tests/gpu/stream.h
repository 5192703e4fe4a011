/* What no block can do without: w2 read once a step, by the same loads in the same order as the
 * block form's, with nothing done to it. */
#ifndef TESTS_GPU_STREAM_H
#define TESTS_GPU_STREAM_H

#include "kernels/checkpoint.h"
#include "kernels/cuda/kernels.h"

/* Microseconds of `steps` reads of w2: medians of graph replays, the best of several shares kept in
 * L2 and in shared memory. Ends the program if CUDA fails. */
float stream_us(const struct checkpoint *checkpoint, int steps);

#define STREAM_THREADS 32

#ifdef __cplusplus
extern "C" {
#endif

/* Parameters (CUtensorMap of w2 in boxes of STREAM_CHUNKS chunks, vocab, rank, struct block_plan,
 * steps); shared memory for the plan's stages. */
const void *stream_kernel(void);
#define STREAM_CHUNKS      4
#define STREAM_STAGE_BYTES (STREAM_CHUNKS * TABLE_CHUNK * TILE_ROWS * 2)

#ifdef __cplusplus
}
#endif

#endif
