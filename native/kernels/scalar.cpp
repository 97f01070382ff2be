// The kernels for scalar.

#include "kernels/kernels.h"

namespace bcnn {
namespace scalar {
#include "../simd/scalar.h"

#include "binary.inl"
#include "endings.inl"
#include "peak.inl"
#include "real.inl"
#include "table.inl"
}  // namespace scalar
BCNN_KERNELS(scalar)
}  // namespace bcnn
