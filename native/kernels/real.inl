// Real ops: convolutions, the fully connected layer. Sums are in the order that bcnn/program/ops states.

alignas(64) static const float zeros[kLine] = {};

// P pixels of one register of channels. from: column x - 1 in each row, where `outside_left` and `outside_right` say
// that the first and the last column are not on the map. Filter rows y0 to y1 are. The sums of one pixel wait for each
// other, those of P pixels do not, and they share columns.
template <int S, int P, int y0, int y1>
BCNN_INLINE void depthwise_tile(const float* const rows[3], ptrdiff_t from, bool outside_left, bool outside_right,
                                const float* w, Floats offset, Floats slope, float* out) {
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

// A row of the registers from j on that share a cache line; they are read at channel c. They take turns every few
// columns: wide rows are larger than L1, and so a line comes once. S: the stride if it is 1 or 2, else 0.
template <int S, int y0, int y1>
static void depthwise_row(const DepthwiseData& d, const float* const* rows, View v, int j, int c, float* out,
                          View out_view, int width) {
    constexpr int sharing = kLine / lanes, columns = 56;
    constexpr int largest = S == 1   ? 7
                            : S == 2 ? 4
                                     : 1;  // sums and columns fit the registers; 7 divides 224, 112, ... 7
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
                const int x =
                    least(done, width - tile);  // the last tile may make pixels again: cheaper than one by one
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
static void depthwise_by(const DepthwiseData& d, const float* const* rows, View v, float* out, View out_view, int width,
                         int height) {
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

static void depthwise3x3(const DepthwiseData& d, const float* const* rows, View v, float* out, View out_view, int width,
                         int height) {
    const auto by = d.stride == 1 ? depthwise_by<1> : d.stride == 2 ? depthwise_by<2> : depthwise_by<0>;
    by(d, rows, v, out, out_view, width, height);
}

// --- any convolution -------------------------------------------------------------------------------------------------

// Which taps of output column x are on the map.
struct Inside {
    int begin, end;
};
template <class Data>
BCNN_INLINE Inside taps_inside(const Data& d, int x) {
    const int first = x * d.stride - d.left;
    Inside r = {0, d.kernel_width};
    while (r.begin < r.end && first + r.begin * d.dilation < 0) r.begin++;
    while (r.end > r.begin && first + (r.end - 1) * d.dilation >= d.width) r.end--;
    return r;
}

// Channel o is made from channel o mod C alone: a register of channels at a time.
static void conv_depthwise(const ConvData& d, const float* const* rows, View v, float*, float* out, View out_view,
                           int begin, int end) {
    const int taps = d.kernel_height * d.kernel_width;
    for (int o = begin; o < least(end, d.o); o += lanes) {
        const ptrdiff_t at = place_of(v, o % v.period);
        const float* const w = d.weight + size_t(o) * size_t(taps);
        float* to = out + place_of(out_view, o);
        for (int x = 0; x < d.out_width; x++, to += kLine) {
            const Inside in = taps_inside(d, x);
            Floats sum = load(d.offset + o);
            for (int ky = 0; ky < d.kernel_height; ky++) {
                if (!rows[ky]) continue;
                for (int kx = in.begin; kx < in.end; kx++) {
                    const float* const from =
                        rows[ky] + ptrdiff_t(x * d.stride - d.left + kx * d.dilation) * kLine + at;
                    sum = add(sum, mul(load(w + (ky * d.kernel_width + kx) * lanes), load(from)));
                }
            }
            store(to, sum);
        }
    }
}

// A run of channels of all columns that a block of output pixels from x on reads, by `copy(to, pixel)`.
template <class Value, class Copy>
BCNN_INLINE void lay_run(const TapsData& d, const Value* from, int x, int pixels, int run, Value* to,
                         const Copy& copy) {
    const bool shared = d.step < d.kernel_width;  // neighbours read the same columns
    const int spans = shared ? 1 : pixels, length = shared ? (pixels - 1) * d.step + d.kernel_width : d.kernel_width;
    const int inner = d.k / d.groups;
    for (int span = 0; span < spans; span++) {
        int column = (x + span) * d.stride - d.left;
        for (int i = 0; i < length; i++, column += d.dilation, to += inner)
            if (unsigned(column) < unsigned(d.width))
                copy(to, from + ptrdiff_t(column) * line_of<Value>);
            else
                for (int j = 0; j < run; j++) to[j] = 0;
    }
}

// What a block of output pixels reads of a row, for one group: columns side by side, channel by channel, zeros outside
// the map. So a row of a filter is one run of numbers, whatever padding, dilation and replication are, and a tap
// outside adds 0, as in the definition.
template <class Value>
BCNN_INLINE void lay_columns(const TapsData& d, const Value* row, View v, int x, int pixels, int first,
                             Value* columns) {
    constexpr int line = line_of<Value>, piece = line / 4;
    const int inner = d.k / d.groups;
    for (int c = 0, at = first % d.channels; c < inner;) {  // runs of channels that are neighbours in memory
        const int run = least(least(line - at % line, d.channels - at), inner - c);
        const auto lay = [&](const auto& copy) __attribute__((always_inline)) {
            lay_run(d, row + place_of<Value>(v, at), x, pixels, run, columns + c, copy);
        };
        // The last piece may write more than the run, if that is written after it.
        if (at % piece == 0 && run == inner && run <= piece)  // an image
            lay([&](Value* to, const Value* from) { __builtin_memcpy(to, from, sizeof(Value) * piece); });
        else if (at % piece == 0 && (run == inner || run % piece == 0))
            lay([&](Value* to, const Value* from) {
                for (int j = 0; j < run; j += piece) __builtin_memcpy(to + j, from + j, sizeof(Value) * piece);
            });
        else
            lay([&](Value* to, const Value* from) {
                for (int j = 0; j < run; j++) to[j] = from[j];
            });
        c += run;
        at = wrapped(at + run, d.channels);
    }
}

// P pixels and V registers of output channels: every input value is one number for all of them.
template <int P, int V>
static void conv_tile(const ConvData& d, const float* const* rows, const float* columns, const float* w,
                      const float* offset, float* to, View out_view, int used, int o) {
    const int inner = d.k / d.groups, run = d.kernel_width * inner;
    const ptrdiff_t step = ptrdiff_t(d.step) * inner;
    Floats sum[P][V];
    for (int p = 0; p < P; p++)
        for (int j = 0; j < V; j++) sum[p][j] = load(offset + j * lanes);
    for (int ky = 0; ky < d.kernel_height; ky++, columns += ptrdiff_t(d.columns) * inner) {
        if (!rows[ky]) {
            w += size_t(run) * (V * lanes);
            continue;
        }
        for (int i = 0; i < run; i++, w += V * lanes) {
            Floats weights[V];
            for (int j = 0; j < V; j++) weights[j] = load(w + j * lanes);
            for (int p = 0; p < P; p++) {
                const Floats value = broadcast(columns[p * step + i]);
                for (int j = 0; j < V; j++) sum[p][j] = add(sum[p][j], mul(value, weights[j]));
            }
        }
    }
    for (int p = 0; p < P; p++)
        for (int j = 0; j < used; j++) store(to + p * kLine + place_of(out_view, o + j * lanes), sum[p][j]);
}

// Lays columns for each block of pixels and each group, and hands every tile of them to `tile(pixels, o, x, columns)`,
// conv_pixels at a time: the last tile may make pixels again.
template <class Data, class Value, class Tile>
BCNN_INLINE void each_tile(const Data& d, const Value* const* rows, View v, Value* columns, int wide, int begin,
                           int end, const Tile& tile) {
    const int inner = d.k / d.groups, made = d.o / d.groups;
    for (int x0 = 0; x0 < d.out_width; x0 += d.block) {
        const int pixels = least(d.block, d.out_width - x0), P = pixels < conv_pixels ? 1 : conv_pixels;
        for (int o = begin; o < least(end, d.o); o += wide) {
            if (o == begin || o % made == 0)
                for (int ky = 0; ky < d.kernel_height; ky++)
                    if (rows[ky])
                        lay_columns(d, rows[ky], v, x0, pixels, o / made * inner,
                                    columns + ptrdiff_t(ky) * d.columns * inner);
            for (int done = 0; done < pixels; done += P) {
                const int x = least(done, pixels - P);
                tile(P, o, x0 + x, columns + ptrdiff_t(x) * d.step * inner);
            }
        }
    }
}

template <int V>
static void conv_dense(const ConvData& d, const float* const* rows, View v, float* columns, float* out, View out_view,
                       int begin, int end) {
    const size_t weights = size_t(d.kernel_height * d.kernel_width) * size_t(d.k / d.groups);  // of a channel
    each_tile(d, rows, v, columns, V * lanes, begin, end,
              [&](int P, int o, int x, const float* from) __attribute__((always_inline)) {
                  const int used = least(V, (d.o - o + lanes - 1) / lanes);  // the last registers may have no channels
                  const auto tile = P == 1 ? conv_tile<1, V> : conv_tile<conv_pixels, V>;
                  tile(d, rows, from, d.weight + size_t(o) * weights, d.offset + o, out + x * kLine, out_view, used, o);
              });
}

// Groups of any size: one channel at a time.
static void conv_scattered(const ConvData& d, const float* const* rows, View v, float*, float* out, View out_view,
                           int begin, int end) {
    const int inner = d.k / d.groups, made = d.o / d.groups;
    for (int o = begin; o < least(end, d.o); o++) {
        const int first = o / made * inner;
        for (int x = 0; x < d.out_width; x++) {
            const Inside in = taps_inside(d, x);
            float sum = d.offset[o];
            for (int ky = 0; ky < d.kernel_height; ky++) {
                if (!rows[ky]) continue;
                for (int kx = in.begin; kx < in.end; kx++) {
                    const float* const pixel = rows[ky] + ptrdiff_t(x * d.stride - d.left + kx * d.dilation) * kLine;
                    const float* w = d.weight + size_t(ky * d.kernel_width + kx) * size_t(inner) * size_t(d.o) + o;
                    for (int c = 0; c < inner; c++, w += d.o) sum += pixel[place_of(v, (first + c) % d.channels)] * *w;
                }
            }
            out[place_of(out_view, o) + ptrdiff_t(x) * kLine] = sum;
        }
    }
}

static void conv(ConvKind kind, const ConvData& d, const float* const* rows, View v, float* columns, float* out,
                 View out_view, int begin, int end) {
    const auto by = kind == ConvKind::depthwise ? conv_depthwise
                    : kind == ConvKind::dense   ? conv_dense<conv_registers>
                    : kind == ConvKind::grouped ? conv_dense<1>
                                                : conv_scattered;
    by(d, rows, v, columns, out, out_view, begin, end);
}

// --- the fully connected layer, and copies ----------------------------------------------------------------------------

static void linear(const float* x, int channels, const float* weight, const float* bias, int begin, int end,
                   float* out) {
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

// A map as it is read: channel k is channel k mod C.
static void copy(const float* x, View v, int pixels, int channels, float* out, View out_view) {
    for (int c = 0, at = 0; c < channels; c += lanes, at = wrapped(at + lanes, v.period)) {
        const float* from = x + place_of(v, at);
        float* to = out + place_of(out_view, c);
        for (int p = 0; p < pixels; p++, from += kLine, to += kLine) store(to, load(from));
    }
}
