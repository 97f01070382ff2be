// AVX2: 8 floats a register, and binary dot products by table.
//
// There is no instruction that counts bits here. `vpshufb` looks up 32 bytes in a table of 16, so:
//   1. n = popcount(x ^ w) is a sum over nibbles (4 bits) of x and w.
//   2. For one nibble x, popcount(x ^ w) as a function of w is a table of 16 numbers from 0 to 4.
//   3. With a nibble of 32 channels' weights in the bytes of a register, one `vpshufb` counts 4 bits of 32 channels: no
//      xor, no mask, no shift.
//   4. A table's byte has room for two such numbers, so one look-up serves two pixels: the low half of a byte counts
//      for the first, the high half for the second. Halves hold three look-ups (3 * 4 < 16), then they are taken apart.
//   5. Low halves are masked and summed in bytes: L. For the high halves, two neighbouring bytes are shifted down as
//      one 16-bit number and summed unmasked. That sum is H0 + 16 L1 + 256 H1, where 0 and 1 are the bytes; L1 is known
//      in the end and taken off.
// That is 9 instructions for 768 binary MACs; xor and popcount by nibbles take 24. So weights are stored a nibble a
// byte, [group of 32][nibble][32], and bits of a pair of pixels as offsets of their table, 16 * (first nibble + 16 *
// second nibble), two bytes each.
#pragma once

constexpr int lanes = 8;
typedef __m256 Floats;

BCNN_INLINE Floats load(const float* p) { return _mm256_loadu_ps(p); }
BCNN_INLINE void store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
BCNN_INLINE Floats broadcast(float v) { return _mm256_set1_ps(v); }
BCNN_INLINE Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
BCNN_INLINE Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
// Keeps the order of the code: GCC 12 would put sums that are to interleave one after the other.
BCNN_INLINE Floats in_order(Floats v) {
    asm volatile("" : "+x"(v));
    return v;
}
BCNN_INLINE Floats prelu(Floats v, Floats slope) { return _mm256_blendv_ps(v, _mm256_mul_ps(v, slope), v); }
// PReLU as defined, for v that may be -0.0: `prelu` takes the sign bit for "less than zero", and differs there if the
// slope is negative.
BCNN_INLINE Floats exact_prelu(Floats v, Floats slope) {
    return _mm256_blendv_ps(v, _mm256_mul_ps(v, slope), _mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_LT_OQ));
}
BCNN_INLINE Floats if_less(Floats a, Floats b, Floats then, Floats otherwise) {  // a < b ? then : otherwise
    return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
BCNN_INLINE Floats larger(Floats a, Floats b) { return _mm256_max_ps(a, b); }  // a > b ? a : b, also of zeros
BCNN_INLINE Floats if_at_least(Floats a, Floats b, Floats then, Floats otherwise) {
    return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(a, b, _CMP_GE_OQ));
}
BCNN_INLINE unsigned at_least(Floats x, Floats t) {
    return unsigned(_mm256_movemask_ps(_mm256_cmp_ps(x, t, _CMP_GE_OQ)));
}

struct alignas(64) Tables {
    uint8_t of[16][16][16];  // second nibble, first nibble, weights' nibble
    constexpr Tables() : of() {
        for (int i = 0; i < 4096; i++)
            for (int bit = 0; bit < 4; bit++) {
                const int second = i >> 8, first = i >> 4 & 15, weight = i & 15;
                of[second][first][weight] = uint8_t(of[second][first][weight] + ((first ^ weight) >> bit & 1) +
                                                    16 * ((second ^ weight) >> bit & 1));
            }
    }
};
static constexpr Tables tables;

constexpr int together = 2;  // pixels that share a look-up
constexpr int group = 32, tile_pixels = 2, tile_groups = 4;
constexpr int finish_registers = 2;                 // of channels that `finish` makes at a time
constexpr int conv_pixels = 4, conv_registers = 2;  // a tile of a dense convolution: sums, weights and a value fit 16
typedef uint8_t Narrow;                             // counts fit a byte
typedef uint16_t Wide;
typedef Wide Counting;
constexpr int narrow_limit = 252;

BCNN_INLINE int nibbles(int k) { return (k + 15) / 16 * 4; }
BCNN_INLINE size_t bits_bytes(int k) { return size_t(nibbles(k)) * 2; }
BCNN_INLINE size_t weight_bytes(int k) { return size_t(nibbles(k)) * group; }

// sign_pack leaves the nibbles of every 64 channels (16 a round, `rounds` of them) in this order.
BCNN_INLINE int place(int nibble, int rounds) { return (nibble % 2 * 2 + nibble / 2 % 2) * rounds + nibble / 4; }

// x >= threshold of a block of pixels, as offsets of tables. An odd last pixel is paired with itself.
//   1. Comparisons of two pixels and two registers of channels, narrowed to bytes: eight bytes are four channels of the
//      first pixel and the same four of the second.
//   2. Each byte keeps one bit, 1 to 128, and `vpsadbw` adds the eight up: the number of the table, in 64 bits.
//   3. Shifts put four such numbers, times 16, side by side.
template <int rounds, bool pairs>  // pairs: the second register of a round is the first one's neighbour
static void sign_pack_64(const float* x, int pixels, const ptrdiff_t* at, const float* threshold, uint8_t* bits,
                         size_t bytes) {
    const __m256i bit = _mm256_set1_epi64x(int64_t(0x8040201008040201));
    Floats t[2 * rounds];
    for (int j = 0; j < 2 * rounds; j++) t[j] = load(threshold + j * lanes);
    for (int p = 0; p < pixels; p += 2, bits += bytes) {
        const float *a = x + size_t(p) * kLine, *b = p + 1 < pixels ? a + kLine : a;
        __m256i all = _mm256_setzero_si256();
        for (int r = 0; r < rounds; r++) {
            __m256i half[2];
            for (int h = 0; h < 2; h++) {
                const int j = 2 * r + h;
                const ptrdiff_t from = pairs ? at[2 * r] + h * lanes : at[j];
                half[h] = _mm256_packs_epi32(_mm256_castps_si256(_mm256_cmp_ps(t[j], load(a + from), _CMP_LE_OQ)),
                                             _mm256_castps_si256(_mm256_cmp_ps(t[j], load(b + from), _CMP_LE_OQ)));
            }
            const __m256i kept = _mm256_and_si256(_mm256_packs_epi16(half[0], half[1]), bit);
            const __m256i number = _mm256_sad_epu8(kept, _mm256_setzero_si256());
            all = _mm256_or_si256(all, _mm256_slli_epi64(number, 4 + 16 * r));
        }
        if (rounds == 4) {
            _mm256_storeu_si256((__m256i*)bits, all);
        } else if (rounds == 2) {
            const __m256i packed = _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
            _mm_storeu_si128((__m128i*)bits, _mm256_castsi256_si128(packed));
        } else {
            alignas(32) uint8_t spread[32];
            _mm256_store_si256((__m256i*)spread, all);
            for (int q = 0; q < 4; q++) __builtin_memcpy(bits + q * 2 * rounds, spread + 8 * q, 2 * rounds);
        }
    }
}

static void sign_pack(const float* x, int pixels, View v, const float* threshold, uint8_t* bits, size_t bytes) {
    const int vectors = int(bytes / 4);
    for (int j = 0, c = 0; j < vectors; j += 8) {
        ptrdiff_t at[8];
        bool pairs = true;
        for (int i = 0; i < 8; i++, c = wrapped(c + lanes, v.period)) {
            at[i] = place_of(v, c);
            pairs &= i % 2 == 0 || at[i] == at[i - 1] + lanes;
        }
        const int rounds = (vectors - j < 8 ? vectors - j : 8) / 2;
#define BCNN_PACK(ROUNDS) (pairs ? sign_pack_64<ROUNDS, true> : sign_pack_64<ROUNDS, false>)
        const auto pack = rounds == 4   ? BCNN_PACK(4)
                          : rounds == 3 ? BCNN_PACK(3)
                          : rounds == 2 ? BCNN_PACK(2)
                                        : BCNN_PACK(1);
#undef BCNN_PACK
        pack(x, pixels, at, threshold + j * lanes, bits + j * 4, bytes);
    }
}

// The ranks of a block of pixels (RankTable), as two offsets of 16 bits a pixel. An odd last pixel is paired with itself.
//   1. A comparison is 0 or -1: added up over registers of thresholds, -rank of four channels' even and odd replicas.
//   2. Two pixels are narrowed to one register, whose halves are added: -rank of four channels of both.
//   3. `vpmaddwd` multiplies by the steps from rank to rank and adds up the two channels of a table.
constexpr int rank_replicas = 16;  // two in each of 8 registers of thresholds
template <int registers>
static void rank_pack_of(const float* x, int pixels, const FloatRankTable& table, uint8_t* out) {
    const __m128i step = _mm_set1_epi32(int(uint32_t(-table.step[1]) << 16 | (uint32_t(-table.step[0]) & 0xFFFF)));
    Floats t[registers];
    for (int j = 0; j < registers; j++) t[j] = load(table.threshold + j * lanes);
    for (int p = 0; p < pixels; p += 2, x += 2 * kLine, out += 8) {
        const Floats a = _mm256_broadcast_ps((const __m128*)x);
        const Floats b = _mm256_broadcast_ps((const __m128*)(p + 1 < pixels ? x + kLine : x));
        __m256i of_a = _mm256_setzero_si256(), of_b = of_a;
        for (int j = 0; j < registers; j++) {
            of_a = _mm256_add_epi32(of_a, _mm256_castps_si256(_mm256_cmp_ps(a, t[j], _CMP_GE_OQ)));
            of_b = _mm256_add_epi32(of_b, _mm256_castps_si256(_mm256_cmp_ps(b, t[j], _CMP_GE_OQ)));
        }
        const __m256i both = _mm256_packs_epi32(of_a, of_b);
        const __m128i ranks = _mm_add_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
        const __m128i offsets = _mm_madd_epi16(ranks, step);
        _mm_storel_epi64((__m128i*)out, _mm_packus_epi32(offsets, offsets));
    }
}
static void rank_pack(const float* x, int pixels, const FloatRankTable& table, uint8_t* out) {
    (table.registers == 4 ? rank_pack_of<4> : rank_pack_of<8>)(x, pixels, table, out);
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
        for (int i = 0; i < count && i < words * 8; i++) {
            const int rounds = count - i / 16 * 16 < 16 ? count % 16 / 4 : 4;
            to[size_t(i / 16 * 16 + place(i % 16, rounds)) * group] = uint8_t(from[i / 8] >> (i % 8 * 4) & 15);
        }
    }
}

// Bits of two pixels that are already words, as offsets of tables. Of every four words first the low nibbles of all
// bytes, then the high ones: no shuffle. Writes up to 32 bytes more, reads up to 12.
BCNN_INLINE void spread_words(const uint32_t* one, const uint32_t* other, int words, uint8_t* bits) {
    const __m128i low = _mm_set1_epi8(15);
    for (int i = 0; i < words; i += 4) {
        const int left = words - i < 4 ? words - i : 4;
        const __m128i a = _mm_loadu_si128((const __m128i*)(one + i)), b = _mm_loadu_si128((const __m128i*)(other + i));
        const __m128i lows = _mm_or_si128(_mm_and_si128(a, low), _mm_slli_epi16(_mm_and_si128(b, low), 4));
        const __m128i highs = _mm_or_si128(_mm_and_si128(_mm_srli_epi16(a, 4), low), _mm_andnot_si128(low, b));
        _mm256_storeu_si256((__m256i*)bits, _mm256_slli_epi16(_mm256_cvtepu8_epi16(lows), 4));
        _mm256_storeu_si256((__m256i*)(bits + 8 * left), _mm256_slli_epi16(_mm256_cvtepu8_epi16(highs), 4));
        bits += 16 * left;
    }
}
static void pack_taps(const uint32_t* weight, int o, int words, bool narrow, uint8_t* out) {
    for (int c = 0; c < o; c++) {
        uint8_t* to = out + size_t(c / group) * weight_bytes(32 * words) + byte_of(c % group, narrow);
        const uint8_t* from = (const uint8_t*)(weight + size_t(c) * size_t(words));
        for (int i = 0; i < 4 * words; i++) {
            const int left = words - i / 16 * 4 < 4 ? words - i / 16 * 4 : 4, at = i / 16 * 32 + i % 16;
            to[size_t(at) * group] = from[i] & 15;
            to[size_t(at + 4 * left) * group] = from[i] >> 4;
        }
    }
}

BCNN_INLINE Floats counts(const Narrow* n) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)n)));
}
BCNN_INLINE Floats counts(const Wide* n) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)n)));
}

// In place: GCC 12 otherwise copies every sum once per round, which costs a fifth of the speed.
BCNN_INLINE __m256i add_bytes(__m256i sum, __m256i v) {
    asm("vpaddb %1, %0, %0" : "+x"(sum) : "x"(v));
    return sum;
}
BCNN_INLINE __m256i keep(__m256i v) {
    asm("" : "+x"(v));
    return v;
}
BCNN_INLINE __m256i add_words(__m256i sum, __m256i v) {
    asm("vpaddw %1, %0, %0" : "+x"(sum) : "x"(v));
    return sum;
}

// `count` (1 to 3) nibbles from nibble i on, for T / 2 pairs of pixels and G groups of channels. `first`: sums begin.
template <int T, int G, int count, bool first = false>
BCNN_INLINE void look_up(const uint8_t* bits, size_t bytes, const uint8_t* w, size_t w_group, int i,
                         __m256i (&sum)[T][G]) {
    const __m256i low = _mm256_set1_epi8(15);
    __m256i halves[T / 2][G];
    for (int j = 0; j < count; j++) {
        __m256i weights[G];
        for (int g = 0; g < G; g++) weights[g] = _mm256_load_si256((const __m256i*)(w + g * w_group) + i + j);
        for (int t = 0; t < T / 2; t++) {
            uint16_t offset;
            __builtin_memcpy(&offset, bits + t * bytes + 2 * (i + j), 2);
            const __m256i table =
                _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i*)(&tables.of[0][0][0] + offset)));
            for (int g = 0; g < G; g++) {
                const __m256i found = _mm256_shuffle_epi8(table, weights[g]);
                halves[t][g] = j ? add_bytes(halves[t][g], found) : found;
            }
        }
    }
    for (int t = 0; t < T; t += 2)
        for (int g = 0; g < G; g++) {
            const __m256i of_first = _mm256_and_si256(halves[t / 2][g], low);
            const __m256i of_second = _mm256_srli_epi16(halves[t / 2][g], 4);
            sum[t][g] = first ? of_first : add_bytes(sum[t][g], of_first);
            sum[t + 1][g] = first ? of_second : add_words(sum[t + 1][g], of_second);
        }
}

template <int T, int G>
BCNN_INLINE void dot_bytes(const uint8_t* bits, size_t bytes, const uint8_t* w, size_t w_group, int begin, int end,
                           __m256i (&sum)[T][G]) {
    look_up<T, G, 3, true>(bits, bytes, w, w_group, begin, sum);  // there are at least four
    int i = begin + 3;
    for (; i + 3 <= end; i += 3) look_up<T, G, 3>(bits, bytes, w, w_group, i, sum);
    if (i + 2 == end) look_up<T, G, 2>(bits, bytes, w, w_group, i, sum);
    if (i + 1 == end) look_up<T, G, 1>(bits, bytes, w, w_group, i, sum);
    for (int t = 0; t < T; t += 2)
        for (int g = 0; g < G; g++) {
            const __m256i from_odd = _mm256_and_si256(_mm256_srli_epi16(sum[t][g], 4), _mm256_set1_epi16(0x0FF0));
            sum[t + 1][g] = _mm256_sub_epi16(sum[t + 1][g], from_odd);
        }
}

// n for T pixels and G groups of channels; `bytes` of bits of a pair of pixels; out [T][next]
template <int T, int G>
BCNN_INLINE void dot(const uint8_t* bits, size_t bytes, const uint8_t* w, size_t w_group, Narrow* out, int next) {
    __m256i sum[T][G];
    dot_bytes<T, G>(bits, bytes, w, w_group, 0, int(w_group / group), sum);
    for (int t = 0; t < T; t++)
        for (int g = 0; g < G; g++) _mm256_store_si256((__m256i*)(out + t * next + g * group), sum[t][g]);
}
// The same for nibbles from `begin` to `end`, added to what those before `begin` have counted.
template <int T, int G>
BCNN_INLINE void dot_part(const uint8_t* bits, size_t bytes, const uint8_t* w, size_t w_group, int begin, int end,
                          Wide* out, int next) {
    __m256i sum[T][G];
    dot_bytes<T, G>(bits, bytes, w, w_group, begin, end, sum);
    for (int t = 0; t < T; t++)
        for (int g = 0; g < G; g++) {
            __m256i* to = (__m256i*)(out + t * next + g * group);
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
// `dots` of binary.inl for counts that outgrow a byte: a part of the dots of all pixels, then the next part, so that the
// weights of a part stay in the first level cache. A byte holds the counts of 21 rounds of three nibbles, 63 * 4 = 252.
template <int G>
BCNN_NOINLINE void dots(const uint8_t* bits, size_t bytes, int pixels, const uint8_t* w, size_t w_group, Wide* n,
                        int next) {
    constexpr int T = tile_pixels * tile_groups / G;
    const int count = int(w_group / group), rounds = (count + 2) / 3, parts = (rounds + 20) / 21;
    for (int i = 0; i < parts; i++) {
        const int begin = rounds * i / parts * 3, end = i + 1 < parts ? rounds * (i + 1) / parts * 3 : count;
        int p = 0;
        for (; p + T <= pixels; p += T)
            dot_part<T, G>(bits + p / 2 * bytes, bytes, w, w_group, begin, end, n + p * next, next);
        for (; p < pixels; p += 2)
            dot_part<2, G>(bits + p / 2 * bytes, bytes, w, w_group, begin, end, n + p * next, next);
    }
}

// For popcount_peak: the bits of a byte are those of its two nibbles. `hidden`: the compiler must take it for a new
// value.
typedef __m256i Bits;
BCNN_INLINE Bits bits_of(uint32_t word) { return _mm256_set1_epi32(int(word)); }
BCNN_INLINE Bits count_differing(Bits sum, Bits x, Bits w) {
    const __m256i table = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1, 2, 1, 2, 2, 3, 1, 2,
                                           2, 3, 2, 3, 3, 4);
    const __m256i low = _mm256_set1_epi8(15), differ = _mm256_xor_si256(x, w);
    const __m256i first = _mm256_shuffle_epi8(table, _mm256_and_si256(differ, low));
    const __m256i second = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(differ, 4), low));
    return add_bytes(sum, _mm256_add_epi8(first, second));
}
BCNN_INLINE Bits hidden(Bits v) {
    asm volatile("" : "+x"(v));
    return v;
}
