// The kernels, written once over the primitives of an instruction set. Included inside that set's namespace, after its header,
// in a target region. No standard library in here: an inline std function compiled in a target region could be the copy that
// the linker keeps for everyone, and crash a machine without those instructions.
//
// Lanes are always channels, so no sum ever crosses lanes and every value is computed in the order program.py states.

constexpr int pad_vectors = kPad / lanes;

BCNN_INLINE int least(int a, int b) { return a < b ? a : b; }
BCNN_INLINE int wrapped(int at, int period) { return at == period ? 0 : at; }  // replication: channel k is read at k mod C

// --- binary convolution ------------------------------------------------------------------------------------------------

// n = popcount(x ^ w) of a block of pixels and G groups of channels.
template <int G, class Count>
BCNN_NOINLINE void dots(const uint8_t* bits, size_t bytes, int pixels, const uint8_t* w, size_t w_group, Count* n) {
    constexpr int T = G < tile_groups ? 2 * tile_pixels : tile_pixels;  // as many sums at a time either way
    int p = 0;
    for (; p + T <= pixels; p += T) dot<T, G>(bits + p / together * bytes, bytes, w, w_group, n + p * kPad);
    for (; p + 2 <= pixels; p += 2) dot<2, G>(bits + p / together * bytes, bytes, w, w_group, n + p * kPad);
    if (p < pixels) dot<together, G>(bits + p / together * bytes, bytes, w, w_group, n + p * kPad);
}

template <int n>
struct Number {
    static constexpr int value = n;
};

enum Start { from_zero, from_input, from_partial };
enum End { plain, with_prelu, with_add, prelu_then_add, add_then_prelu };

// Where `finish` reads and writes, at the first pixel of a block and the first channel of its registers.
template <class Count>
struct Finish {
    const Count* n;
    const float *x, *other, *scale, *offset, *slope;
    float* out;
    int x_stride, other_stride, out_stride, pixels;
    int x_next, other_next;  // from the first register's channels to the second's: replication may lead back
};

// What follows the dot product, for V registers of channels of a block of pixels: batch norm, sum, PReLU, the other path.
template <class Count, int start, int end, int V>
static void finish(const Finish<Count>& f) {
    constexpr bool prelu_first = end == with_prelu || end == prelu_then_add, prelu_last = end == add_then_prelu;
    constexpr bool adds = end == with_add || end == prelu_then_add || end == add_then_prelu;
    Floats scale[V], offset[V], slope[V];
    for (int j = 0; j < V; j++) {
        scale[j] = load(f.scale + j * lanes);
        offset[j] = load(f.offset + j * lanes);
        slope[j] = prelu_first || prelu_last ? load(f.slope + j * lanes) : offset[j];
    }
    const Count* n = f.n;
    const float *x = f.x, *other = f.other;
    float* out = f.out;
    const ptrdiff_t x_stride = f.x_stride, other_stride = f.other_stride, out_stride = f.out_stride;
    const ptrdiff_t x_next = f.x_next, other_next = f.other_next;
    int p = f.pixels;
    const auto pixels = [&](auto count) __attribute__((always_inline)) {
        constexpr int T = decltype(count)::value;
        // Step by step for all T * V registers: each step waits for the one before it, the registers do not wait for each other.
        Floats v[T][V];
#define BCNN_EACH(STEP)                 \
    for (int t = 0; t < T; t++)         \
        for (int j = 0; j < V; j++) v[t][j] = in_order(STEP);
        BCNN_EACH(counts(n + t * kPad + j * lanes))
        BCNN_EACH(mul(v[t][j], scale[j]))
        BCNN_EACH(add(v[t][j], offset[j]))
        if (start == from_input) BCNN_EACH(add(load(x + t * x_stride + j * x_next), v[t][j]))
        if (start == from_partial) BCNN_EACH(add(load(out + t * out_stride + j * lanes), v[t][j]))
        if (prelu_first) BCNN_EACH(prelu(v[t][j], slope[j]))
        if (adds) BCNN_EACH(add(load(other + t * other_stride + j * other_next), v[t][j]))
        if (prelu_last) BCNN_EACH(prelu(v[t][j], slope[j]))
#undef BCNN_EACH
        for (int t = 0; t < T; t++)
            for (int j = 0; j < V; j++) store(out + t * out_stride + j * lanes, v[t][j]);
        n += T * kPad;
        if (start == from_input) x += T * x_stride;
        if (adds) other += T * other_stride;
        out += T * out_stride;
    };
    for (; p >= 2; p -= 2) pixels(Number<2>());
    if (p) pixels(Number<1>());
}

template <class Count>
static void binary_conv_counting(const BinaryConvData& d, const BinaryConvStep& s) {
    using Pass = void (*)(const Finish<Count>&);
    static constexpr Pass passes[3][5][2] = {
#define BCNN_PASS(START, END) {finish<Count, START, END, 1>, finish<Count, START, END, 2>}
#define BCNN_PASSES(START)                                                                                          \
    {BCNN_PASS(START, plain), BCNN_PASS(START, with_prelu), BCNN_PASS(START, with_add),                             \
     BCNN_PASS(START, prelu_then_add), BCNN_PASS(START, add_then_prelu)}
        BCNN_PASSES(from_zero), BCNN_PASSES(from_input), BCNN_PASSES(from_partial)};
#undef BCNN_PASSES
#undef BCNN_PASS
    const int last = !s.add              ? (d.slope ? with_prelu : plain)
                     : !d.slope          ? with_add
                     : d.prelu_after_add ? add_then_prelu
                                         : prelu_then_add;
    Count* const n = (Count*)s.scratch;
    uint8_t* const bits = s.scratch + kBlock * kPad * sizeof(Count);
    const size_t block_bits = kBlock / together * d.bits;
    // Bits of a block, weights of 64 channels and the tables are to stay in L1.
    const int block = d.k >= 512 ? kBlock / 2 : kBlock;
    for (int p0 = 0; p0 < s.pixels; p0 += block) {
        const int pixels = least(block, s.pixels - p0);
        const float* const x = s.x + size_t(p0) * d.x.stride;
        const float* const other = s.add + size_t(p0) * d.add.stride;
        float* const out = s.out + size_t(p0) * d.out_stride;
        for (int b0 = 0; b0 < d.branches; b0 += kBranches) {
            const int b1 = least(b0 + kBranches, d.branches);
            for (int b = b0; b < b1; b++) {
                const float* pixel[kBlock + 1];
                for (int p = 0; p < pixels; p++) {
                    const int column = p0 + p + d.branch[b].dx;
                    pixel[p] = !d.shifted ? x + size_t(p) * d.x.stride
                               : s.rows[b] && 0 <= column && column < d.width
                                   ? s.rows[b] + size_t(column) * d.x.stride
                                   : s.zeros;
                }
                pixel[pixels] = pixel[pixels - 1];
                sign_pack(pixel, pixels, d.x, d.branch[b].threshold, bits + (b - b0) * block_bits, d.bits);
            }
            for (int c = s.channel_begin; c < s.channel_end; c += kPad) {
                const int vectors = (least(kPad, d.o - c) + lanes - 1) / lanes;
                const int groups = (least(kPad, d.o - c) + group - 1) / group;
                if (d.k >= 256)  // rows larger than L1: what `finish` will touch comes while the dot products are computed
                    for (int line = 0; line < vectors * lanes; line += 16) {
                        const float* from = x + (c + line) % d.x.period;
                        const float* to = out + c + line;
                        for (int p = 0; p < pixels; p++, from += d.x.stride, to += d.out_stride) {
                            __builtin_prefetch(from);
                            __builtin_prefetch(to, 1);
                        }
                    }
                for (int b = b0; b < b1; b++) {
                    const BranchData& branch = d.branch[b];
                    const uint8_t* w = branch.weight + size_t(c / group) * d.weight_group;
                    const uint8_t* from = bits + (b - b0) * block_bits;
                    int g = 0;
                    for (; g + tile_groups <= groups; g += tile_groups)
                        dots<tile_groups>(from, d.bits, pixels, w + g * d.weight_group, d.weight_group, n + g * group);
                    for (; g < groups; g++)
                        dots<1>(from, d.bits, pixels, w + g * d.weight_group, d.weight_group, n + g * group);
                    const int start = b ? from_partial : d.identity ? from_input : from_zero;
                    const auto pass = passes[start][b + 1 == d.branches ? last : plain];
                    Finish<Count> f;
                    f.x_stride = d.x.stride;
                    f.other_stride = d.add.stride;
                    f.out_stride = d.out_stride;
                    f.pixels = pixels;
                    for (int j = 0, in_x = c % d.x.period, in_other = c % d.add.period; j < vectors; j += 2) {
                        const int at = c + j * lanes;
                        f.n = n + j * lanes;
                        f.x = x + in_x;
                        f.other = other + in_other;
                        f.scale = branch.scale + at;
                        f.offset = branch.offset + at;
                        f.slope = d.slope + at;
                        f.out = out + at;
                        f.x_next = in_x + lanes == d.x.period ? -in_x : lanes;
                        f.other_next = in_other + lanes == d.add.period ? -in_other : lanes;
                        in_x = wrapped(in_x + f.x_next + lanes, d.x.period);
                        in_other = wrapped(in_other + f.other_next + lanes, d.add.period);
                        pass[j + 1 < vectors](f);
                    }
                }
            }
        }
    }
}

static void binary_conv(const BinaryConvData& d, const BinaryConvStep& s) {
    if (d.k <= narrow_limit)
        binary_conv_counting<Narrow>(d, s);
    else
        binary_conv_counting<Wide>(d, s);
}

static size_t scratch_bytes(int k) { return kBlock * kPad * sizeof(Wide) + kBranches * (kBlock / together) * bits_bytes(k); }

// --- real ops ----------------------------------------------------------------------------------------------------------

// One output vector at the map's left or right edge, or of a map one or two columns wide: taps outside are left out.
template <int y0, int y1>
BCNN_INLINE Floats depthwise_edge(const DepthwiseData& d, const float* const rows[3], int at, int x, const float* w,
                                  Floats v) {
    for (int ky = y0; ky < y1; ky++)
        for (int kx = 0; kx < 3; kx++) {
            const int column = x * d.stride + kx - 1;
            if (0 <= column && column < d.width)
                v = add(v, mul(load(w + (ky * 3 + kx) * lanes), load(rows[ky] + size_t(column) * d.x.stride + at)));
        }
    return v;
}

// Columns [x0, x1) of register j's channels. Rows y0 to y1 of the filter are inside the map. S: the stride if it is 1 or 2, else 0.
template <int S, int y0, int y1>
BCNN_INLINE void depthwise_columns(const DepthwiseData& d, const float* const rows[3], float* out, int j, int at, int x0, int x1,
                                   int inner_end) {
    const ptrdiff_t next = d.x.stride, step = d.stride * next, out_stride = d.out_stride;
    const float* const w = d.weight + j * 9 * lanes;
    const Floats offset = load(d.offset + j * lanes), slope = load(d.slope + j * lanes);
    Floats weight[9];
    for (int i = 3 * y0; i < 3 * y1; i++) weight[i] = load(w + i * lanes);
    float* const to = out + j * lanes;
    int x = x0;
    if (x == 0) {
        store(to, prelu(depthwise_edge<y0, y1>(d, rows, at, 0, w, offset), slope));
        x = 1;
    }
    const float* from[3];
    for (int ky = y0; ky < y1; ky++) from[ky] = rows[ky] + x * step + at - next;
    // Four pixels at a time: the sums of one wait for each other, those of four do not, and they share columns.
    if (S)
        for (; x + 4 <= inner_end; x += 4) {
            Floats v[4];
            for (int p = 0; p < 4; p++) v[p] = offset;
            for (int ky = y0; ky < y1; ky++) {
                const float* column = from[ky];
                for (int i = 0; i < 3 + 3 * S; i++, column += next) {
                    const Floats value = load(column);
                    for (int p = 0; p < 4; p++)
                        if (0 <= i - p * S && i - p * S < 3)
                            v[p] = in_order(add(v[p], mul(weight[ky * 3 + i - p * S], value)));
                }
                from[ky] += 4 * step;
            }
            for (int p = 0; p < 4; p++) store(to + (x + p) * out_stride, prelu(v[p], slope));
        }
    for (; x < inner_end; x++) {
        Floats v = offset;
        for (int ky = y0; ky < y1; ky++) {
            for (int kx = 0; kx < 3; kx++) v = add(v, mul(weight[ky * 3 + kx], load(from[ky] + kx * next)));
            from[ky] += step;
        }
        store(to + x * out_stride, prelu(v, slope));
    }
    for (; x < x1; x++) store(to + x * out_stride, prelu(depthwise_edge<y0, y1>(d, rows, at, x, w, offset), slope));
}

template <int S, int y0, int y1>
static void depthwise_rows(const DepthwiseData& d, const float* const rows[3], float* out, int width) {
    // Registers that share a cache line take turns every few columns: wide rows are larger than L1, and so a line comes once.
    constexpr int sharing = 16 / lanes, columns = 64;
    const int vectors = (d.k + lanes - 1) / lanes;
    const int edge = (d.width - 2 + d.stride) / d.stride;  // first x with a tap past the right edge
    for (int j = 0, at = 0; j < vectors; j += sharing) {
        int then = at;
        for (int x = 0, end; x < width; x = end) {
            end = least(x ? x + columns : columns + 1, width);  // the first column is an edge, then come fours
            then = at;
            for (int i = j; i < least(j + sharing, vectors); i++) {
                depthwise_columns<S, y0, y1>(d, rows, out, i, then, x, end, least(end, edge));
                then = wrapped(then + lanes, d.x.period);
            }
        }
        at = then;
    }
}

template <int S>
static void depthwise_by(const DepthwiseData& d, const float* const rows[3], float* out, int width) {
    if (rows[0])
        rows[2] ? depthwise_rows<S, 0, 3>(d, rows, out, width) : depthwise_rows<S, 0, 2>(d, rows, out, width);
    else
        rows[2] ? depthwise_rows<S, 1, 3>(d, rows, out, width) : depthwise_rows<S, 1, 2>(d, rows, out, width);
}

static void depthwise(const DepthwiseData& d, const float* const rows[3], float* out, int width) {
    (d.stride == 1 ? depthwise_by<1> : d.stride == 2 ? depthwise_by<2> : depthwise_by<0>)(d, rows, out, width);
}

template <int fixed>
static void avg_pool_of(const float* const* rows, int s, View v, int channels, float* out, int out_stride, int width) {
    if (fixed) s = fixed;
    const Floats share = broadcast(float(1.0 / (double(s) * s)));
    for (int x = 0; x < width; x++) {
        const size_t from = size_t(x) * s * v.stride;
        float* const to = out + size_t(x) * out_stride;
        for (int c = 0; c < channels; c += lanes) {
            Floats sum = load(rows[0] + from + c);
            for (int y = 0; y < s; y++)
                for (int i = y == 0; i < s; i++) sum = add(sum, load(rows[y] + from + size_t(i) * v.stride + c));
            store(to + c, mul(sum, share));
        }
    }
}

static void avg_pool(const float* const* rows, int s, View v, int channels, float* out, int out_stride, int width) {
    const auto pool = s == 1 ? avg_pool_of<1> : s == 2 ? avg_pool_of<2> : avg_pool_of<0>;
    pool(rows, s, v, channels, out, out_stride, width);
}

static void global_avg_pool(const float* x, int pixels, View v, int begin, int end, float* out) {
    const Floats share = broadcast(float(1.0 / pixels));
    for (int c = begin; c < end; c += lanes) {
        Floats sum = load(x + c);
        for (int p = 1; p < pixels; p++) sum = add(sum, load(x + size_t(p) * v.stride + c));
        store(out + c, mul(sum, share));
    }
}

static void linear(const float* x, int channels, const float* weight, const float* bias, int begin, int end, float* out) {
    for (int o = begin; o < end; o += kPad) {
        Floats v[pad_vectors];
        const float* w = weight + size_t(o) * channels;
        for (int j = 0; j < pad_vectors; j++) v[j] = load(bias + o + j * lanes);
        for (int c = 0; c < channels; c++, w += kPad) {
            const Floats value = broadcast(x[c]);
            for (int j = 0; j < pad_vectors; j++) v[j] = add(v[j], mul(value, load(w + j * lanes)));
        }
        for (int j = 0; j < pad_vectors && o + j * lanes < end; j++) store(out + o + j * lanes, v[j]);
    }
}

// --- for the benchmark -------------------------------------------------------------------------------------------------

// Binary MACs done by `repeats` rounds of the innermost loop; with 0 repeats, makes the random data that they work on.
static double dot_peak(int repeats, uint8_t* scratch) {
    constexpr int k = 224;  // seven words: weights and bits stay in L1
    const size_t bytes = bits_bytes(k), w_group = weight_bytes(k);
    uint8_t* const w = scratch + kBlock * kPad * sizeof(Wide);
    uint8_t* const bits = w + tile_groups * w_group;
    if (repeats == 0) {
        float values[tile_pixels][k], zeros[k] = {};
        const float* pixel[tile_pixels];
        uint32_t random = 1;
        const auto next = [&random] { return random = random * 1664525u + 1013904223u; };
        for (size_t i = 0; i < tile_groups * w_group; i++) w[i] = uint8_t(next() >> 28);
        for (int t = 0; t < tile_pixels; t++) {
            pixel[t] = values[t];
            for (int c = 0; c < k; c++) values[t][c] = float(int32_t(next()));
        }
        sign_pack(pixel, tile_pixels, {k, k}, zeros, bits, bytes);
    }
    for (int r = 0; r < repeats; r++) dot<tile_pixels, tile_groups>(bits, bytes, w, w_group, (Narrow*)scratch);
    return double(repeats) * tile_pixels * tile_groups * group * k;
}

// Binary MACs done by `repeats` rounds of xor, popcount and add on registers alone: no loads, no sums that are ever widened. What
// a dot product that counts bits the usual way could reach at the very best.
static double popcount_peak(int repeats) {
    constexpr int sums = 4;  // enough that none waits for the one before it, few enough for the registers
    Bits x = bits_of(0x5A0FC396u), w = bits_of(0x13579BDFu), sum[sums];
    for (int i = 0; i < sums; i++) sum[i] = bits_of(0);
    for (int r = 0; r < repeats; r++)
        for (int i = 0; i < sums; i++) {
            x = hidden(x);
            sum[i] = count_differing(sum[i], x, w);
        }
    for (int i = 0; i < sums; i++) sum[i] = hidden(sum[i]);
    return double(repeats) * sums * 8 * sizeof(Bits);
}

static size_t bits_bytes_of(int k) { return bits_bytes(k); }
static size_t weight_bytes_of(int k) { return weight_bytes(k); }

#define BCNN_KERNELS(NAME)                                                                                          \
    extern const Kernels NAME##_kernels = {#NAME,     NAME::lanes,          NAME::bits_bytes_of, NAME::weight_bytes_of, \
                                           NAME::group, NAME::scratch_bytes, NAME::pack_weight,   NAME::binary_conv,   \
                                           NAME::depthwise, NAME::avg_pool,  NAME::global_avg_pool, NAME::linear,      \
                                           NAME::dot_peak, NAME::popcount_peak};
