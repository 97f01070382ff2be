// The kernels, written once over the primitives of an instruction set. Included inside that set's namespace, after its header,
// in a target region. No standard library in here: an inline std function compiled in a target region could be the copy that
// the linker keeps for everyone, and crash a machine without those instructions.
//
// Lanes are always channels, so no sum ever crosses lanes and every value is computed in the order program.py states.

constexpr int pad_vectors = kPad / lanes;

BCNN_INLINE int least(int a, int b) { return a < b ? a : b; }

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
    const Count* n[2];  // of up to two branches
    const float *scale[2], *offset[2];
    const float *x, *other, *slope;
    float* out;
    int pixels;
    ptrdiff_t x_next, other_next, out_next;  // from the first register's channels to the second's: replication may lead back
};

// What follows the dot products of B branches, for V registers of channels of a block of pixels: batch norm, sum, PReLU, the
// other path.
template <class Count, int start, int end, int B, int V>
static void finish(const Finish<Count>& f) {
    constexpr bool prelu_first = end == with_prelu || end == prelu_then_add, prelu_last = end == add_then_prelu;
    constexpr bool adds = end == with_add || end == prelu_then_add || end == add_then_prelu;
    Floats scale[B][V], offset[B][V], slope[V];
    for (int j = 0; j < V; j++) {
        for (int b = 0; b < B; b++) {
            scale[b][j] = load(f.scale[b] + j * lanes);
            offset[b][j] = load(f.offset[b] + j * lanes);
        }
        slope[j] = prelu_first || prelu_last ? load(f.slope + j * lanes) : offset[0][j];
    }
    const Count *n = f.n[0], *second = f.n[B - 1];
    const float *x = f.x, *other = f.other;
    float* out = f.out;
    const ptrdiff_t x_next = f.x_next, other_next = f.other_next, out_next = f.out_next;
    int p = f.pixels;
    const auto pixels = [&](auto count) __attribute__((always_inline)) {
        constexpr int T = decltype(count)::value;
        // Step by step for all T * V registers: each step waits for the one before it, the registers do not wait for each other.
        Floats v[T][V], u[T][V];
#define BCNN_EACH(STEP)                 \
    for (int t = 0; t < T; t++)         \
        for (int j = 0; j < V; j++) STEP;
        BCNN_EACH(v[t][j] = in_order(counts(n + t * kPad + j * lanes)))
        BCNN_EACH(v[t][j] = in_order(mul(v[t][j], scale[0][j])))
        BCNN_EACH(v[t][j] = in_order(add(v[t][j], offset[0][j])))
        if (start == from_input) BCNN_EACH(v[t][j] = in_order(add(load(x + t * kLine + j * x_next), v[t][j])))
        if (start == from_partial) BCNN_EACH(v[t][j] = in_order(add(load(out + t * kLine + j * out_next), v[t][j])))
        if (B == 2) {
            BCNN_EACH(u[t][j] = in_order(counts(second + t * kPad + j * lanes)))
            BCNN_EACH(u[t][j] = in_order(mul(u[t][j], scale[B - 1][j])))
            BCNN_EACH(u[t][j] = in_order(add(u[t][j], offset[B - 1][j])))
            BCNN_EACH(v[t][j] = in_order(add(v[t][j], u[t][j])))
        }
        if (prelu_first) BCNN_EACH(v[t][j] = in_order(prelu(v[t][j], slope[j])))
        if (adds) BCNN_EACH(v[t][j] = in_order(add(load(other + t * kLine + j * other_next), v[t][j])))
        if (prelu_last) BCNN_EACH(v[t][j] = in_order(prelu(v[t][j], slope[j])))
#undef BCNN_EACH
        for (int t = 0; t < T; t++)
            for (int j = 0; j < V; j++) store(out + t * kLine + j * out_next, v[t][j]);
        n += T * kPad;
        if (B == 2) second += T * kPad;
        if (start == from_input) x += T * kLine;
        if (adds) other += T * kLine;
        out += T * kLine;
    };
    for (; p >= 2; p -= 2) pixels(Number<2>());
    if (p) pixels(Number<1>());
}

template <class Count>
static void binary_conv_counting(const BinaryConvData& d, const BinaryConvStep& s) {
    using Pass = void (*)(const Finish<Count>&);
    static constexpr Pass passes[3][5][2][2] = {
#define BCNN_PASS(START, END)                                            \
    {{finish<Count, START, END, 1, 1>, finish<Count, START, END, 1, 2>}, \
     {finish<Count, START, END, 2, 1>, finish<Count, START, END, 2, 2>}}
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
    Count* const n[2] = {(Count*)s.scratch, (Count*)s.scratch + kBlock * kPad};
    uint8_t* const bits = s.scratch + 2 * kBlock * kPad * sizeof(Count);
    const size_t block_bits = kBlock / together * d.bits;
    // Bits of a block, weights of 64 channels and the tables are to stay in L1.
    const int block = d.k >= 512 ? kBlock / 2 : kBlock;
    for (int p0 = 0; p0 < s.pixels; p0 += block) {
        const int pixels = least(block, s.pixels - p0);
        const float* const x = s.x + size_t(p0) * kLine;
        const float* const other = s.add + size_t(p0) * kLine;
        float* const out = s.out + size_t(p0) * kLine;
        for (int b0 = 0; b0 < d.branches; b0 += kBranches) {
            const int b1 = least(b0 + kBranches, d.branches);
            for (int b = b0; b < b1; b++) {
                const float* pixel[kBlock + 1];
                if (!d.shifted)
                    for (int p = 0; p < pixels; p++) pixel[p] = x + p * kLine;
                else
                    for (int p = 0; p < pixels; p++) {
                        const int column = p0 + p + d.branch[b].dx;
                        const bool inside = s.rows[b] && 0 <= column && column < d.width;
                        pixel[p] = inside ? s.rows[b] + column * kLine : s.zeros;
                    }
                pixel[pixels] = pixel[pixels - 1];
                sign_pack(pixel, pixels, s.x_view, d.branch[b].threshold, bits + (b - b0) * block_bits, d.bits);
            }
            for (int c = s.channel_begin; c < s.channel_end; c += kPad) {
                const int vectors = (least(kPad, d.o - c) + lanes - 1) / lanes;
                const int groups = (least(kPad, d.o - c) + group - 1) / group;
                for (int b = b0; b < b1; b += 2) {  // two branches at a time, so that sums are stored half as often
                    const int count = least(2, b1 - b);
                    for (int i = 0; i < count; i++) {
                        const uint8_t* w = d.branch[b + i].weight + size_t(c / group) * d.weight_group;
                        const uint8_t* from = bits + (b + i - b0) * block_bits;
                        int g = 0;
                        for (; g + tile_groups <= groups; g += tile_groups)
                            dots<tile_groups>(from, d.bits, pixels, w + g * d.weight_group, d.weight_group, n[i] + g * group);
                        for (; g < groups; g++)
                            dots<1>(from, d.bits, pixels, w + g * d.weight_group, d.weight_group, n[i] + g * group);
                    }
                    const int start = b ? from_partial : d.identity ? from_input : from_zero;
                    const auto pass = passes[start][b + count == d.branches ? last : plain][count - 1];
                    Finish<Count> f;
                    f.pixels = pixels;
                    for (int j = 0, in_x = c % s.x_view.period, in_other = c % s.add_view.period; j < vectors; j += 2) {
                        const int at = c + j * lanes;
                        const int next_x = wrapped(in_x + lanes, s.x_view.period);
                        const int next_other = wrapped(in_other + lanes, s.add_view.period);
                        for (int i = 0; i < count; i++) {
                            f.n[i] = n[i] + j * lanes;
                            f.scale[i] = d.branch[b + i].scale + at;
                            f.offset[i] = d.branch[b + i].offset + at;
                        }
                        f.x = x + place_of(s.x_view, in_x);
                        f.other = other + place_of(s.add_view, in_other);
                        f.out = out + place_of(s.out_view, at);
                        f.slope = d.slope + at;
                        f.x_next = place_of(s.x_view, next_x) - place_of(s.x_view, in_x);
                        f.other_next = place_of(s.add_view, next_other) - place_of(s.add_view, in_other);
                        f.out_next = place_of(s.out_view, at + lanes) - place_of(s.out_view, at);
                        in_x = wrapped(next_x + lanes, s.x_view.period);
                        in_other = wrapped(next_other + lanes, s.add_view.period);
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

static size_t scratch_bytes(int k) { return 2 * kBlock * kPad * sizeof(Wide) + kBranches * (kBlock / together) * bits_bytes(k); }

// --- real ops ----------------------------------------------------------------------------------------------------------

alignas(64) static const float zeros[kLine] = {};

// P pixels of one register of channels. from: column x - 1 in each row, where `outside_left` and `outside_right` say that the
// first and the last column are not on the map. Filter rows y0 to y1 are. The sums of one pixel wait for each other, those of
// P pixels do not, and they share columns.
template <int S, int P, int y0, int y1>
BCNN_INLINE void depthwise_tile(const float* const rows[3], ptrdiff_t from, bool outside_left, bool outside_right, const float* w,
                                Floats offset, Floats slope, float* out) {
    constexpr int columns = (P - 1) * S + 3;
    Floats v[P];
    for (int p = 0; p < P; p++) v[p] = offset;
    for (int ky = y0; ky < y1; ky++) {
        Floats column[columns];
        column[0] = load(outside_left ? zeros : rows[ky] + from);
        for (int i = 1; i + 1 < columns; i++) column[i] = load(rows[ky] + from + i * kLine);
        column[columns - 1] = load(outside_right ? zeros : rows[ky] + from + (columns - 1) * kLine);
        for (int kx = 0; kx < 3; kx++) {
            const Floats weight = load(w + (ky * 3 + kx) * lanes);
            for (int p = 0; p < P; p++) v[p] = in_order(add(v[p], mul(weight, column[p * S + kx])));
        }
    }
    for (int p = 0; p < P; p++) store(out + p * kLine, prelu(v[p], slope));
}

// A row of the registers from j on that share a cache line; they are read at channel c. They take turns every few columns: wide
// rows are larger than L1, and so a line comes once. S: the stride if it is 1 or 2, else 0.
template <int S, int y0, int y1>
static void depthwise_row(const DepthwiseData& d, const float* const* rows, View v, int j, int c, float* out, View out_view,
                          int width) {
    constexpr int sharing = kLine / lanes, columns = 56;
    constexpr int largest = S == 1 ? 7 : S == 2 ? 4 : 1;  // sums and columns fit the registers; 7 divides 224, 112, ... 7
    const int stride = S ? S : d.stride, tile = width >= largest ? largest : 1;
    const int end = least(j + sharing, (d.k + lanes - 1) / lanes);
    for (int x0 = 0; x0 < width; x0 += columns)
        for (int i = j, at = c; i < end; i++, at = wrapped(at + lanes, v.period)) {
            const float* from[3];
            for (int ky = y0; ky < y1; ky++) from[ky] = rows[ky] + place_of(v, at);
            const float* const w = d.weight + i * 9 * lanes;
            const Floats offset = load(d.offset + i * lanes), slope = load(d.slope + i * lanes);
            float* const to = out + place_of(out_view, i * lanes);
            for (int done = x0; done < least(x0 + columns, width); done += tile) {
                const int x = least(done, width - tile);  // the last tile may make pixels again: cheaper than one by one
                const bool left = x == 0, right = (x + tile - 1) * stride + 1 >= d.width;
                const ptrdiff_t first = ptrdiff_t(x * stride - 1) * kLine;
                if (tile == largest)
                    depthwise_tile<S, largest, y0, y1>(from, first, left, right, w, offset, slope, to + x * kLine);
                else
                    depthwise_tile<S, 1, y0, y1>(from, first, left, right, w, offset, slope, to + x * kLine);
            }
        }
}

// All rows of one line of channels, then the next: a row is read by three others, and stays in L1 until it has been.
template <int S>
static void depthwise_by(const DepthwiseData& d, const float* const* rows, View v, float* out, View out_view, int width, int height) {
    constexpr int sharing = kLine / lanes;
    for (int j = 0, c = 0; j * lanes < d.k; j += sharing) {
        for (int y = 0; y < height; y++) {
            const float* const* const from = rows + y * d.stride;
            const auto row = from[0] ? (from[2] ? depthwise_row<S, 0, 3> : depthwise_row<S, 0, 2>)
                                     : (from[2] ? depthwise_row<S, 1, 3> : depthwise_row<S, 1, 2>);
            row(d, from, v, j, c, out + size_t(y) * width * kLine, out_view, width);
        }
        for (int i = 0; i < sharing; i++) c = wrapped(c + lanes, v.period);
    }
}

static void depthwise(const DepthwiseData& d, const float* const* rows, View v, float* out, View out_view, int width, int height) {
    const auto by = d.stride == 1 ? depthwise_by<1> : d.stride == 2 ? depthwise_by<2> : depthwise_by<0>;
    by(d, rows, v, out, out_view, width, height);
}

template <int fixed>
static void avg_pool_of(const float* const* rows, int s, View v, int channels, float* out, View out_view, int width) {
    if (fixed) s = fixed;
    const Floats share = broadcast(float(1.0 / (double(s) * s)));
    for (int c = 0; c < channels; c += kLine) {
        const ptrdiff_t at = place_of(v, c);
        float* const to = out + place_of(out_view, c);
        const int used = least(kLine, channels - c);
        for (int x = 0; x < width; x++)
            for (int j = 0; j < used; j += lanes) {
                Floats sum = load(rows[0] + x * s * kLine + at + j);
                for (int y = 0; y < s; y++)
                    for (int i = y == 0; i < s; i++) sum = add(sum, load(rows[y] + (x * s + i) * kLine + at + j));
                store(to + x * kLine + j, mul(sum, share));
            }
    }
}

static void avg_pool(const float* const* rows, int s, View v, int channels, float* out, View out_view, int width) {
    (s == 1 ? avg_pool_of<1> : s == 2 ? avg_pool_of<2> : avg_pool_of<0>)(rows, s, v, channels, out, out_view, width);
}

// To a map of one pixel, whose channels are all neighbours.
static void global_avg_pool(const float* x, int pixels, View v, int begin, int end, float* out) {
    const Floats share = broadcast(float(1.0 / pixels));
    for (int c = begin; c < end; c += lanes) {
        const float* const from = x + place_of(v, c);
        Floats sum = load(from);
        for (int p = 1; p < pixels; p++) sum = add(sum, load(from + size_t(p) * kLine));
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
        float values[tile_pixels][k], thresholds[k] = {};
        const float* pixel[tile_pixels];
        uint32_t random = 1;
        const auto next = [&random] { return random = random * 1664525u + 1013904223u; };
        for (size_t i = 0; i < tile_groups * w_group; i++) w[i] = uint8_t(next() >> 28);
        for (int t = 0; t < tile_pixels; t++) {
            pixel[t] = values[t];
            for (int c = 0; c < k; c++) values[t][c] = float(int32_t(next()));
        }
        sign_pack(pixel, tile_pixels, {k, kLine}, thresholds, bits, bytes);
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
