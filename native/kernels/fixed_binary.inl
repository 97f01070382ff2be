// Binary convolution of integer programs: bits and counts as in binary.inl, and what follows in 16 bits. A line of 32
// channels at a time, which is one or two registers.
//
//   1. dot = N - 2 n, so dot << up = (N << up) - (n << (up + 1)): both sides wrap around alike, and the result fits.
//   2. v = R(dot << up, scale) (+) offset.
//   3. Missing taps change N << up to another constant of the channel: `constant` has one for each class of pixels.

// x > limit of a row, as words: bit c % 32 of word c // 32.
static void short_sign_words(const int16_t* x, View v, int pixels, const int16_t* limit, int words, uint32_t* out) {
    uint8_t* const bits = (uint8_t*)out;
    for (int j = 0, c = 0; j < words * 32 / short_lanes; j++) {
        const Shorts t = load(limit + j * short_lanes);
        const int16_t* const from = x + place_of<int16_t>(v, c);
        uint8_t* to = bits + j * (short_lanes / 8);
        for (int p = 0; p < pixels; p++, to += 4 * words) {
            const unsigned mask = above(load(from + size_t(p) * kShortLine), t);
            __builtin_memcpy(to, &mask, short_lanes / 8);
        }
        c = wrapped(c + short_lanes, v.period);
    }
}

// Where `fixed_finish` reads and writes, at the first pixel of a run and the first channel of a line. Its counts are in
// memory, of up to two branches; or, of one, still bits and weights: then they never leave registers (ShortCounting).
template <class Count>
struct FixedFinish {
    const Count* n[2];
    const uint8_t *bits, *weight;
    size_t bytes, weight_group;  // from a pixel's bits to the next one's, from a group's weights to the next one's
    const int16_t *constant[2], *scale[2], *offset[2];
    int up[2];
    const int16_t* add[3];
    ptrdiff_t add_next[3];  // from the first register's channels to the second's
    int16_t* out;
    int pixels;
    ptrdiff_t n_next;  // from a pixel's counts to the next one's
};

// adds, prelu, then: see FixedEnd.
template <class Count, bool by_byte, bool sure, int sum, int adds, int prelu, int then>
static void fixed_finish(const FixedFinish<Count>& f, const FixedEnd& end, int channel) {
    constexpr int B = sum == two_branches ? 2 : 1, V = line_registers;
    constexpr bool bounds = then == 1 || then == 4;
    Shorts constant[B][V], scale[B][V], offset[B][V], bend[V], limit[V], low[V];
    // `in_order`: in registers from here on. Otherwise GCC 12 copies these arrays in halves of registers, which wait for each
    // other when they are read again.
    for (int j = 0; j < V; j++) {
        for (int b = 0; b < B; b++) {
            constant[b][j] = in_order(load(f.constant[b] + j * short_lanes));
            scale[b][j] = in_order(load(f.scale[b] + j * short_lanes));
            offset[b][j] = in_order(load(f.offset[b] + j * short_lanes));
        }
        bend[j] = prelu ? in_order(load(end.bend + channel + j * short_lanes)) : offset[0][j];
        limit[j] = bounds ? in_order(load(end.limit + channel + j * short_lanes)) : offset[0][j];
        low[j] = in_order(subtract(broadcast_short(0), limit[j]));
    }
    const Shorts least_bent = broadcast_short(-(32768 >> end.bend_up));
    // All in registers: stores might change what `f` and `end` hold, as far as the compiler knows.
    const Amount up[2] = {amount(f.up[0] + 1), amount(f.up[B - 1] + 1)};
    const Amount bend_up = amount(end.bend_up), last_up = amount(end.shift_up);
    const ptrdiff_t next[3] = {f.add_next[0], f.add_next[1], f.add_next[2]};
    const Count *n = f.n[0], *second = f.n[B - 1];
    const int16_t *first_add = f.add[0], *second_add = f.add[1], *third_add = f.add[2];
    int16_t* out = f.out;
    const ptrdiff_t n_next = f.n_next;
    const int first_times = end.first_up, last_times = end.shift_up;
    const auto doubled = [](Shorts v, int times) __attribute__((always_inline)) {
        for (int i = 0; i < times; i++) v = plus(v, v);
        return v;
    };
    const auto term = [&](Shorts shifted, int b, int j) __attribute__((always_inline)) {
        const Shorts made = product(subtract(constant[b][j], shifted), scale[b][j]);
        return sure ? add(made, offset[b][j]) : plus(made, offset[b][j]);
    };
    // Pixel t of those that are made together, register j of its line.
    const auto end_with = [&](Shorts v, int t, int j) __attribute__((always_inline)) {
        const ptrdiff_t pixel = t * kShortLine;
        if (sum == one_more) v = plus(load(out + pixel + j * short_lanes), v);
        if constexpr (sum == two_branches) v = plus(v, term(shifted_counts<by_byte>(second, j, up[B - 1]), B - 1, j));
        if (sum == one_branch && then >= 3) v = doubled(v, first_times);
        if (adds > 0) v = plus(v, load(first_add + pixel + j * next[0]));
        if (adds > 1) v = plus(v, load(second_add + pixel + j * next[1]));
        if (prelu == 1) v = straight(v, bend[j]);
        if (prelu == 2) v = bent(v, bend[j], bend_up, least_bent);
        if (bounds) v = shift_up(smaller(larger(v, low[j]), limit[j]), last_up);
        if (then == 2) v = plus(v, load(third_add + pixel + j * next[2]));
        if (then == 3) v = doubled(v, last_times);
        store(out + pixel + j * short_lanes, v);
    };
    const auto go_on = [&](int pixels) __attribute__((always_inline)) {
        if (adds > 0) first_add += pixels * kShortLine;
        if (adds > 1) second_add += pixels * kShortLine;
        if (then == 2) third_add += pixels * kShortLine;
        out += pixels * kShortLine;
    };
    if constexpr (in_registers<Count>) {
        const uint8_t *bits = f.bits, *const weight = f.weight;
        const size_t bytes = f.bytes, weight_group = f.weight_group;
        const auto tile = [&](auto size) __attribute__((always_inline)) {
            constexpr int T = decltype(size)::value;
            const auto each = [&](int t, Shorts count) __attribute__((always_inline)) {
                end_with(term(shift_up(count, up[0]), 0, 0), t, 0);
            };
            Count::template each<T>(bits, bytes, weight, weight_group, each);
            bits += T * bytes;
            go_on(T);
        };
        int p = f.pixels;
        for (; p >= tile_pixels; p -= tile_pixels) tile(Number<tile_pixels>());
        for (; p > 0; p--) tile(Number<1>());
    } else {
        for (int p = f.pixels; p > 0; p--) {
            for (int j = 0; j < V; j++) end_with(term(shifted_counts<by_byte>(n, j, up[0]), 0, j), 0, j);
            n += n_next;
            if (B == 2) second += n_next;
            go_on(1);
        }
    }
}

template <class Count>
using FixedPass = void (*)(const FixedFinish<Count>&, const FixedEnd&, int);

template <class Count, bool by_byte, bool sure>
struct FixedPasses {  // fixed_finish for every sum and ending; two branches at a time where it pays
    FixedPass<Count> of[3][3][3][5];
    constexpr FixedPasses() : of() {
        fill<one_branch>();
        if constexpr (sure && !in_registers<Count>) fill<two_branches>();
        fill<one_more>();
    }
    template <int sum>
    constexpr void fill() {
        fill_adds<sum, 0>();
        fill_adds<sum, 1>();
        fill_adds<sum, 2>();
    }
    template <int sum, int adds>
    constexpr void fill_adds() {
        of[sum][adds][0][0] = fixed_finish<Count, by_byte, sure, sum, adds, 0, 0>;
        fill_prelu<sum, adds, 1>();
        fill_prelu<sum, adds, 2>();
    }
    template <int sum, int adds, int prelu>
    constexpr void fill_prelu() {
        of[sum][adds][prelu][0] = fixed_finish<Count, by_byte, sure, sum, adds, prelu, 0>;
        if constexpr (adds < 2) fill_then<sum, adds, prelu>();
    }
    template <int sum, int adds, int prelu>
    constexpr void fill_then() {
        of[sum][adds][prelu][1] = fixed_finish<Count, by_byte, sure, sum, adds, prelu, 1>;
        of[sum][adds][prelu][2] = fixed_finish<Count, by_byte, sure, sum, adds, prelu, 2>;
        if constexpr (adds == 1 && prelu == 2) {
            of[sum][1][2][3] = fixed_finish<Count, by_byte, sure, sum, 1, 2, 3>;
            if constexpr (sum == one_branch) of[sum][1][2][4] = fixed_finish<Count, by_byte, sure, sum, 1, 2, 4>;
        }
    }
};

// A run of pixels that miss the same taps, `channels` from c on. `n` and `bits`: see FixedFinish.
template <class Count, bool by_byte, bool sure>
BCNN_NOINLINE void fixed_finish_run(const FixedBinaryConvData& d, const FixedBinaryConvStep& s, int p0, int pixels,
                                    int c, int channels, int b, int branches, Count* const* n, const uint8_t* bits,
                                    const int* which) {
    static constexpr FixedPasses<Count, by_byte, sure> passes;
    const bool last = b + branches == d.branches;
    const auto& by_sum = passes.of[branches == 2 ? two_branches : b ? one_more : one_branch];
    const auto pass = last ? by_sum[d.end.adds][d.end.prelu][d.end.then] : by_sum[0][0][0];
    FixedFinish<Count> f;  // not all zeros: that is `rep stos`, which takes longer than the rest of this function
    f.pixels = pixels;
    f.n_next = d.counted;
    f.bits = bits;
    f.bytes = d.bits;
    f.weight_group = d.weight_group;
    for (int i = 0; i < 3; i++) f.add[i] = nullptr, f.add_next[i] = 0;
    for (int at = c; at < c + channels; at += kShortLine) {
        f.weight = d.branch[b].weight + size_t(at / group) * d.weight_group;
        for (int i = 0; i < branches; i++) {
            const FixedBranchData& branch = d.branch[b + i];
            f.n[i] = n[i] + (at - c);
            f.constant[i] = branch.constant + size_t(which[i]) * size_t(padded_to(d.o)) + at;
            f.scale[i] = branch.scale + at;
            f.offset[i] = branch.offset + at;
            f.up[i] = branch.up;
        }
        for (int i = 0; i < 3; i++) {
            if (!last || (i == 2 ? d.end.then != 2 : i >= d.end.adds)) continue;
            const View v = s.add_view[i];
            const int in = at < v.period ? at : at % v.period;  // a division only where channels repeat
            const int next = wrapped(in + short_lanes, v.period);
            f.add[i] = s.add[i] + size_t(p0) * kShortLine + place_of<int16_t>(v, in);
            f.add_next[i] = place_of<int16_t>(v, next) - place_of<int16_t>(v, in);
        }
        f.out = s.out + size_t(p0) * kShortLine + place_of<int16_t>(s.out_view, at);
        pass(f, d.end, at);
    }
}

// The counts of one branch for `channels` from c on, by table: no bits, no dots. Loads are what it waits for: the four
// channels of a pixel are one, and a function of its own keeps all pointers in registers.
template <class Count>
BCNN_NOINLINE void count_by_rank(const FixedRankTable& t, const int16_t* x, int pixels, int c, int channels, Count* n,
                                 int next) {
    const uint16_t *r0 = t.offset[0], *r1 = t.offset[1], *r2 = t.offset[2], *r3 = t.offset[3];
    sum_rows(t, pixels, c, channels, n, next, [=](int p, int* at) __attribute__((always_inline)) {
        uint64_t four;
        __builtin_memcpy(&four, x + size_t(p) * kShortLine, sizeof four);
        at[0] = r0[int16_t(four)] + r1[int16_t(four >> 16)];
        at[1] = r2[int16_t(four >> 32)] + r3[int16_t(four >> 48)];
    });
}

template <class Count, bool by_byte, bool sure, int reads>
static void fixed_conv_counting(const FixedBinaryConvData& d, const FixedBinaryConvStep& s) {
    Count* const n[2] = {(Count*)s.scratch, (Count*)s.scratch + kBlock * most_counted};
    uint8_t* const words = s.scratch + 2 * kBlock * most_counted * sizeof(Wide);
    uint8_t* const bits = words + 2 * words_bytes(d.gather);
    const size_t block_bits = branch_bits(d);
    const int made = reads == taps ? d.o / d.gather.groups : d.o;
    for (int p0 = 0; p0 < s.pixels; p0 += d.block) {
        const int pixels = least(d.block, s.pixels - p0);
        for (int b0 = 0; b0 < d.branches; b0 += kBranches) {
            const int b1 = least(b0 + kBranches, d.branches);
            for (int b = b0; b < b1; b++) {
                uint8_t* const to = bits + (b - b0) * block_bits;
                if (reads != values)
                    gather_block(d, s.taps[b], p0, pixels, words, to);
                else if (!d.branch[b].table)
                    short_sign_pack(s.x + size_t(p0) * kShortLine, pixels, s.x_view, d.branch[b].above, to, d.bits);
            }
            for (int c = s.channel_begin, channels; c < s.channel_end; c += channels) {
                channels = counted<reads != values>(d, s.channel_end, c);
                const size_t skip = reads == taps ? size_t(c / made) * size_t(d.block / together) * d.bits : 0;
                for (int b = b0; b < b1;) {
                    const int branches = b || !sure || in_registers<Count> ? 1 : least(2, b1 - b);
                    const uint8_t* const from = bits + (b - b0) * block_bits + skip;
                    for (int i = 0; i < branches && !in_registers<Count>; i++) {
                        if constexpr (reads == values && sizeof(Count) == 1 && !in_registers<Count>) {
                            if (const FixedRankTable* const table = d.branch[b + i].table) {
                                count_by_rank(*table, s.x + size_t(p0) * kShortLine, pixels, c, channels, n[i],
                                              d.counted);
                                continue;
                            }
                        }
                        if constexpr (reads == plain_taps)
                            count_plain(d, d.branch[b + i].weight, from + i * block_bits, pixels, c, channels, n[i]);
                        else if constexpr (!in_registers<Count>)
                            count(d, d.branch[b + i].weight, from + i * block_bits, pixels, c, channels, n[i]);
                    }
                    const auto classes = [&](int p, int* which) {
                        for (int i = 0; i < branches; i++)
                            which[i] = reads != values ? class_of(d.gather, s.taps[b + i], p0 + p) : 0;
                    };
                    for (int first = 0, last; first < pixels; first = last) {
                        int which[2] = {0, 0}, next[2] = {0, 0};
                        classes(first, which);
                        for (last = reads != values ? first + 1 : pixels; last < pixels; last++) {
                            classes(last, next);
                            if (next[0] != which[0] || next[1] != which[1]) break;
                        }
                        Count* const run[2] = {n[0] + first * d.counted, n[1] + first * d.counted};
                        fixed_finish_run<Count, by_byte, sure>(d, s, p0 + first, last - first, c, channels, b, branches,
                                                               run, from + size_t(first) * d.bits, which);
                    }
                    b += branches;
                }
            }
        }
    }
}

template <int reads>
BCNN_INLINE void fixed_conv_of(const FixedBinaryConvData& d, const FixedBinaryConvStep& s) {
    if constexpr (sizeof(Narrow) == 1) {  // else counts are never narrow
        if (d.narrow && d.sure && d.by_byte) return fixed_conv_counting<Narrow, true, true, reads>(d, s);
        if (d.narrow) return fixed_conv_counting<Narrow, false, false, reads>(d, s);
    }
    const auto by = d.sure ? fixed_conv_counting<ShortCounting, false, true, reads>
                           : fixed_conv_counting<ShortCounting, false, false, reads>;
    by(d, s);
}
static void fixed_binary_conv(const FixedBinaryConvData& d, const FixedBinaryConvStep& s) {
    fixed_conv_of<values>(d, s);
}
static void fixed_bit_conv(const FixedBinaryConvData& d, const FixedBinaryConvStep& s) {
    if (d.plain) return fixed_conv_counting<ShortCount, false, false, plain_taps>(d, s);
    fixed_conv_of<taps>(d, s);
}
