// Binary convolution, written once over the primitives of an instruction set: make the bits of a block of pixels,
// count, finish.
//
// The .inl files are included inside that set's namespace, after its header, in a target region. No standard library in
// here: an inline std function compiled in a target region could be the copy that the linker keeps for everyone, and
// crash a machine without those instructions. Lanes are always channels, so no sum ever crosses lanes and every value
// is computed in the order that bcnn/program/ops states.

constexpr int pad_vectors = kPad / lanes;

BCNN_INLINE int least(int a, int b) { return a < b ? a : b; }
BCNN_INLINE constexpr int most(int a, int b) { return a > b ? a : b; }

template <int n>
struct Number {
    static constexpr int value = n;
};

// --- bits ------------------------------------------------------------------------------------------------------------

// x >= threshold of a row, as words: bit c % 32 of word c // 32.
static void sign_words(const float* x, View v, int pixels, const float* threshold, int words, uint32_t* out) {
    uint8_t* const bits = (uint8_t*)out;
    for (int j = 0, c = 0; j < words * 32 / lanes; j++) {
        const Floats t = load(threshold + j * lanes);
        const float* const from = x + place_of(v, c);
        uint8_t* to = bits + j * (lanes / 8);
        for (int p = 0; p < pixels; p++, to += 4 * words) {
            const unsigned mask = at_least(load(from + size_t(p) * kLine), t);
            __builtin_memcpy(to, &mask, lanes / 8);  // little endian, as all these machines
        }
        c = wrapped(c + lanes, v.period);
    }
}

struct Copied {  // copied in whole registers; up to 28 bytes more than asked for are read and written
    uint32_t words[8];
};
BCNN_INLINE void copy_words(uint32_t* to, const uint32_t* from, int count) {
    for (int i = 0; i < count; i += 8) {
        Copied part;
        __builtin_memcpy(&part, from + i, sizeof part);
        __builtin_memcpy(to + i, &part, sizeof part);
    }
}

// The words of all taps of an output pixel, raster order, one group.
BCNN_INLINE void gather_pixel(const Gather& g, const BitRows& from, int pixel, int group_index, uint32_t* to) {
    const int y = pixel / g.out_width, x = pixel - y * g.out_width;
    const int pixel_words = g.words * g.groups, skip = group_index * g.words, first = x * g.stride - from.left;
    const bool inside = first >= 0 && first + (g.kernel_width - 1) * g.dilation < g.width;
    const bool runs = inside && (g.dilation == 1 || g.kernel_width == 1) && g.groups == 1;
    for (int ky = 0; ky < g.kernel_height; ky++, to += g.kernel_width * g.words) {
        const uint32_t* const row = from.rows[y * g.kernel_height + ky];
        if (row && runs) {
            copy_words(to, row + ptrdiff_t(first) * pixel_words, g.kernel_width * g.words);
            continue;
        }
        for (int kx = 0; kx < g.kernel_width; kx++) {
            const int column = first + kx * g.dilation;
            const uint32_t* const at =
                row && 0 <= column && column < g.width ? row + ptrdiff_t(column) * pixel_words : from.pad;
            copy_words(to + kx * g.words, at + skip, g.words);
        }
    }
}

// Which taps of an output pixel are missing; 0: none.
BCNN_INLINE int class_of(const Gather& g, const BitRows& from, int pixel) {
    if (!from.row_class) return 0;
    const int y = pixel / g.out_width, x = pixel - y * g.out_width;
    return from.row_class[y] * from.column_classes + from.column_class[x];
}
BCNN_INLINE int padded_to(int channels) { return (channels + kPad - 1) / kPad * kPad; }

BCNN_INLINE int dot_words(const Gather& g) { return g.kernel_height * g.kernel_width * g.words; }
BCNN_INLINE size_t words_bytes(const Gather& g) { return (size_t(dot_words(g)) * 4 + kSlack + 63) / 64 * 64; }

// Bits of one block for every group: [group][pixels / together][d.bits]; if `plain`, words [pixel][group].
BCNN_NOINLINE void gather_block(const DotsData& d, const BitRows& from, int p0, int pixels, uint8_t* words,
                                uint8_t* bits) {
    const Gather& g = d.gather;
    const int count = dot_words(g);
    for (int i = 0; i < g.groups; i++) {
        uint8_t* to = bits + (d.plain ? size_t(i) * d.bits : size_t(i) * size_t(d.block / together) * d.bits);
        if (d.plain) {
            uint32_t* const one = (uint32_t*)words;
            for (int p = 0; p < pixels; p++, to += d.bits * size_t(g.groups)) {
                gather_pixel(g, from, p0 + p, i, one);
                __builtin_memcpy(to, one, size_t(count) * 4);
            }
        } else if (together == 1) {
            for (int p = 0; p < pixels; p++, to += d.bits) gather_pixel(g, from, p0 + p, i, (uint32_t*)to);
        } else {
            uint32_t* const one = (uint32_t*)words;
            uint32_t* const other = (uint32_t*)(words + words_bytes(g));
            for (int p = 0; p < pixels; p += together, to += d.bits) {
                gather_pixel(g, from, p0 + p, i, one);
                gather_pixel(g, from, p0 + least(p + 1, pixels - 1), i, other);
                spread_words(one, other, count, to);
            }
        }
    }
}

// --- counts ----------------------------------------------------------------------------------------------------------

// The widest tile. Not more: the counts of a block are to stay in L1, and those of AVX-512 are words.
constexpr int most_counted = most(kPad, group* tile_groups);

// n = popcount(x ^ w) of a block of pixels and G groups of channels; `next`: from a pixel's counts to the next one's.
template <int G, class Count>
BCNN_NOINLINE void dots(const uint8_t* bits, size_t bytes, int pixels, const uint8_t* w, size_t w_group, Count* n,
                        int next) {
    constexpr int T = tile_pixels * tile_groups / G;  // as many sums at a time with fewer groups
    int p = 0;
    for (; p + T <= pixels; p += T) dot<T, G>(bits + p / together * bytes, bytes, w, w_group, n + p * next, next);
    for (; p + 2 <= pixels; p += 2) dot<2, G>(bits + p / together * bytes, bytes, w, w_group, n + p * next, next);
    if (p < pixels) dot<together, G>(bits + p / together * bytes, bytes, w, w_group, n + p * next, next);
}

// The same for any number of groups: as many as a tile has, then half as many.
template <int G, class Count>
BCNN_INLINE void dots_of(const uint8_t* bits, size_t bytes, int pixels, const uint8_t* w, size_t w_group, int groups,
                         Count* n, int next) {
    int g = 0;
    for (; g + G <= groups; g += G) dots<G>(bits, bytes, pixels, w + g * w_group, w_group, n + g * group, next);
    if constexpr (G > 1) dots_of<G / 2>(bits, bytes, pixels, w + g * w_group, w_group, groups - g, n + g * group, next);
}

// The counts of one branch for `channels` from c on.
template <class Count>
BCNN_INLINE void count(const DotsData& d, const uint8_t* weight, const uint8_t* bits, int pixels, int c, int channels,
                       Count* n) {
    const int groups = (channels + group - 1) / group;
    const uint8_t* const w = weight + size_t(c / group) * d.weight_group;
    dots_of<tile_groups>(bits, d.bits, pixels, w, d.weight_group, groups, n, d.counted);
}

// The same from the rows of a RankTable: `each(p, at)` says which.
template <class Count, class Each>
BCNN_INLINE void sum_rows(const RankTable& t, int pixels, int c, int channels, Count* n, int next, const Each& each) {
    const uint8_t *first = t.rows[0] + c, *second = t.rows[1] + c;
    for (int i = 0; i < channels; i += kShortLine)
        for (int p = 0; p < pixels; p++) {
            int at[2];
            each(p, at);
            add_rows(first + at[0] + i, second + at[1] + i, n + p * next + i);
        }
}

// `ranks`: of rank_pack.
template <class Count>
BCNN_INLINE void count_by_rank(const FloatRankTable& t, const uint8_t* ranks, int pixels, int c, int channels, Count* n,
                               int next) {
    sum_rows(t, pixels, c, channels, n, next, [=](int p, int* at) __attribute__((always_inline)) {
        uint16_t of[2];
        __builtin_memcpy(of, ranks + size_t(p) * sizeof of, sizeof of);
        at[0] = of[0];
        at[1] = of[1];
    });
}

// The same word by word: any channel may be in another group.
template <class Count>
BCNN_NOINLINE void count_plain(const DotsData& d, const uint8_t* weight, const uint8_t* bits, int pixels, int c,
                               int channels, Count* n) {
    const int words = dot_words(d.gather), made = d.o / d.gather.groups;
    for (int p = 0; p < pixels; p++)
        for (int i = 0; i < channels; i++) {
            const uint32_t* const w = (const uint32_t*)weight + size_t(c + i) * size_t(words);
            const uint32_t* const x =
                (const uint32_t*)(bits + (size_t(p) * size_t(d.gather.groups) + size_t((c + i) / made)) * d.bits);
            int sum = 0;
            for (int j = 0; j < words; j++) sum += __builtin_popcount(x[j] ^ w[j]);
            n[p * d.counted + i] = Count(sum);
        }
}

// --- what follows ----------------------------------------------------------------------------------------------------

// A kind of counts that never leave registers: `Counting` and `ShortCounting`, where they are not just what counts are in
// memory.
template <class Count>
constexpr bool in_registers = __is_class(Count);

// Where `finish` reads and writes, at the first pixel of a run and the first channel of its registers. Its counts are in
// memory, of up to two branches; or, of one, still bits and weights.
template <class Count>
struct Finish {
    const Count* n[2];
    const uint8_t *bits, *weight;
    size_t bytes, weight_group;  // from a pixel's bits to the next one's, from a group's weights to the next one's
    const float *scale[2], *offset[2];
    const float *add[2], *slope[2];
    float* out;
    int pixels;
    ptrdiff_t n_next;                 // from a pixel's counts to the next one's
    ptrdiff_t add_next[2], out_next;  // from the first register's channels to the second's: replication may lead back
};

enum Sum { one_branch, two_branches, one_more };  // one_more: onto the sum of the branches before it, which is in `out`

// Scale and offset of up to two branches, their sum, then the endings in `end`, for V registers of channels of a run of
// pixels.
template <class Count, int end, int sum, int V>
static void finish(const Finish<Count>& f) {
    constexpr int B = sum == two_branches ? 2 : 1;
    Floats scale[B][V], offset[B][V], slope[2][V];
    for (int j = 0; j < V; j++) {
        for (int b = 0; b < B; b++) {
            scale[b][j] = load(f.scale[b] + j * lanes);
            offset[b][j] = load(f.offset[b] + j * lanes);
        }
        slope[0][j] = end & prelu_first ? load(f.slope[0] + j * lanes) : offset[0][j];
        slope[1][j] = end & prelu_second ? load(f.slope[1] + j * lanes) : offset[0][j];
    }
    const Count *n = f.n[0], *second = f.n[B - 1];
    const float *x = f.add[0], *other = f.add[1];
    const uint8_t* bits = f.bits;
    float* out = f.out;
    const ptrdiff_t n_next = f.n_next, x_next = f.add_next[0], other_next = f.add_next[1], out_next = f.out_next;
    int p = f.pixels;
    const auto pixels = [&](auto count) __attribute__((always_inline)) {
        constexpr int T = decltype(count)::value;
        // Step by step for all T * V registers: each step waits for the one before it, the registers do not wait for
        // each other.
        Floats v[T][V], u[T][V];
#define BCNN_EACH(STEP)         \
    for (int t = 0; t < T; t++) \
        for (int j = 0; j < V; j++) STEP;
        if constexpr (in_registers<Count>)
            Count::template each<T, V>(bits, f.bytes, f.weight, f.weight_group,
                                       [&](int t, const Floats* of) __attribute__((always_inline)) {
                                           for (int j = 0; j < V; j++) v[t][j] = of[j];
                                       });
        else
            BCNN_EACH(v[t][j] = in_order(counts(n + t * n_next + j * lanes)))
        BCNN_EACH(v[t][j] = in_order(mul(v[t][j], scale[0][j])))
        BCNN_EACH(v[t][j] = in_order(add(v[t][j], offset[0][j])))
        if (sum == one_more) BCNN_EACH(v[t][j] = in_order(add(load(out + t * kLine + j * out_next), v[t][j])))
        if constexpr (sum == two_branches) {
            BCNN_EACH(u[t][j] = in_order(counts(second + t * n_next + j * lanes)))
            BCNN_EACH(u[t][j] = in_order(mul(u[t][j], scale[B - 1][j])))
            BCNN_EACH(u[t][j] = in_order(add(u[t][j], offset[B - 1][j])))
            BCNN_EACH(v[t][j] = in_order(add(v[t][j], u[t][j])))
        }
        if (end & add_first) BCNN_EACH(v[t][j] = in_order(add(load(x + t * kLine + j * x_next), v[t][j])))
        if (end & prelu_first) BCNN_EACH(v[t][j] = in_order(prelu(v[t][j], slope[0][j])))
        if (end & add_second) BCNN_EACH(v[t][j] = in_order(add(load(other + t * kLine + j * other_next), v[t][j])))
        if (end & prelu_second) BCNN_EACH(v[t][j] = in_order(prelu(v[t][j], slope[1][j])))
#undef BCNN_EACH
        for (int t = 0; t < T; t++)
            for (int j = 0; j < V; j++) store(out + t * kLine + j * out_next, v[t][j]);
        if (in_registers<Count>)
            bits += T * f.bytes;
        else
            n += T * n_next;
        if (B == 2) second += T * n_next;
        if (end & add_first) x += T * kLine;
        if (end & add_second) other += T * kLine;
        out += T * kLine;
    };
    constexpr int most = in_registers<Count> ? tile_pixels : 2;
    for (; p >= most; p -= most) pixels(Number<most>());
    for (; p > 0; p--) pixels(Number<1>());
}

template <class Count>
using Pass = void (*)(const Finish<Count>&);

template <class Count>
struct Passes {  // finish for every ending, sum and number of registers
    Pass<Count> of[16][3][2];
    constexpr Passes() : of() { fill<15>(); }
    template <int end>
    constexpr void fill() {
        fill_sum<end, one_branch>();
        if constexpr (!in_registers<Count>) fill_sum<end, two_branches>();
        fill_sum<end, one_more>();
        if constexpr (end > 0) fill<end - 1>();
    }
    template <int end, int sum>
    constexpr void fill_sum() {
        of[end][sum][0] = finish<Count, end, sum, 1>;
        of[end][sum][1] = finish<Count, end, sum, finish_registers>;
    }
};

// Pixels of which taps are missing, one branch: each has what its class adds to the counts. Anything may follow.
template <class Count>
BCNN_NOINLINE void finish_border(const Finish<Count>& f, const float* const* correction, ptrdiff_t at, int end,
                                 bool more) {
    const Floats scale = load(f.scale[0]), offset = load(f.offset[0]);
    for (int p = 0; p < f.pixels; p++) {
        Floats v;
        if constexpr (in_registers<Count>)
            Count::template each<1, 1>(f.bits + p * f.bytes, f.bytes, f.weight, f.weight_group,
                                       [&](int, const Floats* of) __attribute__((always_inline)) { v = of[0]; });
        else
            v = counts(f.n[0] + p * f.n_next);
        if (correction[p]) v = add(v, load(correction[p] + at));
        v = add(mul(v, scale), offset);
        if (more) v = add(load(f.out + p * kLine), v);
        if (end & add_first) v = add(load(f.add[0] + p * kLine), v);
        if (end & prelu_first) v = prelu(v, load(f.slope[0]));
        if (end & add_second) v = add(load(f.add[1] + p * kLine), v);
        if (end & prelu_second) v = prelu(v, load(f.slope[1]));
        store(f.out + p * kLine, v);
    }
}

// Two registers of channels at a time, from channel c on.
template <class Count, class Each>
BCNN_INLINE void each_register(const BinaryConvData& d, const BinaryConvStep& s, int p0, int c, int channels, int b,
                               int branches, Count* const* n, const uint8_t* bits, int step, const Each& each) {
    const int vectors = (channels + lanes - 1) / lanes;
    Finish<Count> f;
    f.n_next = d.counted;
    f.bits = bits;
    f.bytes = d.bits;
    f.weight_group = d.weight_group;
    int in[2];
    for (int i = 0; i < 2; i++) in[i] = c % s.add_view[i].period;
    for (int j = 0; j < vectors; j += step) {
        const int at = c + j * lanes;
        f.weight = d.branch[b].weight + size_t(at / group) * d.weight_group;
        for (int i = 0; i < branches; i++) {
            f.n[i] = n[i] + j * lanes;
            f.scale[i] = d.branch[b + i].scale + at;
            f.offset[i] = d.branch[b + i].offset + at;
        }
        for (int i = 0; i < 2; i++) {
            const int next = wrapped(in[i] + lanes, s.add_view[i].period);
            f.add[i] = s.add[i] + size_t(p0) * kLine + place_of(s.add_view[i], in[i]);
            f.add_next[i] = place_of(s.add_view[i], next) - place_of(s.add_view[i], in[i]);
            in[i] = step == 1 ? next : wrapped(next + lanes, s.add_view[i].period);
            f.slope[i] = d.slope[i] + at;
        }
        f.out = s.out + size_t(p0) * kLine + place_of(s.out_view, at);
        f.out_next = place_of(s.out_view, at + lanes) - place_of(s.out_view, at);
        each(f, at, j + 1 < vectors);
    }
}

template <class Count>
BCNN_INLINE void finish_block(const BinaryConvData& d, const BinaryConvStep& s, int p0, int pixels, int c, int channels,
                              int b, int branches, Count* const* n, const uint8_t* bits) {
    static constexpr Passes<Count> passes;
    const int end = b + branches == d.branches ? d.end : 0;
    const auto& pass = passes.of[end][branches == 2 ? two_branches : b ? one_more : one_branch];
    each_register(d, s, p0, c, channels, b, branches, n, bits, finish_registers,
                  [&](Finish<Count>& f, int, bool pair) __attribute__((always_inline)) {
                      f.pixels = pixels;
                      pass[pair](f);
                  });
}

// The same where taps may be missing: runs of pixels that have all of them, and of pixels that do not.
template <class Count>
BCNN_NOINLINE void finish_taps(const BinaryConvData& d, const BinaryConvStep& s, int p0, int pixels, int c,
                               int channels, int b, int branches, Count* const* n, const uint8_t* bits) {
    const float* correction[2][kBlock];
    const auto missing = [&](int p) { return correction[0][p] || (branches == 2 && correction[1][p]); };
    for (int i = 0; i < branches; i++) {
        const BitRows& from = s.taps[b + i];
        for (int p = 0; p < pixels; p++) {
            const int which = class_of(d.gather, from, p0 + p);
            correction[i][p] = which ? d.branch[b + i].correction + size_t(which) * size_t(padded_to(d.o)) : nullptr;
        }
    }
    for (int first = 0, last; first < pixels; first = last) {
        const bool border = missing(first);
        for (last = first + 1; last < pixels && missing(last) == border;) last++;
        Count* const run[2] = {n[0] + first * d.counted, n[1] + first * d.counted};
        const uint8_t* const bits_of_run = bits + size_t(first) * d.bits;
        if (!border) {
            finish_block(d, s, p0 + first, last - first, c, channels, b, branches, run, bits_of_run);
            continue;
        }
        for (int i = 0; i < branches; i++) {
            Count* const own[2] = {run[i], run[i]};
            const int end = b + i + 1 == d.branches ? d.end : 0;
            each_register(d, s, p0 + first, c, channels, b + i, 1, own, bits_of_run, 1,
                          [&](Finish<Count>& f, int at, bool) __attribute__((always_inline)) {
                              f.pixels = last - first;
                              finish_border(f, correction[i] + first, at, end, b + i > 0);
                          });
        }
    }
}

// --- all of it -------------------------------------------------------------------------------------------------------

BCNN_INLINE size_t branch_bits(const DotsData& d) {  // of a block of one branch
    const size_t pixels = d.plain ? size_t(d.block) : size_t(d.block / together);
    return (pixels * d.bits * size_t(d.gather.groups) + 63) / 64 * 64;
}

static size_t scratch_bytes(const DotsData& d) {
    return 2 * kBlock * most_counted * sizeof(Wide) + 2 * words_bytes(d.gather) +
           size_t(least(kBranches, d.branches)) * branch_bits(d) + kSlack;
}

// How many channels are counted at a time from c on: of one group, unless they are counted word by word.
template <bool taps>
BCNN_INLINE int counted(const DotsData& d, int channel_end, int c) {
    const int most = least(d.counted, channel_end - c);
    if (!taps || d.plain) return most;
    const int made = d.o / d.gather.groups;
    return least(most, made - c % made);
}

// What a convolution reads: values, whose signs it takes; bits of taps; or those word by word (DotsData::plain).
enum Reads { values, taps, plain_taps };

template <class Count, int reads>
static void binary_conv_counting(const BinaryConvData& d, const BinaryConvStep& s) {
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
                else if (rank_replicas && d.branch[b].table)
                    rank_pack(s.x + size_t(p0) * kLine, pixels, *d.branch[b].table, to);
                else
                    sign_pack(s.x + size_t(p0) * kLine, pixels, s.x_view, d.branch[b].threshold, to, d.bits);
            }
            for (int c = s.channel_begin, channels; c < s.channel_end; c += channels) {
                channels = counted<reads != values>(d, s.channel_end, c);
                const size_t skip = reads == taps ? size_t(c / made) * size_t(d.block / together) * d.bits : 0;
                for (int b = b0; b < b1;) {
                    // The first two at a time, so that sums are stored less often.
                    const int branches = b || in_registers<Count> ? 1 : least(2, b1 - b);
                    const uint8_t* const from = bits + (b - b0) * block_bits + skip;
                    for (int i = 0; i < branches && !in_registers<Count>; i++) {
                        if constexpr (reads == values && rank_replicas && sizeof(Count) == 1) {
                            if (const FloatRankTable* const table = d.branch[b + i].table) {
                                count_by_rank(*table, from + i * block_bits, pixels, c, channels, n[i], d.counted);
                                continue;
                            }
                        }
                        if constexpr (reads == plain_taps)
                            count_plain(d, d.branch[b + i].weight, from + i * block_bits, pixels, c, channels, n[i]);
                        else if constexpr (!in_registers<Count>)
                            count(d, d.branch[b + i].weight, from + i * block_bits, pixels, c, channels, n[i]);
                    }
                    if (reads != values)
                        finish_taps(d, s, p0, pixels, c, channels, b, branches, n, from);
                    else
                        finish_block(d, s, p0, pixels, c, channels, b, branches, n, from);
                    b += branches;
                }
            }
        }
    }
}

template <int reads>
BCNN_INLINE void conv_of(const BinaryConvData& d, const BinaryConvStep& s) {
    if constexpr (sizeof(Narrow) == 1) {  // else counts are never narrow
        if (d.narrow) return binary_conv_counting<Narrow, reads>(d, s);
    }
    binary_conv_counting<Counting, reads>(d, s);
}
static void binary_conv(const BinaryConvData& d, const BinaryConvStep& s) { conv_of<values>(d, s); }
static void bit_conv(const BinaryConvData& d, const BinaryConvStep& s) {
    if (d.plain) return binary_conv_counting<Wide, plain_taps>(d, s);
    conv_of<taps>(d, s);
}
