// The kernels for avx512.
#if defined(__x86_64__)
#if defined(BCNN_MODEL_AVX512)  // a test without the processor, see test/avx512_model.h
#include "test/avx512_model.h"
#else
#include <immintrin.h>
#endif

#include "kernels.h"

// A target region instead of a compiler flag: only what follows may use these instructions.
#if defined(BCNN_MODEL_AVX512)
#elif defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,avx512f,avx512bw,avx512vl,avx512vpopcntdq"))), apply_to = function)
#else
#pragma GCC target("avx2,avx512f,avx512bw,avx512vl,avx512vpopcntdq")
#endif

namespace bcnn {
namespace avx512 {
#include "simd/avx512.h"

#include "kernels.inl"
}  // namespace avx512
BCNN_KERNELS(avx512)
}  // namespace bcnn

#if defined(__clang__) && !defined(BCNN_MODEL_AVX512)
#pragma clang attribute pop
#endif
#endif
