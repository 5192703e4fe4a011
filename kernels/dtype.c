#include "kernels/dtype.h"

#include <string.h>

static const struct {
	const char *name;
	enum tensor_dtype dtype;
	unsigned bits;
} dtypes[] = {
	{"BF16", DTYPE_BF16, 16},
	{"F32", DTYPE_F32, 32},
	{"I32", DTYPE_I32, 32},
	{"I64", DTYPE_I64, 64},
	{"F16", DTYPE_OTHER, 16},
	{"F64", DTYPE_OTHER, 64},
	{"C64", DTYPE_OTHER, 64},
	{"BOOL", DTYPE_OTHER, 8},
	{"U8", DTYPE_OTHER, 8},
	{"I8", DTYPE_OTHER, 8},
	{"U16", DTYPE_OTHER, 16},
	{"I16", DTYPE_OTHER, 16},
	{"U32", DTYPE_OTHER, 32},
	{"U64", DTYPE_OTHER, 64},
	{"F8_E4M3", DTYPE_OTHER, 8},
	{"F8_E5M2", DTYPE_OTHER, 8},
	{"F8_E8M0", DTYPE_OTHER, 8},
	{"F6_E2M3", DTYPE_OTHER, 6},
	{"F6_E3M2", DTYPE_OTHER, 6},
	{"F4", DTYPE_OTHER, 4},
};

unsigned dtype_bits(const char *name, enum tensor_dtype *ret_dtype)
{
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
		if (strcmp(dtypes[i].name, name) == 0) {
			*ret_dtype = dtypes[i].dtype;
			return dtypes[i].bits;
		}
	}
	*ret_dtype = DTYPE_OTHER;
	return 0;
}

bool dtype_shape_bytes(const uint64_t *shape, unsigned count, unsigned bits, uint64_t *ret_bytes)
{
	uint64_t product = bits;

	for (unsigned i = 0; i < count; i++)
		if (__builtin_mul_overflow(product, shape[i], &product))
			return false;
	if (product % 8 != 0)
		return false;
	*ret_bytes = product / 8;
	return true;
}
