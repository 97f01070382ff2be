// The kernels for scalar.

#include "kernels/kernels.h"

namespace bcnn {
namespace scalar {
#include "../simd/scalar.h"
#include "../simd/scalar_shorts.h"

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
}  // namespace scalar
BCNN_KERNELS(scalar)
}  // namespace bcnn
