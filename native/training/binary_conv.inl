// The binary convolution and what follows it: forward and backward, two passes each. Part of kernels.inl.

// The K channels that a convolution reads of some pixels: channel k of pixel m is data[m * channels + k % channels].
struct Source {
    const float* data;
    size_t channels;
    BCNN_MEMBER const float* at(size_t k) const { return data + (k < channels ? k : k % channels); }
};

// Pixels m ... m+n of x. Where a vector of channels could run past the last of x's, they are replicated into `scratch` [n][K].
static Source source(const BinaryConv& conv, size_t m, size_t n, float* scratch) {
    const size_t from = conv.channels_in, to = conv.inputs;
    const float* x = conv.x + m * from;
    if (from == to || from % kLanes == 0) return {x, from};
    if (from == 4 && to % 8 == 0) {  // colours and intensity
        for (size_t i = 0; i < n; i++, x += 4) {
            const f4 v = load<f4>(x);
            const f8 two = __builtin_shufflevector(v, v, 0, 1, 2, 3, 0, 1, 2, 3);
            for (size_t k = 0; k < to; k += 8) store(scratch + i * to + k, two);
        }
        return {scratch, to};
    }
    for (size_t i = 0; i < n; i++, x += from) {
        float* row = scratch + i * to;
        for (size_t c = 0; c < from; c += 4)
            for (size_t k = c; k < to; k += from) {
                const size_t count = least(4, least(from - c, to - k));
                if (count == 4)
                    store(row + k, load<f4>(x + c));
                else
                    for (size_t j = 0; j < count; j++) row[k + j] = x[c + j];
            }
    }
    return {scratch, to};
}

// Eight rows k of the weights that lanes o ... use, [8][lanes]; past the end of either, zero.
static void weight_rows(const BinaryConv& conv, const float* weight, size_t o, size_t k, size_t lanes, float* rows) {
    for (size_t lane = 0; lane < lanes; lane += 8) {
        if (o + lane + 8 <= conv.channels && k + 8 <= conv.inputs) {
            transpose8(weight + (o + lane) * conv.inputs + k, conv.inputs, rows + lane, lanes);
            continue;
        }
        for (size_t i = 0; i < 8; i++)
            for (size_t j = lane; j < lane + 8; j++)
                rows[i * lanes + j] =
                    o + j < conv.channels && k + i < conv.inputs ? weight[(o + j) * conv.inputs + k + i] : 0;
    }
}

// The weights that the convolution uses: their signs (Eq. 3), or in step 1 themselves.
BCNN_INLINE void used_weights(const float* latent, size_t lanes, bool inside, int8_t* __restrict used) {
    for (size_t lane = 0; lane < lanes; lane++) used[lane] = !inside ? 0 : latent[lane] >= 0 ? 1 : -1;
}
BCNN_INLINE void used_weights(const float* latent, size_t lanes, bool, float* __restrict used) {
    for (size_t lane = 0; lane < lanes; lane++) used[lane] = latent[lane];
}

// All signed sums of one panel of lanes o: [group of k][16][lanes], see step 3 in signs.inl.
template <class V, class T>
static void weight_table(const BinaryConv& conv, const float* weight, size_t panel, char* table) {
    constexpr size_t lanes = kRow / sizeof(T);
    alignas(64) float latent[8 * lanes];
    alignas(64) T rows[8][lanes];
    for (size_t k = 0; k < conv.inputs; k += 8) {
        weight_rows(conv, weight, panel * lanes, k, lanes, latent);
        for (size_t i = 0; i < 8; i++) used_weights(latent + i * lanes, lanes, k + i < conv.inputs, rows[i]);
        for (size_t i = 0; i < 8 && k + i < conv.inputs; i += kGroup, table += kTable) {
            const char* pointers[kGroup];
            for (size_t j = 0; j < kGroup; j++) pointers[j] = (const char*)rows[i + j];
            signed_sums<V>(pointers, table);
        }
    }
}

// The signs of pixels m ... m+n as numbers of table rows, [n][groups].
static void index_rows(const BinaryConv& conv, const Branch& branch, size_t m, size_t n, float* scratch,
                       uint8_t* index) {
    const size_t groups = units(conv.inputs, kGroup);
    const Source x = source(conv, m, n, scratch);
    for (size_t i = 0; i < n; i++, index += groups)
        for (size_t k = 0; k < conv.inputs; k += x.channels)
            index_channels(x.data + i * x.channels, branch.bias + k, least(x.channels, conv.inputs - k),
                           index + k / kGroup);
}

// Dots of a row of channels, the first ones or more of them.
BCNN_INLINE void write_dots(const int8_t* from, size_t width, bool first, int16_t* to) {
    size_t k = 0;
    for (; k + 16 <= width; k += 16) {
        const i16x16 dots = __builtin_convertvector(load<i8x16>(from + k), i16x16);
        store(to + k, first ? dots : i16x16(load<i16x16>(to + k) + dots));
    }
    for (; k < width; k++) to[k] = int16_t(first ? from[k] : to[k] + from[k]);
}
BCNN_INLINE void write_dots(const float* from, size_t width, bool first, float* __restrict to) {
    for (size_t k = 0; k < width; k++) to[k] = first ? from[k] : to[k] + from[k];
}

// First pass: y = sign(x + bias) x weight of n pixels and some panels of channels. T is the table's type, Y that of the map y.
template <class V, class T, class Y>
static void convolve(const BinaryConv& conv, const uint8_t* index, const char* table, size_t n, Range panels,
                     T* partial, Y* y) {
    constexpr size_t lanes = kRow / sizeof(T);
    const size_t channels = conv.channels, groups = units(conv.inputs, kGroup);
    for (size_t panel = panels.begin; panel < panels.end; panel++) {
        const char* panel_table = table + panel * groups * kTable;
        const size_t width = least(lanes, channels - panel * lanes);
        for (size_t group = 0; group < groups; group += kChunk) {
            select_sum<V>(panel_table + group * kTable, index + group, groups, 1, least(kChunk, groups - group), n,
                          (char*)partial, false);
            for (size_t i = 0; i < n; i++)
                write_dots(partial + i * lanes, width, group == 0, y + i * channels + panel * lanes);
        }
    }
}

// Pixels of one module, rows of O channels: what the element-wise kernels read. They take a few pixels a turn, one panel of channels
// after the other: what is known of channels stays in registers, and maps larger than the cache are still read in their own order.
template <class Y>
struct Rows {
    const BinaryConv& conv;
    size_t first, count;
    Source x;  // where it is added
    const float *scale, *offset;

    const Y* y(size_t p) const { return static_cast<const Y*>(conv.branch[p].y) + first * conv.channels; }
    const float* add() const { return conv.add ? conv.add + first * conv.channels : nullptr; }
};

// v = x + sum of branches (+ add): what the PReLU reads, of pixel m, channels k and on.
template <class F, class Y>
struct BeforePrelu {
    BeforePrelu(const Rows<Y>& rows, size_t k_)
        : k(k_),
          channels(rows.conv.channels),
          branches(rows.conv.branches),
          r(rows),
          x(rows.conv.identity ? rows.x.at(k_) : nullptr),
          y(rows.y(0) + k_),
          add(rows.conv.prelu_before_add || !rows.conv.add ? nullptr : rows.add() + k_),
          scale(load<F>(rows.scale + k_)),
          offset(load<F>(rows.offset + k_)) {}

    BCNN_MEMBER F operator()(size_t m, F y0) const {
        F v = scale * y0 + offset;
        if (x) v = load<F>(x + m * r.x.channels) + v;
        for (size_t p = 1; p < branches; p++)
            v += load<F>(r.scale + p * channels + k) * load_y<F>(r.y(p) + m * channels + k) +
                 load<F>(r.offset + p * channels + k);
        return add ? v + load<F>(add + m * channels) : v;
    }
    BCNN_MEMBER F first(size_t m) const { return load_y<F>(y + m * channels); }

    size_t k, channels, branches;
    const Rows<Y>& r;
    const float* x;
    const Y* y;
    const float* add;
    F scale, offset;
};

template <class F, class Y>
BCNN_KERNEL void combine_panel(size_t k, const Rows<Y>& rows, float* out) {
    const BeforePrelu<F, Y> before(rows, k);
    const size_t channels = rows.conv.channels;
    const F slope = rows.conv.slope ? load<F>(rows.conv.slope + k) : F{} + 1.0f;
    const float* after = rows.conv.prelu_before_add ? rows.add() : nullptr;
    for (size_t m = rows.count; m-- > 0;) {
        const F v = before(m, before.first(m)), scaled = v * slope;
        F result = v > 0 ? v : scaled;
        if (after) result += load<F>(after + m * channels + k);
        store(out + m * channels + k, result);
    }
}

// Second pass: batch norm, identity, another path, PReLU. Backwards, as every second pass: what the first pass touched last is
// still in the cache.
template <class Y>
static void combine(const BinaryConv& conv, const float* scale, const float* offset, Range blocks, float* scratch,
                    float* out) {
    const size_t channels = conv.channels, begin = blocks.begin * kForwardPixels, turn = turn_pixels(channels);
    for (size_t m = least(blocks.end * kForwardPixels, conv.pixels); m > begin;) {
        const size_t n = least(turn, m - begin);
        m -= n;
        const Rows<Y> rows{conv, m, n, conv.identity ? source(conv, m, n, scratch) : Source{}, scale, offset};
        BCNN_PANELS(channels, combine_panel, rows, out + m * channels);
    }
}

template <class V, class T, class Y>
static void forward(const BinaryConv& conv, float* out) {
    typedef typename Record<Y>::type R;
    constexpr size_t lanes = kRow / sizeof(T);
    const size_t channels = conv.channels, inputs = conv.inputs, pixels = conv.pixels, threads = size_t(conv.threads);
    const size_t groups = units(inputs, kGroup), panels = units(channels, lanes),
                 blocks = units(pixels, kForwardPixels);
    // Where blocks are too few to share, so are their panels; then the signs are made once for all, beside the tables.
    const size_t cuts = conv.threads == 1 ? 1 : least(panels, units(4 * threads, blocks));
    const size_t indexed = cuts > 1 ? blocks : threads, chunks = units(channels, kSumChannels),
                 parts = shares(blocks, conv.threads);
    Buffer<char> table(panels * groups * kTable);
    Buffer<float> scratch(threads * kForwardPixels * inputs), scale(conv.branches * channels),
        offset(conv.branches * channels);
    Buffer<uint8_t> index(indexed * kForwardPixels * groups);
    Buffer<T> partial(threads * kForwardPixels * lanes);
    Buffer<R> records(conv.training ? units(pixels, kMomentsPixels) * 2 * channels : 0);
    Buffer<int> pieces(3 * conv.branches + 1);
    for (size_t p = 0; p < conv.branches; p++) {
        pieces[3 * p] = int(panels + (cuts > 1 ? blocks : 0));
        pieces[3 * p + 1] = int(blocks * cuts);
        pieces[3 * p + 2] = int(chunks);
    }
    pieces[3 * conv.branches] = int(parts);
    parallel(conv.threads, pieces, int(3 * conv.branches + 1), [&](int stage, size_t piece, size_t thread) {
        const size_t p = size_t(stage) / 3;
        float* own = scratch + thread * kForwardPixels * inputs;
        if (p == conv.branches)
            return combine<Y>(conv, scale, offset, Range(blocks, mirrored(piece, parts, threads), parts), own, out);
        const Branch& branch = conv.branch[p];
        if (stage % 3 == 0) {
            if (piece < panels) return weight_table<V, T>(conv, branch.weight, piece, table + piece * groups * kTable);
            const size_t m = (piece - panels) * kForwardPixels;
            index_rows(conv, branch, m, least(kForwardPixels, pixels - m), own, index + m * groups);
        } else if (stage % 3 == 1) {
            const size_t block = piece / cuts, m = block * kForwardPixels, n = least(kForwardPixels, pixels - m);
            const Range cut(panels, piece % cuts, cuts);
            uint8_t* signs = index + (cuts > 1 ? block : thread) * kForwardPixels * groups;
            if (cuts == 1) index_rows(conv, branch, m, n, own, signs);
            Y* y = (Y*)branch.y + m * channels;
            convolve<V, T, Y>(conv, signs, table, n, cut, partial + thread * kForwardPixels * lanes, y);
            if (!conv.training) return;
            const size_t first = cut.begin * lanes;
            R* record = records + m / kMomentsPixels * 2 * channels + first;
            measure(y + first, channels, n, least(cut.end * lanes, channels) - first, record, record + channels,
                    2 * channels);
        } else {
            const size_t k = piece * kSumChannels, end = least(k + kSumChannels, channels);
            merge<R>(branch.norm, conv.training, records, 1, pixels, channels, k, end - k);
            fold(branch.norm, k, end, scale + p * channels, offset + p * channels);
        }
    });
}

static void forward(const BinaryConv& conv, float* out) {
    if (conv.binary_weights)
        forward<i8v, int8_t, int16_t>(conv, out);
    else
        forward<fv, float, float>(conv, out);
}

// Gradient at the PReLU's input: g = gradient where v > 0, slope * gradient elsewhere. `sums` are [slope, S, T of each branch][K].
template <class F, class Y>
BCNN_KERNEL void reduce_panel(size_t k, const Rows<Y>& rows, const float* gradient, float* sums) {
    const BeforePrelu<F, Y> before(rows, k);
    const size_t channels = rows.conv.channels, branches = rows.conv.branches;
    const bool prelu = rows.conv.slope;
    const F slope = prelu ? load<F>(rows.conv.slope + k) : F{}, mean = load<F>(rows.conv.branch[0].norm.mean + k),
            zero = F{};
    F slope_sum = F{}, s = F{}, t = F{};
    for (size_t m = 0; m < rows.count; m++) {
        const F y = before.first(m);
        F g = load<F>(gradient + m * channels + k);
        if (prelu) {
            const F v = before(m, y), scaled = g * slope, product = g * v;
            slope_sum += v > 0 ? zero : product;
            g = v > 0 ? g : scaled;
        }
        s += g;
        t += g * (y - mean);
        for (size_t p = 1; p < branches; p++) {
            float* more = sums + (2 + p) * channels + k;
            const F other = load_y<F>(rows.y(p) + m * channels + k) - load<F>(rows.conv.branch[p].norm.mean + k);
            store(more, F(load<F>(more) + g * other));
        }
    }
    store(sums + k, F(load<F>(sums + k) + slope_sum));
    store(sums + channels + k, F(load<F>(sums + channels + k) + s));
    store(sums + 2 * channels + k, F(load<F>(sums + 2 * channels + k) + t));
}

// First pass: the sums that batch norm's gradient needs, of one block.
template <class Y>
static void reduce(const BinaryConv& conv, const float* scale, const float* offset, const float* gradient, size_t block,
                   float* scratch, float* sums) {
    const size_t channels = conv.channels, last = least((block + 1) * kBackwardPixels, conv.pixels),
                 turn = turn_pixels(channels);
    fill(sums, (2 + conv.branches) * channels, 0.0f);
    for (size_t m = block * kBackwardPixels; m < last; m += turn) {
        const size_t n = least(turn, last - m);
        const Rows<Y> rows{conv, m, n, conv.identity ? source(conv, m, n, scratch) : Source{}, scale, offset};
        BCNN_PANELS(channels, reduce_panel, rows, gradient + m * channels, sums);
    }
}

// g again, and the first branch's dy = a * g + (b * y + c), rows of `width`; the other branches' dy by `dy_panel`.
template <class F, class Y>
BCNN_KERNEL void gradient_panel(size_t k, const Rows<Y>& rows, const float* gradient, const float* abc, float* g_out,
                                float* dy, size_t width) {
    const BeforePrelu<F, Y> before(rows, k);
    const size_t channels = rows.conv.channels;
    const bool prelu = rows.conv.slope;
    const F slope = prelu ? load<F>(rows.conv.slope + k) : F{};
    const F a = load<F>(abc + k), b = load<F>(abc + channels + k), c = load<F>(abc + 2 * channels + k);
    for (size_t m = 0; m < rows.count; m++) {
        const F y = before.first(m);
        F g = load<F>(gradient + m * channels + k);
        if (prelu) {
            const F scaled = g * slope;
            g = before(m, y) > 0 ? g : scaled;
        }
        store(g_out + m * channels + k, g);
        store(dy + m * width + k, F(a * g + (b * y + c)));
    }
}

template <class F, class Y>
BCNN_KERNEL void dy_panel(size_t k, const Rows<Y>& rows, size_t p, const float* g, const float* abc, float* dy,
                          size_t width) {
    const size_t channels = rows.conv.channels;
    const F a = load<F>(abc + k), b = load<F>(abc + channels + k), c = load<F>(abc + 2 * channels + k);
    for (size_t m = 0; m < rows.count; m++)
        store(dy + m * width + k,
              F(a * load<F>(g + m * channels + k) + (b * load_y<F>(rows.y(p) + m * channels + k) + c)));
}

// From the gradient of the signs to those of x and bias: Eq. 1. `base` is what dx holds already, if anything.
template <class F>
BCNN_KERNEL void surrogate_panel(size_t k, size_t count, size_t channels, const Source& from, const float* bias,
                                 const float* ds, size_t width, const float* base, float* dx, float* bias_sum) {
    const F b = load<F>(bias + k), zero = F{};
    const float* x = from.at(k);
    F sum = load<F>(bias_sum + k);
    for (size_t m = 0; m < count; m++) {
        const F z = load<F>(x + m * from.channels) + b, size = z > 0 ? z : -z, slope = 2.0f - 2.0f * size;
        const F t = load<F>(ds + m * width + k) * (slope > 0 ? slope : zero);
        store(dx + m * channels + k, base ? F(load<F>(base + m * channels + k) + t) : t);
        sum += t;
    }
    store(bias_sum + k, sum);
}

// The replicas of a channel add up: dx [n][K] to `out` [n][C].
template <class F>
BCNN_KERNEL void replicas_panel(size_t c, size_t n, size_t channels, size_t inputs, const float* dx, float* out) {
    for (size_t m = 0; m < n; m++, dx += inputs, out += channels) {
        F sum = load<F>(dx + c);
        for (size_t k = c + channels; k < inputs; k += channels) sum += load<F>(dx + k);
        store(out + c, sum);
    }
}

// What the second pass needs besides convolution and gradient.
struct Backward {
    const float *scale, *offset;
    const float* folded;   // [P][3][O] of fold_gradient
    const uint8_t* index;  // +-1 weights: [P][group of o][K], see `select_sum`
    const float* packed;   // real weights: [P], see `real_sum`
};

// A thread's memory for it.
struct BackwardScratch {
    float *x, *g, *dx;        // [64][K], [64][O], [64][K]
    float *dy_t, *ds_t, *ds;  // [O][16], [K][16], [16][K], O and K rounded up
    char* table;
    static size_t floats(const BinaryConv& conv) {
        const size_t inputs = round_up(conv.inputs, kLanes), width = round_up(conv.channels, kLanes);
        return kBackwardPixels * (2 * inputs + width) + kLanes * (width + 2 * inputs) + kChunk * kTable / sizeof(float);
    }
    BackwardScratch(const BinaryConv& conv, float* at) {
        const size_t inputs = round_up(conv.inputs, kLanes), width = round_up(conv.channels, kLanes);
        x = at;
        dx = x + kBackwardPixels * inputs;
        g = dx + kBackwardPixels * inputs;
        dy_t = g + kBackwardPixels * width;
        ds_t = dy_t + kLanes * width;
        ds = ds_t + kLanes * inputs;
        table = (char*)(ds + kLanes * inputs);
    }
};

// The sixteen sums of every group of four rows, [groups][16]; `stride` floats from row to row.
BCNN_INLINE void sums_of_groups(const float* rows, size_t stride, size_t groups, char* table) {
    for (size_t group = 0; group < groups; group++) {
        const char* four[kGroup];
        for (size_t i = 0; i < kGroup; i++) four[i] = (const char*)(rows + (group * kGroup + i) * stride);
        signed_sums<fv>(four, table + group * kTable);
    }
}

// The gradient of the signs of sixteen pixels from their dy [16][width]: groups of four o, columns k, lanes m.
static void sign_gradient(const BinaryConv& conv, const Backward& b, size_t p, const float* dy,
                          const BackwardScratch& s) {
    const size_t inputs = conv.inputs, rounded = round_up(inputs, kLanes), width = round_up(conv.channels, kLanes);
    const size_t groups = units(conv.channels, kGroup);
    transpose(dy, width, kLanes, width, s.dy_t, kLanes);
    if (!conv.binary_weights) {
        real_sum(s.dy_t, b.packed + p * round_up(inputs, kColumns) * conv.channels, conv.channels, inputs, s.ds_t);
    } else {
        const uint8_t* index = b.index + p * groups * inputs;
        for (size_t chunk = 0; chunk < groups; chunk += kChunk) {
            const size_t count = least(kChunk, groups - chunk);
            sums_of_groups(s.dy_t + chunk * kGroup * kLanes, kLanes, count, s.table);
            select_sum<fv>(s.table, index + chunk * inputs, 1, inputs, count, inputs, (char*)s.ds_t, chunk > 0);
        }
    }
    transpose(s.ds_t, kLanes, rounded, kLanes, s.ds, rounded);
}

// Second pass, one block of pixels: dy [P][64][width] and the signs of x [P][16][K] for `weight_gradient`, and the gradients of x, add
// and bias, the latter's sums [P][K].
template <class Y>
static void propagate(const BinaryConv& conv, const BinaryConvGradient& gradient, const Backward& b, size_t block,
                      const BackwardScratch& s, float* dy, size_t dy_next, uint8_t* index, size_t index_next,
                      float* bias_sums) {
    const size_t channels = conv.channels, inputs = conv.inputs, from = conv.channels_in;
    const size_t width = round_up(channels, kLanes), rounded = round_up(inputs, kLanes);
    const size_t m = block * kBackwardPixels, n = least(kBackwardPixels, conv.pixels - m);
    const Source x = source(conv, m, n, s.x);
    float* dx = gradient.x && from == inputs ? gradient.x + m * inputs : s.dx;
    float* g = conv.add && !conv.prelu_before_add ? gradient.add + m * channels : s.g;
    for (size_t i = 0, turn = turn_pixels(channels); i < n; i += turn) {
        const Rows<Y> rows{conv, m + i, least(turn, n - i), {x.data + i * x.channels, x.channels}, b.scale, b.offset};
        BCNN_PANELS(channels, gradient_panel, rows, gradient.out + (m + i) * channels, b.folded, g + i * channels,
                    dy + i * width, width);
    }
    if (conv.add && conv.prelu_before_add)
        __builtin_memcpy(gradient.add + m * channels, gradient.out + m * channels, n * channels * sizeof(float));
    for (size_t p = 0; p < conv.branches; p++, dy += dy_next, index += index_next) {
        const Branch& branch = conv.branch[p];
        if (p > 0) {
            const Rows<Y> rows{conv, m, n, x, b.scale, b.offset};
            BCNN_PANELS(channels, dy_panel, rows, p, g, b.folded + 3 * p * channels, dy, width);
        }
        for (size_t i = 0; width > channels && i < n; i++) fill(dy + i * width + channels, width - channels, 0.0f);
        fill(dy + n * width, (kBackwardPixels - n) * width, 0.0f);
        for (size_t group = 0; group < units(n, kGroup); group++) {
            const float* rows[kGroup];
            for (size_t i = 0; i < kGroup; i++) rows[i] = x.data + least(group * kGroup + i, n - 1) * x.channels;
            for (size_t k = 0; k < inputs; k += x.channels)
                index_pixels(rows, branch.bias + k, least(x.channels, inputs - k), index + group * inputs + k);
        }
        // Eq. 1 turns ds into dx and dbias; dx starts from the identity path's g and gathers the branches.
        float* bias_sum = bias_sums + p * inputs;
        fill(bias_sum, inputs, 0.0f);
        const float* base = p > 0 ? dx : conv.identity ? g : nullptr;
        for (size_t first = 0; first < n; first += kLanes) {
            sign_gradient(conv, b, p, dy + first * width, s);
            const Source some{x.data + first * x.channels, x.channels};
            BCNN_PANELS(inputs, surrogate_panel, least(kLanes, n - first), inputs, some, branch.bias, s.ds, rounded,
                        base ? base + first * inputs : nullptr, dx + first * inputs, bias_sum);
        }
    }
    if (from == inputs || !gradient.x) return;
    if (inputs % from == 0)
        BCNN_PANELS(from, replicas_panel, n, from, inputs, dx, gradient.x + m * from);
    else
        for (size_t c = 0; c < from; c++) replicas_panel<float>(c, n, from, inputs, dx, gradient.x + m * from);
}

// Adds n pixels to the weights' gradient of one panel of sixteen o, [K][16]: groups of four pixels, columns k, lanes o.
static void weight_gradient(const BinaryConv& conv, size_t n, const float* dy, const uint8_t* index, char* table,
                            float* sums) {
    const size_t groups = units(n, kGroup);
    sums_of_groups(dy, round_up(conv.channels, kLanes), groups, table);
    select_sum<fv>(table, index, 1, conv.inputs, groups, conv.inputs, (char*)sums, true);
}

// The finished sums of a panel as rows of the gradient; `rows` is [16][K] of scratch.
static void write_weight_gradient(const BinaryConv& conv, const Branch& branch, const BranchGradient& gradient,
                                  size_t panel, const float* sums, float* rows) {
    const size_t inputs = conv.inputs, rounded = round_up(inputs, kLanes);
    transpose(sums, kLanes, rounded, kLanes, rows, rounded);
    for (size_t o = panel * kLanes; o < least((panel + 1) * kLanes, conv.channels); o++) {
        const float *from = rows + o % kLanes * rounded, *latent = branch.weight + o * inputs;
        float* __restrict to = gradient.weight + o * inputs;
        for (size_t k = 0; k < inputs; k++)
            to[k] = conv.binary_weights && !(__builtin_fabsf(latent[k]) <= 1) ? 0.0f : from[k];  // Eq. 3
    }
}

// The sums over all blocks of channels k ... end, and what follows from them: gradients of slope, gamma, beta, and `folded`.
static void sum_blocks(const BinaryConv& conv, const BinaryConvGradient& gradient, const float* sums, size_t blocks,
                       size_t k, size_t end, float* folded) {
    const size_t channels = conv.channels, count = end - k;
    double s[kSumChannels], t[kSumChannels];
    const auto total = [&](size_t row, double* to) {
        fill(to, count, 0.0);
        const float* from = sums + row * channels + k;
        for (size_t block = 0; block < blocks; block++, from += (2 + conv.branches) * channels)
            for (size_t i = 0; i < count; i++) to[i] += from[i];
    };
    if (conv.slope) {
        total(0, s);
        for (size_t i = 0; i < count; i++) gradient.slope[k + i] = float(s[i]);
    }
    total(1, s);
    for (size_t p = 0; p < conv.branches; p++, folded += 3 * channels) {
        const Norm& norm = conv.branch[p].norm;
        total(2 + p, t);
        for (size_t i = 0; i < count; i++) {
            t[i] *= norm.inverse[k + i];
            gradient.branch[p].beta[k + i] = float(s[i]);
            gradient.branch[p].gamma[k + i] = float(t[i]);
            fold_gradient(norm, conv.training, k + i, double(conv.pixels), s[i], t[i], folded, folded + channels,
                          folded + 2 * channels);
        }
    }
}

// The weights of a branch as `sign_gradient` reads them, rows o ... of one group.
static void pack_weights(const BinaryConv& conv, const float* weight, size_t group, const float* zeros, uint8_t* index,
                         float* packed) {
    const size_t inputs = conv.inputs, first = group * kGroup, count = least(kGroup, conv.channels - first);
    if (conv.binary_weights) {
        const float* rows[kGroup];
        for (size_t i = 0; i < kGroup; i++) rows[i] = weight + (first + least(i, count - 1)) * inputs;
        index_pixels(rows, zeros, inputs, index + group * inputs);  // o past the end: its dy is 0, whatever its sign
        return;
    }
    for (size_t o = first; o < first + count; o++)
        for (size_t j = 0; j < round_up(inputs, kColumns); j++)
            packed[(j / kColumns * conv.channels + o) * kColumns + j % kColumns] =
                j < inputs ? weight[o * inputs + j] : 0.0f;
}

// The weights' gradient is a sum over all pixels: lanes of blocks have sums of their own, which are added in the end. How many is a
// matter of the shape alone, not of threads, or bits would depend on them. One where sums are large or pixels few.
static size_t weight_lanes(const BinaryConv& conv, size_t blocks) {
    constexpr size_t most = 16, most_bytes = 4 << 20;
    const size_t bytes = round_up(conv.channels, kLanes) * round_up(conv.inputs, kLanes) * sizeof(float);
    return blocks < 2 * most || most * bytes > most_bytes ? 1 : least(most, blocks / 4);
}

template <class Y>
static void backward(const BinaryConv& conv, const BinaryConvGradient& gradient) {
    const size_t channels = conv.channels, inputs = conv.inputs, branches = conv.branches,
                 threads = size_t(conv.threads);
    const size_t width = round_up(channels, kLanes), rounded = round_up(inputs, kLanes), panels = width / kLanes;
    const size_t blocks = units(conv.pixels, kBackwardPixels), groups = units(channels, kGroup);
    const size_t chunks = units(channels, kSumChannels), biases = units(inputs, kSumChannels);
    const size_t parts = shares(blocks, conv.threads), size = (2 + branches) * channels;
    const size_t lanes = weight_lanes(conv, blocks), panel_size = rounded * kLanes,
                 lane_size = branches * panels * panel_size;
    // A lane goes from dy to dw block by block. Where there is but one and several threads, all blocks make their dy first, and
    // then threads share the weights by panels of o: the same sums.
    const bool by_panels = lanes == 1 && threads > 1;
    const size_t dy_size = kBackwardPixels * width, index_size = kChunk * inputs, kept = by_panels ? blocks : threads;
    Buffer<float> scale(branches * channels), offset(branches * channels), folded(3 * branches * channels),
        zeros(inputs);
    Buffer<float> block_sums(blocks * size), bias_sums(blocks * branches * inputs), weight_sums(lanes * lane_size);
    Buffer<float> packed(conv.binary_weights ? 0 : branches * round_up(inputs, kColumns) * channels);
    Buffer<uint8_t> index(conv.binary_weights ? branches * groups * inputs : 0),
        pixel_index(kept * branches * index_size);
    const size_t scratch_size = BackwardScratch::floats(conv);
    Buffer<float> dy(kept * branches * dy_size), scratch(threads * scratch_size);
    fill<float>(zeros, inputs, 0.0f);
    for (size_t thread = 0; thread < threads; thread++)  // channels past the end stay zero
        fill(BackwardScratch(conv, scratch + thread * scratch_size).ds_t, panel_size, 0.0f);
    for (size_t p = 0; p < branches; p++)
        fold(conv.branch[p].norm, 0, channels, scale + p * channels, offset + p * channels);
    const Backward plan{scale, offset, folded, index, packed};

    const auto propagate_block = [&](size_t block, size_t slot, const BackwardScratch& own) {
        propagate<Y>(conv, gradient, plan, block, own, dy + slot * branches * dy_size, dy_size,
                     pixel_index + slot * branches * index_size, index_size, bias_sums + block * branches * inputs);
    };
    const auto add_block = [&](size_t block, size_t slot, size_t p, size_t panel, float* sums,
                               const BackwardScratch& own) {
        const size_t n = least(kBackwardPixels, conv.pixels - block * kBackwardPixels), at = slot * branches + p;
        weight_gradient(conv, n, dy + at * dy_size + panel * kLanes, pixel_index + at * index_size, own.table, sums);
    };
    const int pieces[] = {int(parts), int(chunks + branches * groups), int(by_panels ? blocks : lanes),
                          int(branches * panels + branches * biases)};
    parallel(conv.threads, pieces, 4, [&](int stage, size_t piece, size_t thread) {
        const BackwardScratch own(conv, scratch + thread * scratch_size);
        if (stage == 0) {
            const Range range(blocks, piece, parts);
            for (size_t block = range.begin; block < range.end; block++)
                reduce<Y>(conv, scale, offset, gradient.out, block, own.x, block_sums + block * size);
        } else if (stage == 1 && piece < chunks) {
            const size_t k = piece * kSumChannels;
            sum_blocks(conv, gradient, block_sums, blocks, k, least(k + kSumChannels, channels), folded);
        } else if (stage == 1) {
            const size_t p = (piece - chunks) / groups, group = (piece - chunks) % groups;
            pack_weights(conv, conv.branch[p].weight, group, zeros, index + p * groups * inputs,
                         packed + p * round_up(inputs, kColumns) * channels);
        } else if (stage == 2 && by_panels) {
            propagate_block(piece, piece, own);
        } else if (stage == 2) {
            float* sums = weight_sums + piece * lane_size;
            fill(sums, lane_size, 0.0f);
            const Range range(blocks, piece, lanes);
            for (size_t block = range.begin; block < range.end; block++) {
                propagate_block(block, thread, own);
                for (size_t i = 0; i < branches * panels; i++)
                    add_block(block, thread, i / panels, i % panels, sums + i * panel_size, own);
            }
        } else if (piece < branches * panels) {
            const size_t p = piece / panels, panel = piece % panels;
            float* __restrict sums = weight_sums + piece * panel_size;
            if (by_panels) {
                fill(sums, panel_size, 0.0f);
                for (size_t block = 0; block < blocks; block++) add_block(block, block, p, panel, sums, own);
            }
            for (size_t lane = 1; lane < lanes; lane++)
                for (size_t i = 0; i < panel_size; i++) sums[i] += sums[lane * lane_size + i];
            write_weight_gradient(conv, conv.branch[p], gradient.branch[p], panel, sums, own.ds);
        } else {
            const size_t p = (piece - branches * panels) / biases,
                         k = (piece - branches * panels) % biases * kSumChannels;
            const size_t count = least(kSumChannels, inputs - k);
            double sum[kSumChannels] = {};
            for (size_t block = blocks; block-- > 0;)
                for (size_t i = 0; i < count; i++) sum[i] += bias_sums[(block * branches + p) * inputs + k + i];
            for (size_t i = 0; i < count; i++) gradient.branch[p].bias[k + i] = float(sum[i]);
        }
    });
}

static void backward(const BinaryConv& conv, const BinaryConvGradient& gradient) {
    if (conv.binary_weights)
        backward<int16_t>(conv, gradient);
    else
        backward<float>(conv, gradient);
}
