// The kernels for neon.
#if defined(__aarch64__)
#include <arm_neon.h>

#include "kernels.h"

namespace bcnn {
namespace neon {
#include "simd/neon.h"

#include "kernels.inl"
}  // namespace neon
BCNN_KERNELS(neon)
}  // namespace bcnn
#endif
