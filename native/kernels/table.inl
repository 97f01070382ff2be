// The table of an instruction set.

static size_t bits_bytes_of(int k) { return bits_bytes(k); }
static size_t weight_bytes_of(int k) { return weight_bytes(k); }
static constexpr int together_of = together, replicas_of = rank_replicas;

static constexpr FixedKernels fixed_kernels = {
    short_lanes,     fixed_input,        short_count_place,     short_bits_bytes, short_weight_bytes, pack_short_weight,
    pack_short_taps, fixed_binary_conv,  fixed_bit_conv,        short_sign_words, fixed_depthwise3x3, fixed_conv,
    fixed_pool,      fixed_avg_pool_2x2, fixed_global_avg_pool, fixed_copy,       fixed_ending};

#define BCNN_KERNELS(NAME)                                        \
    extern const Kernels NAME##_kernels = {#NAME,                 \
                                           NAME::lanes,           \
                                           NAME::group,           \
                                           NAME::most_counted,    \
                                           NAME::narrow_limit,    \
                                           NAME::together_of,     \
                                           NAME::replicas_of,     \
                                           NAME::bits_bytes_of,   \
                                           NAME::weight_bytes_of, \
                                           NAME::scratch_bytes,   \
                                           NAME::pack_weight,     \
                                           NAME::pack_taps,       \
                                           NAME::binary_conv,     \
                                           NAME::bit_conv,        \
                                           NAME::sign_words,      \
                                           NAME::depthwise3x3,    \
                                           NAME::conv,            \
                                           NAME::conv_registers,  \
                                           NAME::pool,            \
                                           NAME::avg_pool,        \
                                           NAME::global_avg_pool, \
                                           NAME::linear,          \
                                           NAME::copy,            \
                                           NAME::ending,          \
                                           NAME::dot_peak,        \
                                           NAME::popcount_peak,   \
                                           NAME::peak_scratch,    \
                                           NAME::fixed_kernels};
