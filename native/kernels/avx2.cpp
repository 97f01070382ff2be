// The kernels for avx2.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/kernels.h"

// A target region instead of a compiler flag: only what follows may use these instructions.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif

namespace bcnn {
namespace avx2 {
#include "../simd/avx2.h"
#include "../simd/avx2_shorts.h"

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
}  // namespace avx2
BCNN_KERNELS(avx2)
}  // namespace bcnn

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
