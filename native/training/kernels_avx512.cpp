// The training kernels for AVX-512: F, BW and VL.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdlib>

#include "kernels.h"
#include "parallel.h"

// A target region instead of a compiler flag: only what follows may use these instructions.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512vl,prefer-vector-width=512")
#endif

#define BCNN_TRAINING_AVX2
#define BCNN_TRAINING_AVX512
namespace bcnn::training {
namespace avx512 {
#include "kernels.inl"
}  // namespace avx512
BCNN_TRAINING_KERNELS(avx512)
}  // namespace bcnn::training

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
