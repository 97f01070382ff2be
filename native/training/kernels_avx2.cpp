// The training kernels for AVX2 and FMA.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdlib>

#include "kernels.h"
#include "parallel.h"

// A target region instead of a compiler flag: only what follows may use these instructions.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif

#define BCNN_TRAINING_AVX2
namespace bcnn::training {
namespace avx2 {
#include "kernels.inl"
}  // namespace avx2
BCNN_TRAINING_KERNELS(avx2)
}  // namespace bcnn::training

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
