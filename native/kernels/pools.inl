// Averages and maxima, of floats and of 16-bit numbers. Sums of floats are in the order that bcnn/program/ops/pools.py states.

// Output columns whose taps are all on the map.
BCNN_INLINE Inside columns_inside(const PoolData& d) {
    Inside r = {0, d.out_width};
    while (r.begin < r.end && taps_inside(d, r.begin).begin > 0) r.begin++;
    while (r.end > r.begin && taps_inside(d, r.end - 1).end < d.kernel_width) r.end--;
    return r;
}

// Over the taps `in` of all rows that are on the map, in raster order: `step(from)`. W: how many, if it is known.
template <int W = 0, class Value, class Step>
BCNN_INLINE void each_tap(const PoolData& d, const Value* const* rows, ptrdiff_t first, Inside in, const Step& step) {
    const ptrdiff_t next = ptrdiff_t(d.dilation) * line_of<Value>;
    for (int ky = 0; ky < d.kernel_height; ky++) {
        if (!rows[ky]) continue;
        const Value* from = rows[ky] + first + in.begin * next;
        for (int i = 0; i < (W ? W : in.end - in.begin); i++, from += next) step(from);
    }
}

template <class Value>
BCNN_INLINE ptrdiff_t first_tap(const PoolData& d, int x) {
    return ptrdiff_t(x * d.stride - d.left) * line_of<Value>;
}

// The largest begins with the first tap: on the map, or `least` outside. Away from the sides three taps are a loop of
// their own, since 3 x 3 is what networks have.
template <class Value, class Register>
BCNN_INLINE void max_pool(const PoolData& d, const Value* const* rows, ptrdiff_t at, Value* to, Register least) {
    const Inside whole = columns_inside(d);
    for (int x = 0; x < d.out_width; x++, to += line_of<Value>) {
        const bool inside = whole.begin <= x && x < whole.end;
        const Inside in = inside ? Inside{0, d.kernel_width} : taps_inside(d, x);
        const ptrdiff_t first = first_tap<Value>(d, x) + at;
        Register r = rows[0] && in.begin == 0 && in.end > 0 ? load(rows[0] + first) : least;
        const auto step = [&](const Value* from) __attribute__((always_inline)) { r = larger(load(from), r); };
        if (inside && d.kernel_width == 3)
            each_tap<3>(d, rows, first, in, step);
        else
            each_tap(d, rows, first, in, step);
        store(to, r);
    }
}

static void pool(const PoolData& d, const float* const* rows, View v, int channels, float* out, View out_view) {
    int rows_inside = 0;
    for (int ky = 0; ky < d.kernel_height; ky++) rows_inside += rows[ky] != nullptr;
    for (int c = 0; c < channels; c += lanes) {
        const ptrdiff_t at = place_of(v, c);
        float* to = out + place_of(out_view, c);
        if (d.max) {
            max_pool(d, rows, at, to, broadcast(-__builtin_inff()));
            continue;
        }
        for (int x = 0; x < d.out_width; x++, to += kLine) {
            const Inside in = taps_inside(d, x);
            Floats sum = broadcast(0);
            each_tap(d, rows, first_tap<float>(d, x) + at, in,
                     [&](const float* from) __attribute__((always_inline)) { sum = add(sum, load(from)); });
            const int counted = d.inside ? rows_inside * (in.end - in.begin) : d.kernel_height * d.kernel_width;
            store(to, mul(sum, broadcast(float(1.0 / counted))));
        }
    }
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
                Floats sum = broadcast(0);
                for (int y = 0; y < s; y++)
                    for (int i = 0; i < s; i++) sum = add(sum, load(rows[y] + (x * s + i) * kLine + at + j));
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

// --- in 16 bits: exact sums, and the nearest whole number -------------------------------------------------------------

template <typename Sum>  // wide enough for all taps
static void fixed_mean_pool(const PoolData& d, const int16_t* const* rows, ptrdiff_t at, int16_t* to) {
    int rows_inside = 0;
    for (int ky = 0; ky < d.kernel_height; ky++) rows_inside += rows[ky] != nullptr;
    for (int x = 0; x < d.out_width; x++, to += kShortLine) {
        const Inside in = taps_inside(d, x);
        Sum sums[short_lanes] = {};
        each_tap(d, rows, first_tap<int16_t>(d, x) + at, in, [&](const int16_t* from) __attribute__((always_inline)) {
            for (int i = 0; i < short_lanes; i++) sums[i] += from[i];
        });
        const int64_t counted =
            d.inside ? int64_t(rows_inside) * (in.end - in.begin) : int64_t(d.kernel_height) * d.kernel_width;
        for (int i = 0; i < short_lanes; i++) to[i] = mean_of(sums[i], counted);
    }
}

static void fixed_pool(const PoolData& d, const int16_t* const* rows, View v, int channels, int16_t* out,
                       View out_view) {
    const bool few = int64_t(d.kernel_height) * d.kernel_width < 65536;  // as many as 32 bits hold
    for (int c = 0; c < channels; c += short_lanes) {
        const ptrdiff_t at = place_of<int16_t>(v, c);
        int16_t* const to = out + place_of<int16_t>(out_view, c);
        if (d.max)
            max_pool(d, rows, at, to, broadcast_short(-32768));
        else
            (few ? fixed_mean_pool<int32_t> : fixed_mean_pool<int64_t>)(d, rows, at, to);
    }
}

// (a + b + c + d + 2) >> 2 in 16 bits.
//   1. a + b = 2 s + e with s = (a & b) + ((a ^ b) >> 1) and e the last bit of a ^ b; c + d = 2 t + f likewise.
//   2. (2 (s + t) + e + f + 2) >> 2 = (s + t + 1 + (e & f)) >> 1.
//   3. (s + t + 1) >> 1 = (s & t) + ((s ^ t) >> 1) + ((s ^ t) & 1); e & f adds one more where s + t is even, so the last
//      term becomes ((s ^ t) | (e & f)) & 1.
static void fixed_avg_pool_2x2(const int16_t* const* rows, View v, int channels, int16_t* out, View out_view,
                               int width) {
    const Shorts one = broadcast_short(1);
    const Amount half = amount(1);
    for (int c = 0; c < channels; c += short_lanes) {
        const int16_t *upper = rows[0] + place_of<int16_t>(v, c), *lower = rows[1] + place_of<int16_t>(v, c);
        int16_t* to = out + place_of<int16_t>(out_view, c);
        for (int x = 0; x < width; x++, upper += 2 * kShortLine, lower += 2 * kShortLine, to += kShortLine) {
            const Shorts a = load(upper), b = load(upper + kShortLine), p = load(lower), q = load(lower + kShortLine);
            const Shorts e = differing_bits(a, b), f = differing_bits(p, q);
            const Shorts s = add(both_bits(a, b), shift_down(e, half)), t = add(both_bits(p, q), shift_down(f, half));
            const Shorts g = differing_bits(s, t);
            const Shorts last = both_bits(either_bits(g, both_bits(e, f)), one);
            store(to, add(add(both_bits(s, t), shift_down(g, half)), last));
        }
    }
}

// To a map of one pixel, whose channels are all neighbours.
static void fixed_global_avg_pool(const int16_t* x, size_t pixels, int up, View v, int begin, int end, int16_t* out) {
    for (int c = begin; c < end; c += short_lanes) {
        const int16_t* from = x + place_of<int16_t>(v, c);
        int64_t totals[short_lanes] = {};
        for (size_t p = 0; p < pixels;) {
            int32_t sums[short_lanes] = {};
            const size_t last = pixels - p < 65536 ? pixels : p + 65536;  // as many as 32 bits hold
            for (; p < last; p++, from += kShortLine)
                for (int i = 0; i < short_lanes; i++) sums[i] += from[i];
            for (int i = 0; i < short_lanes; i++) totals[i] += sums[i];
        }
        for (int i = 0; i < short_lanes; i++) out[c + i] = mean_of(totals[i] * (int64_t(1) << up), int64_t(pixels));
    }
}
