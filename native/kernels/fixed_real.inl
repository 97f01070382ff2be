// Real ops of integer programs: input, depth wise and other convolutions, copies.

alignas(64) static const int16_t no_shorts[kShortLine] = {};

// --- input -----------------------------------------------------------------------------------------------------------

static void fixed_input(const int32_t (*parts)[256][4], const uint8_t* image, int pixels, int copies, int16_t* out) {
    typedef int32_t Four __attribute__((vector_size(16)));
    typedef int16_t FourShorts __attribute__((vector_size(8)));
    typedef uint64_t FourPixels __attribute__((vector_size(32)));
    for (int x = 0; x < pixels; x++, image += 3, out += kShortLine) {
        const auto part = [&](int c) { return *(const Four*)parts[c][image[c]]; };
        Four sum = (part(0) + part(1) + part(2)) >> 14;
        sum = sum > 32767 ? Four{} + 32767 : sum;
        sum = sum < -32768 ? Four{} - 32768 : sum;
        const FourShorts pixel = __builtin_convertvector(sum, FourShorts);
        if (copies == 1) {
            __builtin_memcpy(out, &pixel, sizeof pixel);
            continue;
        }
        const uint64_t one = (uint64_t)pixel;
        const FourPixels four = {one, one, one, one};
        for (int i = 0; i < copies; i += 4) __builtin_memcpy(out + 4 * i, &four, sizeof four);
    }
}

// --- depth wise 3 x 3, see depthwise_tile ----------------------------------------------------------------------------

template <bool sure>
BCNN_INLINE Shorts plus_if_needed(Shorts a, Shorts b) {
    return sure ? add(a, b) : plus(a, b);
}

template <int S, int P, int y0, int y1, bool sure>
BCNN_INLINE void fixed_depthwise_tile(const int16_t* const rows[3], ptrdiff_t from, bool outside_left,
                                      bool outside_right, const int16_t* w, Shorts offset, Shorts bend,
                                      const FixedDepthwiseData& d, int16_t* out) {
    constexpr int step = S ? S : 1, columns = (P - 1) * step + 3;  // P is 1 if S is 0
    Shorts v[P];
    for (int p = 0; p < P; p++) v[p] = offset;
    for (int ky = y0; ky < y1; ky++) {
        // Each column is read once, for up to three pixels; a pixel meets its columns in the order of its taps. Sums of
        // P pixels, three weights and a column fit 16 registers.
        Shorts weight[3];
        for (int kx = 0; kx < 3; kx++) weight[kx] = load(w + (ky * 3 + kx) * short_lanes);
#pragma GCC unroll 16
        for (int i = 0; i < columns; i++) {
            const bool outside = (i == 0 && outside_left) || (i + 1 == columns && outside_right);
            const int16_t* const at = outside ? no_shorts : rows[ky] + from + i * kShortLine;
            // With stride 2 every other column is read for one pixel: GCC loads it where it is multiplied.
            const Shorts column = S == 1 ? in_order(load(at)) : load(at);
#pragma GCC unroll 3
            for (int kx = 0; kx < 3; kx++) {
                const int p = (i - kx) / step;
                if (i < kx || (i - kx) % step || p >= P) continue;
                v[p] = plus_if_needed<sure>(v[p], product(column, weight[kx]));
            }
        }
    }
    if (d.bend_up == 0 && d.mild) {
        const Shorts zero = broadcast_short(0);
        for (int p = 0; p < P; p++) store(out + p * kShortLine, add(v[p], product(smaller(v[p], zero), bend)));
    } else if (d.bend_up == 0) {
        for (int p = 0; p < P; p++) store(out + p * kShortLine, straight(v[p], bend));
    } else {
        const Shorts least_bent = broadcast_short(-(32768 >> d.bend_up));
        const Amount up = amount(d.bend_up);
        for (int p = 0; p < P; p++) store(out + p * kShortLine, bent(v[p], bend, up, least_bent));
    }
}

template <int S, int y0, int y1, bool sure>
static void fixed_depthwise_row(const FixedDepthwiseData& d, const int16_t* const* rows, View v, int j, int c,
                                int16_t* out, View out_view, int width) {
    constexpr int columns = 56;
    constexpr int largest = S ? 7 : 1;  // 7 divides 224, 112, ... 7
    const int stride = S ? S : d.stride, tile = width >= largest ? largest : 1;
    const int end = least(j + line_registers, (d.k + short_lanes - 1) / short_lanes);
    for (int x0 = 0; x0 < width; x0 += columns)
        for (int i = j, at = c; i < end; i++, at = wrapped(at + short_lanes, v.period)) {
            const int16_t* from[3];
            for (int ky = y0; ky < y1; ky++) from[ky] = rows[ky] + place_of<int16_t>(v, at);
            const int16_t* const w = d.weight + i * 9 * short_lanes;
            const Shorts offset = load(d.offset + i * short_lanes), bend = load(d.bend + i * short_lanes);
            int16_t* const to = out + place_of<int16_t>(out_view, i * short_lanes);
            for (int done = x0; done < least(x0 + columns, width); done += tile) {
                const int x = least(done, width - tile);
                const bool left = x == 0, right = (x + tile - 1) * stride + 1 >= d.width;
                const ptrdiff_t first = ptrdiff_t(x * stride - 1) * kShortLine;
                if (tile == largest)
                    fixed_depthwise_tile<S, largest, y0, y1, sure>(from, first, left, right, w, offset, bend, d,
                                                                   to + x * kShortLine);
                else
                    fixed_depthwise_tile<S, 1, y0, y1, sure>(from, first, left, right, w, offset, bend, d,
                                                             to + x * kShortLine);
            }
        }
}

template <int S, bool sure>
static void fixed_depthwise_by(const FixedDepthwiseData& d, const int16_t* const* rows, View v, int16_t* out,
                               View out_view, int width, int height) {
    for (int j = 0, c = 0; j * short_lanes < d.k; j += line_registers) {
        for (int y = 0; y < height; y++) {
            const int16_t* const* const from = rows + y * d.stride;
            const auto row = from[0]
                                 ? (from[2] ? fixed_depthwise_row<S, 0, 3, sure> : fixed_depthwise_row<S, 0, 2, sure>)
                                 : (from[2] ? fixed_depthwise_row<S, 1, 3, sure> : fixed_depthwise_row<S, 1, 2, sure>);
            row(d, from, v, j, c, out + size_t(y) * width * kShortLine, out_view, width);
        }
        for (int i = 0; i < line_registers; i++) c = wrapped(c + short_lanes, v.period);
    }
}

static void fixed_depthwise3x3(const FixedDepthwiseData& d, const int16_t* const* rows, View v, int16_t* out,
                               View out_view, int width, int height) {
    const auto by = d.sure ? (d.stride == 1   ? fixed_depthwise_by<1, true>
                              : d.stride == 2 ? fixed_depthwise_by<2, true>
                                              : fixed_depthwise_by<0, true>)
                           : (d.stride == 1   ? fixed_depthwise_by<1, false>
                              : d.stride == 2 ? fixed_depthwise_by<2, false>
                                              : fixed_depthwise_by<0, false>);
    by(d, rows, v, out, out_view, width, height);
}

// --- any convolution -------------------------------------------------------------------------------------------------

static void fixed_conv_depthwise(const FixedConvData& d, const int16_t* const* rows, View v, int16_t* out,
                                 View out_view, int begin, int end) {
    const int taps = d.kernel_height * d.kernel_width;
    for (int o = begin; o < least(end, d.o); o += short_lanes) {
        const ptrdiff_t at = place_of<int16_t>(v, o % v.period);
        const int16_t* const w = d.weight + size_t(o) * size_t(taps);
        int16_t* to = out + place_of<int16_t>(out_view, o);
        for (int x = 0; x < d.out_width; x++, to += kShortLine) {
            const Inside in = taps_inside(d, x);
            Shorts sum = load(d.offset + o);
            for (int ky = 0; ky < d.kernel_height; ky++) {
                if (!rows[ky]) continue;
                for (int kx = in.begin; kx < in.end; kx++) {
                    const int16_t* const from =
                        rows[ky] + ptrdiff_t(x * d.stride - d.left + kx * d.dilation) * kShortLine + at;
                    sum = plus(sum, product(load(from), load(w + (ky * d.kernel_width + kx) * short_lanes)));
                }
            }
            store(to, sum);
        }
    }
}

// P pixels and a register of output channels: pairs of neighbours of the input are one number for all of them. Behind the
// last of an odd run is another one, or nothing; its weight is 0.
template <int P, typename Weight>
static void fixed_conv_tile(const FixedConvData& d, const int16_t* const* rows, const int16_t* columns, const Weight* w,
                            int16_t* to, int o) {
    const int inner = d.k / d.groups, run = d.kernel_width * inner;
    const ptrdiff_t step = ptrdiff_t(d.step) * inner;
    Ints sum[P][2];
    for (int p = 0; p < P; p++)
        for (int j = 0; j < 2; j++) sum[p][j] = load_ints(d.sums + o + j * int_lanes);
    for (int ky = 0; ky < d.kernel_height; ky++, columns += ptrdiff_t(d.columns) * inner) {
        if (!rows[ky]) {
            w += size_t((run + 1) / 2) * (2 * short_lanes);
            continue;
        }
        for (int i = 0; i < run; i += 2, w += 2 * short_lanes)
            for (int p = 0; p < P; p++) {
                const Pair value = load_pair(columns + p * step + i);
                for (int j = 0; j < 2; j++) sum[p][j] = add_products(sum[p][j], value, w + j * short_lanes);
            }
    }
    for (int p = 0; p < P; p++) store(to + p * kShortLine, narrow(sum[p][0], sum[p][1], d.down + o));
}

template <typename Weight>
static void fixed_conv_dense(const FixedConvData& d, const Weight* weight, const int16_t* const* rows, View v,
                             int16_t* columns, int16_t* out, View out_view, int begin, int end) {
    const size_t pairs = size_t((d.kernel_width * (d.k / d.groups) + 1) / 2);  // of a row of a filter
    each_tile(d, rows, v, columns, short_lanes, begin, end,
              [&](int P, int o, int x, const int16_t* from) __attribute__((always_inline)) {
                  const auto tile = P == 1 ? fixed_conv_tile<1, Weight> : fixed_conv_tile<conv_pixels, Weight>;
                  tile(d, rows, from, weight + size_t(o) * size_t(d.kernel_height) * pairs * 2,
                       out + place_of<int16_t>(out_view, o) + x * kShortLine, o);
              });
}

// Groups of any size: one channel at a time.
static void fixed_conv_scattered(const FixedConvData& d, const int16_t* const* rows, View v, int16_t* out,
                                 View out_view, int begin, int end) {
    const int inner = d.k / d.groups, made = d.o / d.groups;
    for (int o = begin; o < least(end, d.o); o++) {
        const int first = o / made * inner;
        for (int x = 0; x < d.out_width; x++) {
            const Inside in = taps_inside(d, x);
            int sum = d.sums[o];
            for (int ky = 0; ky < d.kernel_height; ky++) {
                if (!rows[ky]) continue;
                for (int kx = in.begin; kx < in.end; kx++) {
                    const int16_t* const pixel =
                        rows[ky] + ptrdiff_t(x * d.stride - d.left + kx * d.dilation) * kShortLine;
                    const int16_t* w = d.weight + size_t(ky * d.kernel_width + kx) * size_t(inner) * size_t(d.o) + o;
                    for (int c = 0; c < inner; c++, w += d.o)
                        sum += int(pixel[place_of<int16_t>(v, (first + c) % d.channels)]) * int(*w);
                }
            }
            out[place_of<int16_t>(out_view, o) + ptrdiff_t(x) * kShortLine] = saturated(sum >> d.down[o]);
        }
    }
}

static void fixed_conv(FixedConvKind kind, const FixedConvData& d, const int16_t* const* rows, View v, int16_t* columns,
                       int16_t* out, View out_view, int begin, int end) {
    if (kind == FixedConvKind::depthwise)
        fixed_conv_depthwise(d, rows, v, out, out_view, begin, end);
    else if (kind == FixedConvKind::scattered)
        fixed_conv_scattered(d, rows, v, out, out_view, begin, end);
    else if (d.bytes)
        fixed_conv_dense(d, d.bytes, rows, v, columns, out, out_view, begin, end);
    else
        fixed_conv_dense(d, d.weight, rows, v, columns, out, out_view, begin, end);
}

// A map as it is read: channel k is channel k mod C.
static void fixed_copy(const int16_t* x, View v, int pixels, int channels, int16_t* out, View out_view) {
    for (int c = 0, at = 0; c < channels; c += short_lanes, at = wrapped(at + short_lanes, v.period)) {
        const int16_t* from = x + place_of<int16_t>(v, at);
        int16_t* to = out + place_of<int16_t>(out_view, c);
        for (int p = 0; p < pixels; p++, from += kShortLine, to += kShortLine) store(to, load(from));
    }
}
