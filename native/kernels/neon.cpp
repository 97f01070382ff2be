// The kernels for neon.
#if defined(__aarch64__)
#include <arm_neon.h>

#include "kernels/kernels.h"

namespace bcnn {
namespace neon {
#include "../simd/neon.h"
#include "../simd/neon_shorts.h"

#include "binary.inl"
#include "endings.inl"
#include "peak.inl"
#include "real.inl"

#include "fixed_numbers.inl"

#include "fixed_binary.inl"
#include "fixed_endings.inl"
#include "fixed_real.inl"
#include "pools.inl"
#include "table.inl"
}  // namespace neon
BCNN_KERNELS(neon)
}  // namespace bcnn
#endif
