// AVX2: 8 floats a register, and binary dot products by table.
//
// There is no instruction that counts bits here. `vpshufb` looks up 32 bytes in a table of 16, so:
//   1. n = popcount(x ^ w) is a sum over nibbles (4 bits) of x and w.
//   2. For one nibble x, popcount(x ^ w) as a function of w is a table of 16 numbers from 0 to 4.
//   3. With a nibble of 32 channels' weights in the bytes of a register, one `vpshufb` counts 4 bits of 32 channels: no xor, no
//      mask, no shift.
//   4. A table's byte has room for two such numbers, so one look-up serves two pixels: the low half of a byte counts for the
//      first, the high half for the second. Halves hold three look-ups (3 * 4 < 16), then they are taken apart.
// That is 10 instructions for 768 binary MACs; xor and popcount by nibbles take 24.
// So weights are stored a nibble a byte, [group of 32][nibble][32], and bits of a pair of pixels as offsets of their table,
// 16 * (first nibble + 16 * second nibble), two bytes each.
#pragma once

constexpr int lanes = 8;
typedef __m256 Floats;

BCNN_INLINE Floats load(const float* p) { return _mm256_loadu_ps(p); }
BCNN_INLINE void store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
BCNN_INLINE Floats broadcast(float v) { return _mm256_set1_ps(v); }
BCNN_INLINE Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
BCNN_INLINE Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
BCNN_INLINE Floats prelu(Floats v, Floats slope) { return _mm256_blendv_ps(v, _mm256_mul_ps(v, slope), v); }
BCNN_INLINE unsigned at_least(Floats x, Floats t) {
    return unsigned(_mm256_movemask_ps(_mm256_cmp_ps(x, t, _CMP_GE_OQ)));
}

struct alignas(64) Tables {
    uint8_t of[16][16][16];  // second nibble, first nibble, weights' nibble
    constexpr Tables() : of() {
        for (int i = 0; i < 4096; i++)
            for (int bit = 0; bit < 4; bit++) {
                const int second = i >> 8, first = i >> 4 & 15, weight = i & 15;
                of[second][first][weight] =
                    uint8_t(of[second][first][weight] + ((first ^ weight) >> bit & 1) + 16 * ((second ^ weight) >> bit & 1));
            }
    }
};
struct Offsets {
    uint32_t of[256];  // two nibbles, 16 bits each, times 16
    constexpr Offsets() : of() {
        for (uint32_t m = 0; m < 256; m++) of[m] = (m & 15) << 4 | (m >> 4) << 20;
    }
};
static constexpr Tables tables;
static constexpr Offsets offsets;

constexpr int together = 2;  // pixels that share a look-up
constexpr int group = 32, tile_pixels = 4, tile_groups = 2;
typedef uint8_t Narrow;  // counts fit a byte
typedef uint16_t Wide;
constexpr int narrow_limit = 252;
constexpr int put_bytes = 4;  // of bits that one register's comparison makes, for all pixels that are together

BCNN_INLINE size_t bits_bytes(int k) { return size_t((k + 7) / 8) * put_bytes; }
BCNN_INLINE int nibbles(int k) { return (k + 7) / 8 * 2; }
BCNN_INLINE size_t weight_bytes(int k) { return size_t(nibbles(k)) * group; }
BCNN_INLINE void put_bits(uint8_t* bits, const unsigned (&mask)[2]) {
    const uint32_t pair = offsets.of[mask[0]] | offsets.of[mask[1]] << 4;
    __builtin_memcpy(bits, &pair, 4);
}

// Wide counts are made from even and odd bytes; this order of channels in a group's bytes makes both come out in order.
BCNN_INLINE int byte_of(int channel, bool narrow) {
    return narrow ? channel : channel < 16 ? 2 * channel : 2 * (channel - 16) + 1;
}
static void pack_weight(const uint32_t* weight, int o, int k, uint8_t* out) {
    const int words = (k + 31) / 32, count = nibbles(k);
    const bool narrow = k <= narrow_limit;
    for (int c = 0; c < o; c++) {
        uint8_t* to = out + size_t(c / group) * weight_bytes(k) + byte_of(c % group, narrow);
        const uint32_t* from = weight + size_t(c) * words;
        for (int i = 0; i < count; i++) to[size_t(i) * group] = uint8_t(from[i / 8] >> (i % 8 * 4) & 15);
    }
}

BCNN_INLINE Floats counts(const Narrow* n) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)n)));
}
BCNN_INLINE Floats counts(const Wide* n) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)n)));
}

// In place: GCC 12 otherwise copies every sum once per round, which costs a fifth of the speed.
BCNN_INLINE __m256i add_to(__m256i sum, __m256i v) {
    asm("vpaddb %1, %0, %0" : "+x"(sum) : "x"(v));
    return sum;
}

// `count` (1 to 3) nibbles from nibble i on, for T / 2 pairs of pixels and G groups of channels.
template <int T, int G, int count>
BCNN_INLINE void look_up(const uint8_t* bits, size_t bytes, const uint8_t* w, size_t w_group, int i, __m256i (&sum)[T][G]) {
    const __m256i low = _mm256_set1_epi8(15);
    for (int t = 0; t < T; t += 2) {
        __m256i table[count];
        for (int j = 0; j < count; j++) {
            uint16_t offset;
            __builtin_memcpy(&offset, bits + t / 2 * bytes + 2 * (i + j), 2);
            table[j] = _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i*)(&tables.of[0][0][0] + offset)));
        }
        for (int g = 0; g < G; g++) {
            const __m256i* weights = (const __m256i*)(w + g * w_group) + i;
            __m256i halves = _mm256_shuffle_epi8(table[0], _mm256_load_si256(weights));
            for (int j = 1; j < count; j++)
                halves = _mm256_add_epi8(halves, _mm256_shuffle_epi8(table[j], _mm256_load_si256(weights + j)));
            sum[t][g] = add_to(sum[t][g], _mm256_and_si256(halves, low));
            sum[t + 1][g] = add_to(sum[t + 1][g], _mm256_and_si256(_mm256_srli_epi16(halves, 4), low));
        }
    }
}

template <int T, int G>
BCNN_INLINE void dot_bytes(const uint8_t* bits, size_t bytes, const uint8_t* w, size_t w_group, int begin, int end,
                           __m256i (&sum)[T][G]) {
    for (int t = 0; t < T; t++)
        for (int g = 0; g < G; g++) sum[t][g] = _mm256_setzero_si256();
    int i = begin;
    for (; i + 3 <= end; i += 3) look_up<T, G, 3>(bits, bytes, w, w_group, i, sum);
    if (i + 2 == end) look_up<T, G, 2>(bits, bytes, w, w_group, i, sum);
    if (i + 1 == end) look_up<T, G, 1>(bits, bytes, w, w_group, i, sum);
}

// n for T pixels and G groups of channels; `bytes` of bits of a pair of pixels; out [T][kPad]
template <int T, int G>
BCNN_INLINE void dot(const uint8_t* bits, size_t bytes, const uint8_t* w, size_t w_group, Narrow* out) {
    __m256i sum[T][G];
    dot_bytes<T, G>(bits, bytes, w, w_group, 0, int(w_group / group), sum);
    for (int t = 0; t < T; t++)
        for (int g = 0; g < G; g++) _mm256_store_si256((__m256i*)(out + t * kPad + g * group), sum[t][g]);
}
template <int T, int G>
BCNN_INLINE void dot(const uint8_t* bits, size_t bytes, const uint8_t* w, size_t w_group, Wide* out) {
    const int count = int(w_group / group);
    const int parts = (count + 62) / 63;                         // a byte holds 63 * 4 = 252
    const int part = ((count + parts - 1) / parts + 2) / 3 * 3;  // whole rounds of three
    for (int begin = 0; begin < count; begin += part) {
        __m256i sum[T][G];
        dot_bytes<T, G>(bits, bytes, w, w_group, begin, begin + part < count ? begin + part : count, sum);
        for (int t = 0; t < T; t++)
            for (int g = 0; g < G; g++) {
                __m256i* to = (__m256i*)(out + t * kPad + g * group);
                __m256i even = _mm256_and_si256(sum[t][g], _mm256_set1_epi16(255));
                __m256i odd = _mm256_srli_epi16(sum[t][g], 8);
                if (begin) {
                    even = _mm256_add_epi16(even, _mm256_load_si256(to));
                    odd = _mm256_add_epi16(odd, _mm256_load_si256(to + 1));
                }
                _mm256_store_si256(to, even);
                _mm256_store_si256(to + 1, odd);
            }
    }
}
