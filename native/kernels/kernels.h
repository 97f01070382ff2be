// What an instruction set offers the ops: a table of functions over plain pointers, one table per instruction set. The
// functions are written once, in binary.inl, real.inl, endings.inl, pools.inl and fixed*.inl, over the primitives in simd/*.h.
//
// Maps are [C / line][rows][W][line]: channels in blocks of a cache line, of 16 floats or, in programs of integers, 32
// int16. Every kernel works on one or two registers of channels at a time and walks along a row, so it walks along memory. Arrays of parameters are padded to
// 64 channels. Bit maps are [rows][W][words]: the bits of a pixel are neighbours, group by group. Legend: K channels
// read (after replication), O made, C of the map read, T taps, G groups.
#pragma once
#include <cstddef>
#include <cstdint>

#define BCNN_INLINE static inline __attribute__((always_inline))
#define BCNN_NOINLINE static __attribute__((noinline))

namespace bcnn {

constexpr int kLine = 16;       // floats of a cache line
constexpr int kShortLine = 32;  // int16 of one
template <class Value>
constexpr int line_of = int(64 / sizeof(Value));
constexpr int kPad =
    64;  // parameter arrays are padded to this many channels: four registers of the widest instruction set
constexpr int kBlock = 56;  // pixels whose bits are made at a time, or a part of them; divides 224, 112, 56 and 28 x 28
constexpr int kBranches = 4;  // branches whose bits are held at a time
constexpr int kSlack = 64;    // bytes behind bits and words that copies in whole registers may touch

struct View {      // how a map of values is read
    int period;    // replication: channel k is read at k mod period
    size_t block;  // values from one block of channels to the next
};
// From a pixel to its channel c < period.
template <class Value = float>
BCNN_INLINE ptrdiff_t place_of(View v, int c) {
    return ptrdiff_t(size_t(c / line_of<Value>) * v.block) + c % line_of<Value>;
}
BCNN_INLINE int wrapped(int c, int period) { return c == period ? 0 : c; }

// --- binary convolution ----------------------------------------------------------------------------------------------

enum End { add_first = 1, prelu_first = 2, add_second = 4, prelu_second = 8 };  // endings in registers, in this order

// The counts of a map of up to four channels whose replicas are read, as that of an image. However many replicas compare
// a value with their limits, the outcome is how many limits it has reached, its rank: so are their bits, and what they
// add to the counts of all channels made. Two channels of the map are one table.
struct RankTable {
    const uint8_t* rows[2];  // [ranks of two channels][O padded], in the order of Narrow counts
};
// Ranks of floats are counted.
struct FloatRankTable : RankTable {
    const float* threshold;  // [registers][8]: of four channels, and of their next replicas; NaN where there is none
    int registers;           // 4 or 8
    int step[2];             // bytes from the row of a rank to the next, of the first and second channel of a table
};

struct BranchData {
    const float*
        threshold;  // [K]; NaN past K: those bits are 0, like the weights there. 1x1 only: others read a bit map
    const uint8_t* weight;  // as pack_weight or pack_taps lays it out, or plain words
    const float *scale, *offset;
    // Zero padding: what is added to the counts, [row class][column class][O padded]; or none.
    const float* correction;
    const FloatRankTable* table;  // or none
};

struct Gather {                                         // taps of a binary k x k convolution over a bit map
    int kernel_height, kernel_width, stride, dilation;  // the last two along a row
    int width, out_width;                               // of the map read, of the map made
    int words;                                          // of one group of a pixel
    int groups;
};

struct DotsData {         // of any binary convolution
    int k, o, branches;   // k: bits of a dot, rounded up to words if there are taps
    bool narrow;          // counts fit a Narrow
    bool plain;           // counted word by word: groups that are no multiple of kPad channels
    int block;            // pixels at a time
    int counted;          // channels at a time, lines of them: from a pixel's counts to the next one's
    size_t weight_group;  // bytes of weights of one group of kernel channels
    size_t bits;          // bytes of bits of one pixel, or of the pixels that are packed together
    Gather gather;        // all ones but for taps
};

struct BinaryConvData : DotsData {
    int end;  // which of End follow
    const BranchData* branch;
    const float* slope[2];
};

struct BitRows {                  // where a branch of a k x k convolution reads, for the rows of one step
    const uint32_t* const* rows;  // [row made][kernel row], none outside the map
    const uint32_t* pad;          // a pixel outside the map
    int left;                     // tap 0 of column 0 reads column -left
    // Zero padding: which taps are missing, by [row made] and [column], or none; 0: nothing is.
    const uint16_t *row_class, *column_class;
    int column_classes;
};

struct BinaryConvStep {  // pixels that are neighbours in memory
    const float* x;      // 1x1
    View x_view;
    const BitRows* taps;  // k x k: by branch
    const float* add[2];
    View add_view[2];
    float* out;
    View out_view;
    int pixels;
    int channel_begin, channel_end;  // multiples of kPad, or the end
    uint8_t* scratch;
};

// --- real ops --------------------------------------------------------------------------------------------------------

struct DepthwiseData {
    int k, width, stride;                  // width and stride of the map read and the step over it
    const float *weight, *offset, *slope;  // weight [K / lanes, 9, lanes]
};

struct TapsData {  // of any real convolution: taps along a row; the caller hands over the rows
    int kernel_height, kernel_width, stride, dilation, left;
    int channels, width, out_width;  // C and width of the map read
    int k, o, groups;
    // A dense one first lays what a block of output pixels reads side by side: [kernel_height][columns][K / G].
    int block, step, columns;  // pixels; columns from one of them to the next; columns of a block
};

struct ConvData : TapsData {
    // Depth wise [O / lanes, T, lanes]; dense [O / (registers * lanes), T, K / G, registers * lanes]; else [T, K / G, O]
    const float* weight;
    const float* offset;
};
enum class ConvKind {
    depthwise,
    dense,
    grouped,
    scattered
};  // grouped: dense, and a register of channels lies in one group

struct PoolData {
    int kernel_height, kernel_width, stride, dilation, left, width, out_width;
    bool max;
    bool inside;  // averages count only the taps on the map
};

// --- endings ---------------------------------------------------------------------------------------------------------

enum class EndingKind { add, gate, affine, prelu, relu, clip, sign };

struct EndingData {
    EndingKind kind;
    const float *a, *b;  // scale and offset, slope, threshold, or the limits; padded
};

struct EndingStep {
    float* v;  // a row
    View view;
    int pixels, channel_begin, channel_end;
    const float* other;  // add, gate: the row of the other map
    View other_view;
    int other_step;      // floats from a pixel to the next: 0 for a map of one column
    bool other_channel;  // it has one channel
};

// --- programs of integers: the same on int16 maps, as bcnn/program/ops defines them ------------------------------------

// What a kernel does in registers after the sums. A bound comes with a shift up, which may be by 0: bounded values are
// shifted without saturating.
struct FixedEnd {
    int adds;   // maps added first, 0 to 2
    int prelu;  // 0: none, 1: with up = 0, 2: with a shift
    int then;   // after at most one map and a PReLU; 0: nothing, 1: bound and shift, 2: another map is added
    // Where formats of maps differ, for one map and a PReLU of kind 2. 3: shifts before and after all that, saturating; of
    // more than one branch only after. 4: a shift before, then as 1, of one branch.
    int first_up, bend_up, shift_up;
    const int16_t *bend, *limit;
};

// Ranks of integers are looked up.
struct FixedRankTable : RankTable {
    const uint16_t* offset[4];  // by channel and value, which is at most a bound: bytes from a row of the table
};

struct FixedBranchData {
    const int16_t* above;  // [K], 32767 past K: those bits are 0, like the weights there
    const uint8_t* weight;
    const int16_t *scale, *offset;
    const int16_t* constant;  // [class of missing taps][O padded]: dot << up = constant - (count << (up + 1))
    int up;
    const FixedRankTable* table;  // or none
};

struct FixedBinaryConvData : DotsData {
    FixedEnd end;
    const FixedBranchData* branch;
    bool sure;     // no sum of a product and an offset can leave 16 bits: added without saturating
    bool by_byte;  // up is 7 everywhere
};

struct FixedBinaryConvStep {  // see BinaryConvStep
    const int16_t* x;
    View x_view;
    const BitRows* taps;
    const int16_t* add[3];
    View add_view[3];
    int16_t* out;
    View out_view;
    int pixels;
    int channel_begin, channel_end;
    uint8_t* scratch;
};

struct FixedDepthwiseData {
    int k, width, stride;
    const int16_t *weight, *offset, *bend;  // weight [K / lanes, 9, lanes]
    int bend_up;
    bool sure;  // no sum can leave 16 bits
    bool mild;  // no slope is above 1: neither can a PReLU's
};

struct FixedConvData : TapsData {
    // Depth wise [O / lanes, T, lanes]; dense [O / lanes, kernel_height, pairs of kernel_width * K / G, lanes, 2];
    // scattered [T, K / G, O]
    const int16_t* weight;
    const int8_t* bytes;         // instead of `weight`, if they fit, of a dense one that reads each only once
    const int16_t* offset;       // depth wise
    const int32_t *sums, *down;  // else: offset + 2^(down - 1), the half that rounds, and down, padded
};
enum class FixedConvKind { depthwise, dense, scattered };

enum class FixedEndingKind { add, gate, affine, prelu, relu, clip, bound, shift, sign, table };

struct FixedEndingData {
    FixedEndingKind kind;
    const int16_t *a, *b;  // scale and offset, bend, above, limit, limits or the table
    int bits;              // up or down
    int one;
};

struct FixedEndingStep {
    int16_t* v;
    View view;
    int pixels, channel_begin, channel_end;
    const int16_t* other;
    View other_view;
    int other_step;
    bool other_channel;
};

struct FixedKernels {
    int lanes;
    // A row of an image. parts [channel][byte][4]: what the byte adds to the pixel's numbers, times 2^14. `copies` of a
    // pixel, 1 or a multiple of 4, are neighbours.
    void (*input)(const int32_t (*parts)[256][4], const uint8_t* image, int pixels, int copies, int16_t* out);
    int (*count_place)(int channel);                                              // of Narrow counts, within a line
    size_t (*bits_bytes)(int words);                                              // DotsData::bits of 1x1
    size_t (*weight_bytes)(int words);                                            // of one group of channels
    void (*pack_weight)(const uint32_t* weight, int o, int words, uint8_t* out);  // 1x1
    void (*pack_taps)(const uint32_t* weight, int o, int words, uint8_t* out);    // else
    void (*binary_conv)(const FixedBinaryConvData&, const FixedBinaryConvStep&);
    void (*bit_conv)(const FixedBinaryConvData&, const FixedBinaryConvStep&);
    void (*sign_words)(const int16_t* x, View v, int pixels, const int16_t* above, int words, uint32_t* out);
    void (*depthwise3x3)(const FixedDepthwiseData&, const int16_t* const* rows, View x, int16_t* out, View out_view,
                         int width, int height);
    void (*conv)(FixedConvKind, const FixedConvData&, const int16_t* const* rows, View x, int16_t* columns,
                 int16_t* out, View out_view, int begin, int end);
    void (*pool)(const PoolData&, const int16_t* const* rows, View x, int channels, int16_t* out, View out_view);
    void (*avg_pool_2x2)(const int16_t* const* rows, View x, int channels, int16_t* out, View out_view, int width);
    void (*global_avg_pool)(const int16_t* x, size_t pixels, int up, View v, int channel_begin, int channel_end,
                            int16_t* out);
    void (*copy)(const int16_t* x, View v, int pixels, int channels, int16_t* out, View out_view);
    void (*ending)(const FixedEndingData&, const FixedEndingStep&);
};

struct Kernels {
    const char* name;
    int lanes;
    int group;                      // channels of a weight group
    int most_counted;               // the most channels that are counted before what follows
    int narrow_limit;               // the most bits whose counts fit a Narrow
    int together;                   // pixels whose bits are packed together
    int rank_replicas;              // the most that rank_pack takes; 0: a RankTable does not pay
    size_t (*bits_bytes)(int k);    // BinaryConvData::bits
    size_t (*weight_bytes)(int k);  // of one group of channels
    size_t (*scratch_bytes)(const DotsData&);
    void (*pack_weight)(const uint32_t* weight, int o, int k, uint8_t* out);                 // [O, words]
    void (*pack_taps)(const uint32_t* weight, int o, int words, bool narrow, uint8_t* out);  // [O, words of all taps]
    void (*binary_conv)(const BinaryConvData&, const BinaryConvStep&);
    void (*bit_conv)(const BinaryConvData&, const BinaryConvStep&);
    // x >= threshold of a row, as words.
    void (*sign_words)(const float* x, View v, int pixels, const float* threshold, int words, uint32_t* out);
    // `height` rows of `width` pixels; row y is made from rows[y S] to rows[y S + 2], which are none outside the map
    void (*depthwise3x3)(const DepthwiseData&, const float* const* rows, View x, float* out, View out_view, int width,
                         int height);
    // A row from `kernel_height` rows, none outside the map. Channels from begin to end, multiples of kPad. Dense ones
    // need `columns`: as many floats as a block has, and kSlack bytes.
    void (*conv)(ConvKind, const ConvData&, const float* const* rows, View x, float* columns, float* out, View out_view,
                 int begin, int end);
    int conv_registers;  // of a dense convolution's weights
    void (*pool)(const PoolData&, const float* const* rows, View x, int channels, float* out, View out_view);
    void (*avg_pool)(const float* const* rows, int s, View x, int channels, float* out, View out_view,
                     int width);  // S x S over S
    void (*global_avg_pool)(const float* x, int pixels, View v, int channel_begin, int channel_end, float* out);
    // weight [O / kPad, C, kPad]
    void (*linear)(const float* x, int channels, const float* weight, const float* bias, int begin, int end,
                   float* out);
    void (*copy)(const float* x, View v, int pixels, int channels, float* out, View out_view);  // replicated
    void (*ending)(const EndingData&, const EndingStep&);
    // For the benchmark, binary MACs of `repeats` rounds: of the innermost loop on data in L1 (first with 0), and of
    // xor, popcount and add on registers alone.
    double (*dot_peak)(int repeats, uint8_t* scratch);
    double (*popcount_peak)(int repeats);
    size_t peak_scratch;
    FixedKernels fixed;
};

extern const Kernels scalar_kernels, avx2_kernels, avx512_kernels, neon_kernels, wasm_kernels;
void choose_avx512_counting(const char* way);  // before the first of its kernels runs; see simd/avx512.h

// Weights [O, words] to [group of `lanes` channels][word][lane]: the layout of every instruction set that counts bits
// in words.
void pack_words(const uint32_t* weight, int o, int k, int lanes, uint8_t* out);

// Built into this binary, in order of preference, and whether this machine can run them.
struct Isa {
    const Kernels* kernels;
    bool supported;
};
extern const Isa* isas();  // ends with a null `kernels`

}  // namespace bcnn
