// What an instruction set offers the engine: a table of functions over plain pointers, one table per instruction set.
// The functions are written once, in kernels.inl, over the primitives in simd/*.h.
//
// Maps are [C / kLine][rows][W][kLine]: channels in blocks of a cache line. Every kernel works on one or two registers of
// channels at a time and walks along a row, so it walks along memory. Arrays of parameters are padded to 64 channels.
#pragma once
#include <cstddef>
#include <cstdint>

#define BCNN_INLINE static inline __attribute__((always_inline))
#define BCNN_NOINLINE static __attribute__((noinline))

namespace bcnn {

constexpr int kLine = 16;   // floats of a cache line
constexpr int kPad = 64;    // parameter arrays are padded to this many channels: four registers of the widest instruction set
constexpr int kBlock = 56;  // pixels whose bits are made at a time, or half of them; divides 224, 112, 56 and 28 x 28
constexpr int kBranches = 4;  // branches whose bits are held at a time

struct View {      // how a map is read
    int period;    // replication: channel k is read at k mod period
    size_t block;  // floats from one block of channels to the next
};
// From a pixel to its channel c < period.
BCNN_INLINE ptrdiff_t place_of(View v, int c) { return ptrdiff_t(size_t(c / kLine) * v.block) + c % kLine; }
BCNN_INLINE int wrapped(int c, int period) { return c == period ? 0 : c; }

struct BranchData {
    const float* threshold;  // NaN past K: those bits are 0, like the weights there
    const uint8_t* weight;   // as Kernels::pack_weight lays it out
    const float *scale, *offset;
    int dx;
};

struct BinaryConvData {
    int k, o, branches, width;
    const BranchData* branch;
    const float* slope;  // or none
    bool identity, prelu_after_add, shifted;
    size_t weight_group;  // bytes of weights of one group of channels
    size_t bits;          // bytes of bits of one pixel, or of the pixels that are packed together
};

struct BinaryConvStep {  // pixels that are neighbours in memory; a row of the map if the op is shifted
    const float *x, *add;
    float* out;
    View x_view, add_view, out_view;
    const float* const* rows;  // shifted: per branch the start of the row read, or none if outside the map
    const float* zeros;        // shifted: a pixel of zeros, to be read like one of x
    int pixels;
    int channel_begin, channel_end;  // multiples of kPad, or the end
    uint8_t* scratch;
};

struct DepthwiseData {
    int k, width, stride;  // width and stride of the map read and the step over it
    const float *weight, *offset, *slope;  // weight [K / lanes, 9, lanes]
};

struct Kernels {
    const char* name;
    int lanes;
    size_t (*bits_bytes)(int k);                 // BinaryConvData::bits
    size_t (*weight_bytes)(int k);               // of one group of channels
    int group;                                   // channels of a weight group
    size_t (*scratch_bytes)(int k);              // a BinaryConvStep needs
    void (*pack_weight)(const uint32_t* weight, int o, int k, uint8_t* out);
    void (*binary_conv)(const BinaryConvData&, const BinaryConvStep&);
    // `height` rows of `width` pixels; row y is made from rows[y S] to rows[y S + 2], which are none outside the map
    void (*depthwise)(const DepthwiseData&, const float* const* rows, View x, float* out, View out_view, int width, int height);
    // rows: the S rows read
    void (*avg_pool)(const float* const* rows, int s, View x, int channels, float* out, View out_view, int width);
    void (*global_avg_pool)(const float* x, int pixels, View v, int channel_begin, int channel_end, float* out);
    // weight [O / kPad, C, kPad]
    void (*linear)(const float* x, int channels, const float* weight, const float* bias, int begin, int end, float* out);
    // For the benchmark, binary MACs of `repeats` rounds: of the innermost loop on data in L1 (first with 0), and of xor,
    // popcount and add on registers alone.
    double (*dot_peak)(int repeats, uint8_t* scratch);
    double (*popcount_peak)(int repeats);
};

extern const Kernels scalar_kernels, avx2_kernels, avx512_kernels, neon_kernels;

// Weights [O, words] to [group of `lanes` channels][word][lane]: the layout of every instruction set that counts bits in words.
void pack_words(const uint32_t* weight, int o, int k, int lanes, uint8_t* out);

// Built into this binary, in order of preference, and whether this machine can run them.
struct Isa {
    const Kernels* kernels;
    bool supported;
};
extern const Isa* isas();  // ends with a null `kernels`

}  // namespace bcnn
