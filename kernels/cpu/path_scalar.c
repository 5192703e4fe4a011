/* No vector code of its own: every bias comes from the reference. For processors without the
 * others, and for tests. */
#include "kernels/cpu/loops.h"

const struct path path_scalar = {
	.name = "scalar",
	.mix = mix,
	.multiply = multiply,
	.bound = bound,
};
