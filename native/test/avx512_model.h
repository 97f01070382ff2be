// The AVX-512 instructions that simd/avx512.h uses, as plain loops, after the instruction set's manual. With it the AVX-512 kernels,
// sixteen channels a register, are tested on machines that cannot run them (native/test/run.sh avx512).
#pragma once
#include <cstdint>
#include <cstring>

struct __m512 {
    float v[16];
};
struct __m512i {
    uint32_t v[16];
};
using __mmask16 = uint16_t;
enum { _CMP_LT_OQ = 0x11, _CMP_GE_OQ = 0x1D };

#define MODEL static inline
#define EACH for (int i = 0; i < 16; i++)

template <class T>
MODEL T model_load(const void* p) {
    T r;
    std::memcpy(&r, p, sizeof r);
    return r;
}
MODEL __m512 _mm512_loadu_ps(const void* p) { return model_load<__m512>(p); }
MODEL __m512i _mm512_loadu_si512(const void* p) { return model_load<__m512i>(p); }
MODEL __m512i _mm512_load_si512(const void* p) { return uintptr_t(p) % 64 ? __builtin_trap(), __m512i() : model_load<__m512i>(p); }
MODEL void _mm512_storeu_ps(void* p, __m512 a) { std::memcpy(p, &a, sizeof a); }
MODEL void _mm512_store_si512(void* p, __m512i a) {
    if (uintptr_t(p) % 64) __builtin_trap();
    std::memcpy(p, &a, sizeof a);
}
MODEL __m512 _mm512_set1_ps(float a) {
    __m512 r;
    EACH r.v[i] = a;
    return r;
}
MODEL __m512i _mm512_set1_epi32(int a) {
    __m512i r;
    EACH r.v[i] = uint32_t(a);
    return r;
}
MODEL __m512 _mm512_setzero_ps() { return _mm512_set1_ps(0); }
MODEL __m512i _mm512_setzero_si512() { return _mm512_set1_epi32(0); }
MODEL __m512 _mm512_add_ps(__m512 a, __m512 b) {
    EACH a.v[i] += b.v[i];
    return a;
}
MODEL __m512 _mm512_mul_ps(__m512 a, __m512 b) {
    EACH a.v[i] *= b.v[i];
    return a;
}
MODEL __m512 _mm512_mask_mul_ps(__m512 source, __mmask16 mask, __m512 a, __m512 b) {
    EACH if (mask >> i & 1) source.v[i] = a.v[i] * b.v[i];
    return source;
}
MODEL __mmask16 _mm512_cmp_ps_mask(__m512 a, __m512 b, int predicate) {
    unsigned mask = 0;
    EACH mask |= unsigned(predicate == _CMP_LT_OQ ? a.v[i] < b.v[i] : a.v[i] >= b.v[i]) << i;
    return __mmask16(mask);
}
MODEL __m512i _mm512_xor_si512(__m512i a, __m512i b) {
    EACH a.v[i] ^= b.v[i];
    return a;
}
MODEL __m512i _mm512_add_epi32(__m512i a, __m512i b) {
    EACH a.v[i] += b.v[i];
    return a;
}
MODEL __m512i _mm512_popcnt_epi32(__m512i a) {
    EACH a.v[i] = uint32_t(__builtin_popcount(a.v[i]));
    return a;
}
MODEL __m512 _mm512_cvtepi32_ps(__m512i a) {
    __m512 r;
    EACH r.v[i] = float(int32_t(a.v[i]));
    return r;
}
#undef EACH
#undef MODEL
