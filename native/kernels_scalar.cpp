// The kernels for scalar.

#include "kernels.h"

namespace bcnn {
namespace scalar {
#include "simd/scalar.h"

#include "kernels.inl"
}  // namespace scalar
BCNN_KERNELS(scalar)
}  // namespace bcnn
