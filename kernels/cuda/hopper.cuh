// The instructions of compute capability 9.0 that the block form is made of, one function each:
// barriers of shared memory, the tensor copy engine, warpgroup matrix products, asynchronous
// copies, cache hints.
#pragma once

#include "numerics.cuh"

#include <cuda.h>

DEVICE uint32_t shared_address(const void *pointer)
{
	return (uint32_t)__cvta_generic_to_shared(pointer);
}

// ---- barriers in shared memory: one that counts arrivals and bytes, waited for by the parity of
// its phase ----

DEVICE void barrier_init(uint32_t barrier, uint32_t arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

DEVICE void barrier_init_fence()
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

DEVICE void barrier_expect_bytes(uint32_t barrier, uint32_t bytes)
{
	asm volatile(
		"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
		: "memory");
}

DEVICE void barrier_arrive(uint32_t barrier)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

DEVICE void barrier_wait(uint32_t barrier, uint32_t parity)
{
	asm volatile("{\n"
		     ".reg .pred done;\n"
		     "again:\n"
		     "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
		     "@!done bra again;\n"
		     "}" ::"r"(barrier),
		     "r"(parity)
		     : "memory");
}

// A barrier of `threads` threads by number; 0 is __syncthreads(). Whole warps come to it.
DEVICE void named_barrier(int number, int threads)
{
	__syncwarp();
	asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Counts the warp there without waiting; those who wait count too.
DEVICE void named_barrier_arrive(int number, int threads)
{
	__syncwarp();
	asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// The same value in all lanes of the warp, which the compiler would not know otherwise.
DEVICE int uniform(int value)
{
	return __shfl_sync(~0u, value, 0);
}

// ---- L2 eviction priority ----

DEVICE uint64_t policy_evict_first()
{
	uint64_t policy;
	asm volatile("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
	return policy;
}

DEVICE uint64_t policy_evict_last()
{
	uint64_t policy;
	asm volatile("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(policy));
	return policy;
}

// Takes evict_last back from a line of 128 bytes.
DEVICE void release_line(const void *line)
{
	asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(line) : "memory");
}

// Asks for a line of 128 bytes, so that whoever reads it soon finds it in L2.
DEVICE void prefetch_line(const void *line)
{
	asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
}

// ---- copies into shared memory ----

// A box of the tensor map at (0, row, chunk); `barrier` gets the bytes.
DEVICE void copy_box(
	uint32_t to, const CUtensorMap *map, uint32_t barrier, int row, int chunk, uint64_t policy)
{
	asm volatile(
		"cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
		".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
		"l"(map), "r"(barrier), "r"(0), "r"(row), "r"(chunk), "l"(policy)
		: "memory");
}

// 16 bytes; both sides aligned to 16.
DEVICE void copy_16(uint32_t to, const void *from)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// The same, but that only the first `bytes` are read and the others are zeros.
DEVICE void copy_16(uint32_t to, const void *from, int bytes, uint64_t policy)
{
	asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to),
		     "l"(from), "r"(bytes), "l"(policy)
		     : "memory");
}

DEVICE uint4 load_shared_16(uint32_t from)
{
	uint4 x;
	asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
		     : "r"(from)
		     : "memory");
	return x;
}

DEVICE void copy_commit()
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int groups> DEVICE void copy_wait()
{
	asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

// Makes this thread's writes to shared memory visible to the copy engine and the matrix products.
DEVICE void fence_async_proxy()
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

DEVICE void store_16(void *to, uint4 x, uint64_t policy)
{
	asm volatile("st.global.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to),
		     "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "l"(policy)
		     : "memory");
}

// ---- warpgroup matrix products: d[64 x N] += a[64 x 16] b[16 x N], both operands in shared memory
// ----

// An operand of rows of 128 bytes, swizzled in groups of eight rows (1024 bytes): the half of its
// descriptor that has the address, in units of 16 bytes.
DEVICE uint32_t matrix_descriptor(uint32_t address)
{
	return address >> 4 | 1u << 16;
}

DEVICE uint64_t whole_descriptor(uint32_t low)
{
	return (uint64_t)(1024 >> 4 | 1u << 30) << 32 | low;
}

DEVICE void matrix_fence()
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

DEVICE void matrix_commit()
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

DEVICE void matrix_wait()
{
	asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

#define QUAD(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])

// `keep` false starts from +0.
template <int N>
DEVICE void matrix_product(float (&d)[N / 8][4], uint32_t a, uint32_t b, bool keep);

template <> DEVICE void matrix_product<8>(float (&d)[1][4], uint32_t a, uint32_t b, bool keep)
{
	asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %6, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
		     "{%0,%1,%2,%3}, %4, %5, keep, 1, 1, 0, 0;\n}"
		     : QUAD(0)
		     : "l"(whole_descriptor(a)), "l"(whole_descriptor(b)), "r"((int)keep));
}

template <> DEVICE void matrix_product<16>(float (&d)[2][4], uint32_t a, uint32_t b, bool keep)
{
	asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %10, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
		     "{%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, keep, 1, 1, 0, 0;\n}"
		     : QUAD(0), QUAD(1)
		     : "l"(whole_descriptor(a)), "l"(whole_descriptor(b)), "r"((int)keep));
}

template <> DEVICE void matrix_product<32>(float (&d)[4][4], uint32_t a, uint32_t b, bool keep)
{
	asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %18, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
		     "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
		     "%16, %17, keep, 1, 1, 0, 0;\n}"
		     : QUAD(0), QUAD(1), QUAD(2), QUAD(3)
		     : "l"(whole_descriptor(a)), "l"(whole_descriptor(b)), "r"((int)keep));
}

template <> DEVICE void matrix_product<64>(float (&d)[8][4], uint32_t a, uint32_t b, bool keep)
{
	asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %34, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
		     "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
		     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
		     "%32, %33, keep, 1, 1, 0, 0;\n}"
		     : QUAD(0), QUAD(1), QUAD(2), QUAD(3), QUAD(4), QUAD(5), QUAD(6), QUAD(7)
		     : "l"(whole_descriptor(a)), "l"(whole_descriptor(b)), "r"((int)keep));
}

#undef QUAD

// ---- 8 x 8 matrices of 16-bit elements between shared memory and registers, transposed ----

DEVICE void load_transposed(uint32_t address, uint32_t &low, uint32_t &high)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
		     : "=r"(low), "=r"(high)
		     : "r"(address)
		     : "memory");
}

DEVICE void store_transposed(uint32_t address, uint32_t low, uint32_t high)
{
	asm volatile(
		"stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address),
		"r"(low), "r"(high)
		: "memory");
}

DEVICE uint32_t add_bf16x2(uint32_t a, uint32_t b)
{
	uint32_t r;
	asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
	return r;
}

DEVICE uint64_t global_time_ns()
{
	uint64_t ns;
	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
	return ns;
}
