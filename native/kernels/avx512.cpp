// The kernels for avx512.
#if defined(__x86_64__)
#include "kernels/kernels.h"

#if defined( \
    BCNN_EMULATE_AVX512)  // every intrinsic in plain C++, to test on machines that lack them: native/test/run.sh avx512
#define SIMDE_NO_NATIVE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#define __m512 simde__m512
#define __m512i simde__m512i
static simde__m512 _mm512_cvtepi32_ps(simde__m512i v) {  // this and the next SIMDe 0.7 lacks
    simde__m512i_private from = simde__m512i_to_private(v);
    simde__m512_private to;
    for (int i = 0; i < 16; i++) to.f32[i] = float(from.i32[i]);
    return simde__m512_from_private(to);
}
static simde__m512i _mm512_srav_epi32(simde__m512i v, simde__m512i by) {
    simde__m512i_private from = simde__m512i_to_private(v), bits = simde__m512i_to_private(by), to;
    for (int i = 0; i < 16; i++) to.i32[i] = from.i32[i] >> bits.i32[i];
    return simde__m512i_from_private(to);
}
#undef _mm512_madd_epi16  // SIMDe 0.7 takes it for another one, with four arguments
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
#else
#include <immintrin.h>
// A target region instead of a compiler flag: only what follows may use these instructions.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,avx512f,avx512bw,avx512vl,avx512vpopcntdq"))), \
                             apply_to = function)
#else
#pragma GCC target("avx2,avx512f,avx512bw,avx512vl,avx512vpopcntdq")
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12 warns of what its own intrinsics leave undefined
#endif
#endif

namespace bcnn {
namespace avx512 {
#include "../simd/avx512.h"
#include "../simd/avx512_shorts.h"

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
}  // namespace avx512
BCNN_KERNELS(avx512)
void choose_avx512_counting(const char* way) { avx512::choose_counting(way); }
}  // namespace bcnn

#if defined(__clang__) && !defined(BCNN_EMULATE_AVX512)
#pragma clang attribute pop
#endif
#endif
