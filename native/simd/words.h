// Bits of a map in 32-bit words, bit c % 32 of word c // 32, and weights [group of channels][word][channel]: for
// instruction sets that count the bits of a word or of its bytes. Included after `lanes`, `group` and the primitives.
#pragma once

constexpr int together = 1;  // pixels whose bits are packed together
typedef uint32_t Narrow;
typedef uint32_t Wide;
constexpr int narrow_limit = 0;

BCNN_INLINE size_t bits_bytes(int k) { return size_t((k + 31) / 32) * 4; }
BCNN_INLINE size_t weight_bytes(int k) { return bits_bytes(k) * group; }
static void pack_weight(const uint32_t* weight, int o, int k, uint8_t* out) { pack_words(weight, o, k, group, out); }

static void pack_taps(const uint32_t* weight, int o, int words, bool, uint8_t* out) {
    pack_words(weight, o, 32 * words, group, out);
}
// 0: no table for the replicas of an image. Its rows are bytes, and counts here are words: `finish` would have to read both.
constexpr int rank_replicas = 0;
BCNN_INLINE void rank_pack(const float*, int, const FloatRankTable&, uint8_t*) {}
BCNN_INLINE void spread_words(const uint32_t*, const uint32_t*, int, uint8_t*) {}  // words are what `dot` reads

static void sign_words(const float* x, View v, int pixels, const float* threshold, int words, uint32_t* out);
static void sign_pack(const float* x, int pixels, View v, const float* threshold, uint8_t* bits, size_t bytes) {
    sign_words(x, v, pixels, threshold, int(bytes / 4), (uint32_t*)bits);
}
