// layers.BinaryConv: forward and backward, two passes each. Part of kernels.inl.

// Rows m ... m+n of x with all K channels: x itself, or replicated into `scratch` [n][K].
static const float* replicated(const BinaryConv& conv, size_t m, size_t n, float* scratch) {
    const size_t from = conv.channels_in, to = conv.channels;
    const float* x = conv.x + m * from;
    if (from == to) return x;
    for (size_t i = 0; i < n; i++) {
        float* row = scratch + i * to;
        for (size_t c = 0; c < from; c++) row[c] = x[i * from + c];
        for (size_t done = from; done < to; done *= 2)  // what is there is repeated: few copies even for a few channels
            std::memcpy(row + done, row, std::min(done, to - done) * sizeof(float));
    }
    return scratch;
}

// The weight that the convolution uses: its sign (Eq. 3), or in step 1 itself.
template <class T>
BCNN_INLINE T used_weight(float latent) {
    if constexpr (sizeof(T) == 1)
        return latent >= 0 ? T(1) : T(-1);
    else
        return latent;
}

// All signed sums of a branch's weights: [panel of lanes o][group of k][16][lanes], see step 3 above.
template <class V, class T>
static void weight_table(const float* weight, size_t channels, char* table) {
    constexpr size_t lanes = kRow / sizeof(T);
    alignas(64) T rows[kGroup][lanes];
    const char* pointers[kGroup];
    for (size_t i = 0; i < kGroup; i++) pointers[i] = reinterpret_cast<const char*>(rows[i]);
    for (size_t panel = 0; panel < channels; panel += lanes)
        for (size_t group = 0; group < channels; group += kGroup, table += kTable) {
            for (size_t i = 0; i < kGroup; i++)
                for (size_t lane = 0; lane < lanes; lane++)
                    rows[i][lane] = panel + lane < channels && group + i < channels
                                        ? used_weight<T>(weight[(panel + lane) * channels + group + i])
                                        : T(0);
            signed_sums<V>(pointers, table);
        }
}

// First pass: y = sign(x + bias) x weight, and its moments. T is the table's type, Y that of the map y.
template <class V, class T, class Y>
static void convolve(const BinaryConv& conv, const Branch& branch, const char* table, Range blocks, Moments& moments) {
    constexpr size_t lanes = kRow / sizeof(T);
    const size_t channels = conv.channels, groups = round_up(channels, kGroup) / kGroup;
    Buffer<float> scratch(kForwardPixels * channels), sums(2 * channels);
    Buffer<double> wide(2 * channels);
    Buffer<uint8_t> index(kForwardPixels * groups);
    Buffer<T> partial(kForwardPixels * lanes);
    for (size_t block = blocks.begin; block < blocks.end; block++) {
        const size_t m = block * kForwardPixels, n = std::min(kForwardPixels, conv.pixels - m);
        const float* x = replicated(conv, m, n, scratch);
        for (size_t i = 0; i < n; i++) index_channels(x + i * channels, branch.bias, channels, index + i * groups);
        Y* y = static_cast<Y*>(branch.y) + m * channels;
        for (size_t panel = 0; panel < channels; panel += lanes) {
            const char* panel_table = table + panel / lanes * groups * kTable;
            const size_t width = std::min(lanes, channels - panel);
            for (size_t group = 0; group < groups; group += kChunk) {
                select_sum<V>(panel_table + group * kTable, index + group, groups, 1, std::min(kChunk, groups - group),
                              n, reinterpret_cast<char*>(static_cast<T*>(partial)), false);
                for (size_t i = 0; i < n; i++) {
                    Y* __restrict to = y + i * channels + panel;
                    const T* __restrict from = partial + i * lanes;
                    if (group == 0)
                        for (size_t k = 0; k < width; k++) to[k] = Y(from[k]);
                    else
                        for (size_t k = 0; k < width; k++) to[k] = Y(to[k] + from[k]);
                }
            }
        }
        if (conv.training) moments.add(y, n, sums, wide);
    }
}

// A block of pixels of one module, rows of K channels: what the element-wise kernels read.
template <class Y>
struct Rows {
    const BinaryConv& conv;
    size_t first, count;
    const float* x;  // replicated
    const float *scale, *offset;

    const Y* y(size_t p) const { return static_cast<const Y*>(conv.branches[p].y) + first * conv.channels; }
    const float* add() const { return conv.add ? conv.add + first * conv.channels : nullptr; }
};

// v = x + sum of branches (+ add): what the PReLU reads, of pixel m, channels k and on.
template <class F, class Y>
struct BeforePrelu {
    BeforePrelu(const Rows<Y>& rows, size_t k_)
        : k(k_),
          channels(rows.conv.channels),
          branches(rows.conv.branches.size()),
          r(rows),
          x(rows.x + k_),
          y(rows.y(0) + k_),
          add(rows.conv.prelu_before_add || !rows.conv.add ? nullptr : rows.add() + k_),
          scale(load<F>(rows.scale + k_)),
          offset(load<F>(rows.offset + k_)) {}

    BCNN_MEMBER F operator()(size_t m, F y0) const {
        F v = load<F>(x + m * channels) + (scale * y0 + offset);
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
BCNN_INLINE void combine_panel(size_t k, const Rows<Y>& rows, float* out) {
    const BeforePrelu<F, Y> before(rows, k);
    const size_t channels = rows.conv.channels;
    const F slope = rows.conv.slope ? load<F>(rows.conv.slope + k) : F{} + 1.0f;
    const float* after = rows.conv.prelu_before_add ? rows.add() : nullptr;
    for (size_t m = 0; m < rows.count; m++) {
        const F v = before(m, before.first(m)), scaled = v * slope;
        F result = v > 0 ? v : scaled;
        if (after) result += load<F>(after + m * channels + k);
        store(out + m * channels + k, result);
    }
}

// Second pass: batch norm, identity, the block's other path, PReLU. Backwards, as every second pass: what the first pass touched
// last is still in the cache.
template <class Y>
static void combine(const BinaryConv& conv, const float* scale, const float* offset, Range blocks, float* out) {
    const size_t channels = conv.channels;
    Buffer<float> scratch(kTurn * channels);
    for (size_t block = blocks.end; block-- > blocks.begin;) {
        const size_t last = std::min((block + 1) * kForwardPixels, conv.pixels);
        for (size_t m = block * kForwardPixels; m < last; m += kTurn) {
            const size_t n = std::min(kTurn, last - m);
            const Rows<Y> rows{conv, m, n, replicated(conv, m, n, scratch), scale, offset};
            BCNN_PANELS(channels, combine_panel, rows, out + m * channels);
        }
    }
}

template <class V, class T, class Y>
static void forward(const BinaryConv& conv, float* out) {
    constexpr size_t lanes = kRow / sizeof(T);
    const size_t channels = conv.channels, branches = conv.branches.size();
    const size_t blocks = round_up(conv.pixels, kForwardPixels) / kForwardPixels;
    const size_t parts = std::min<size_t>(conv.threads, blocks);
    Buffer<char> table(round_up(channels, lanes) / lanes * (round_up(channels, kGroup) / kGroup) * kTable);
    Buffer<float> scale(branches * channels), offset(branches * channels);
    for (size_t p = 0; p < branches; p++) {
        const Branch& branch = conv.branches[p];
        weight_table<V, T>(branch.weight, channels, table);
        std::vector<Moments> moments(parts, Moments(channels));
        parallel(parts, [&](size_t part) {
            convolve<V, T, Y>(conv, branch, table, Range(blocks, part, parts), moments[part]);
        });
        finish(branch.norm, conv.training, moments, channels);
        fold(branch.norm, channels, scale + p * channels, offset + p * channels);
    }
    parallel(parts, [&](size_t part) { combine<Y>(conv, scale, offset, Range(blocks, part, parts), out); });
}

static void forward(const BinaryConv& conv, float* out) {
    if (conv.binary_weights)
        forward<i8x32, int8_t, int16_t>(conv, out);
    else
        forward<f8, float, float>(conv, out);
}

// Gradient at the PReLU's input: g = gradient where v > 0, slope * gradient elsewhere. `sums` are [slope, S, T of each branch][K].
template <class F, class Y>
BCNN_INLINE void reduce_panel(size_t k, const Rows<Y>& rows, const float* gradient, float* sums) {
    const BeforePrelu<F, Y> before(rows, k);
    const size_t channels = rows.conv.channels, branches = rows.conv.branches.size();
    const bool prelu = rows.conv.slope;
    const F slope = prelu ? load<F>(rows.conv.slope + k) : F{}, mean = load<F>(rows.conv.branches[0].norm.mean + k),
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
            const F other = load_y<F>(rows.y(p) + m * channels + k) - load<F>(rows.conv.branches[p].norm.mean + k);
            store(more, F(load<F>(more) + g * other));
        }
    }
    store(sums + k, F(load<F>(sums + k) + slope_sum));
    store(sums + channels + k, F(load<F>(sums + channels + k) + s));
    store(sums + 2 * channels + k, F(load<F>(sums + 2 * channels + k) + t));
}

// First pass: the sums that batch norm's gradient needs.
template <class Y>
static void reduce(const BinaryConv& conv, const float* scale, const float* offset, const float* gradient, Range blocks,
                   double* sums) {
    const size_t channels = conv.channels, size = (2 + conv.branches.size()) * channels;
    Buffer<float> scratch(kTurn * channels), block_sums(size);
    std::fill(sums, sums + size, 0.0);
    for (size_t block = blocks.begin; block < blocks.end; block++) {
        std::fill(block_sums + 0, block_sums + size, 0.0f);
        const size_t last = std::min((block + 1) * kBackwardPixels, conv.pixels);
        for (size_t m = block * kBackwardPixels; m < last; m += kTurn) {
            const size_t n = std::min(kTurn, last - m);
            const Rows<Y> rows{conv, m, n, replicated(conv, m, n, scratch), scale, offset};
            BCNN_PANELS(channels, reduce_panel, rows, gradient + m * channels, static_cast<float*>(block_sums));
        }
        for (size_t i = 0; i < size; i++) sums[i] += block_sums[i];
    }
}

// g again, and the first branch's dy = a * g + (b * y + c), rows of `width`; the other branches' dy by `dy_panel`.
template <class F, class Y>
BCNN_INLINE void gradient_panel(size_t k, const Rows<Y>& rows, const float* gradient, const float* abc, float* g_out,
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
BCNN_INLINE void dy_panel(size_t k, const Rows<Y>& rows, size_t p, const float* g, const float* abc, float* dy,
                          size_t width) {
    const size_t channels = rows.conv.channels;
    const F a = load<F>(abc + k), b = load<F>(abc + channels + k), c = load<F>(abc + 2 * channels + k);
    for (size_t m = 0; m < rows.count; m++)
        store(dy + m * width + k,
              F(a * load<F>(g + m * channels + k) + (b * load_y<F>(rows.y(p) + m * channels + k) + c)));
}

// From the gradient of the signs to those of x and bias: Eq. 1. `base` is what dx holds already.
template <class F>
BCNN_INLINE void surrogate_panel(size_t k, size_t count, size_t channels, const float* x, const float* bias,
                                 const float* ds, size_t width, const float* base, float* dx, float* bias_sum) {
    const F b = load<F>(bias + k), zero = F{};
    F sum = load<F>(bias_sum + k);
    for (size_t m = 0; m < count; m++) {
        const F z = load<F>(x + m * channels + k) + b, size = z > 0 ? z : -z, slope = 2.0f - 2.0f * size;
        const F t = load<F>(ds + m * width + k) * (slope > 0 ? slope : zero);
        store(dx + m * channels + k, F(load<F>(base + m * channels + k) + t));
        sum += t;
    }
    store(bias_sum + k, sum);
}

// What the second pass needs of each branch besides the branch itself.
struct BranchPlan {
    const float* abc;      // [3][K] of fold_gradient
    const uint8_t* index;  // +-1 weights: [group of o][K], see `select_sum`
    const float* packed;   // real weights: see `real_sum`
};

// Second pass: dy, and from it the gradients of weights, bias and x. `weight_sums` is [P][panel of o][K][16], `bias_sums` [P][K].
template <class Y>
static void propagate(const BinaryConv& conv, const BinaryConvGradient& gradient, const float* scale,
                      const float* offset, const BranchPlan* plans, Range blocks, float* weight_sums,
                      double* bias_sums) {
    const size_t channels = conv.channels, from = conv.channels_in, width = round_up(channels, kLanes);
    Buffer<float> scratch(kBackwardPixels * channels), g(kBackwardPixels * channels);
    const bool direct = gradient.x && from == channels;
    Buffer<float> dx_scratch(direct ? 0 : kBackwardPixels * channels), bias_sum(channels);
    Buffer<float> dy(kBackwardPixels * width), dy_t(width * kLanes), ds_t(width * kLanes), ds(kLanes * width);
    Buffer<char> table(kChunk * kTable);
    Buffer<uint8_t> index(kChunk * channels);
    std::fill(weight_sums, weight_sums + conv.branches.size() * width * width, 0.0f);
    std::fill(bias_sums, bias_sums + conv.branches.size() * channels, 0.0);
    std::fill(ds_t + 0, ds_t + width * kLanes, 0.0f);
    std::fill(dy + 0, dy + kBackwardPixels * width, 0.0f);  // channels past the end stay zero
    for (size_t block = blocks.end; block-- > blocks.begin;) {
        const size_t m = block * kBackwardPixels, n = std::min(kBackwardPixels, conv.pixels - m);
        const float* x = replicated(conv, m, n, scratch);
        float* dx = direct ? gradient.x + m * channels : static_cast<float*>(dx_scratch);
        std::fill(dy + n * width, dy + kBackwardPixels * width, 0.0f);  // pixels past the end
        for (size_t i = 0; i < n; i += kTurn) {
            const Rows<Y> rows{conv, m + i, std::min(kTurn, n - i), x + i * channels, scale, offset};
            BCNN_PANELS(channels, gradient_panel, rows, gradient.out + (m + i) * channels, plans[0].abc,
                        g + i * channels, dy + i * width, width);
        }
        if (conv.add)
            std::memcpy(gradient.add + m * channels,
                        conv.prelu_before_add ? gradient.out + m * channels : static_cast<const float*>(g),
                        n * channels * sizeof(float));

        for (size_t p = 0; p < conv.branches.size(); p++) {
            const Branch& branch = conv.branches[p];
            const BranchPlan& plan = plans[p];
            if (p > 0) {
                const Rows<Y> rows{conv, m, n, x, scale, offset};
                BCNN_PANELS(channels, dy_panel, rows, p, g, plan.abc, dy, width);
            }

            // dw: groups of four pixels, columns k, lanes o.
            const size_t groups = round_up(n, kGroup) / kGroup;
            for (size_t group = 0; group < groups; group++) {
                const float* rows[kGroup];
                for (size_t i = 0; i < kGroup; i++) rows[i] = x + std::min(group * kGroup + i, n - 1) * channels;
                index_pixels(rows, branch.bias, channels, index + group * channels);
            }
            for (size_t panel = 0; panel < width; panel += kLanes) {
                for (size_t group = 0; group < groups; group++) {
                    const char* rows[kGroup];
                    for (size_t i = 0; i < kGroup; i++)
                        rows[i] = reinterpret_cast<const char*>(dy + (group * kGroup + i) * width + panel);
                    signed_sums<f8>(rows, table + group * kTable);
                }
                select_sum<f8>(table, index, 1, channels, groups, channels,
                               reinterpret_cast<char*>(weight_sums + (p * width + panel) * width), true);
            }

            // ds, sixteen pixels at a time: groups of four o, columns k, lanes m. Then Eq. 1 turns ds into dx and dbias.
            std::fill(bias_sum + 0, bias_sum + channels, 0.0f);
            for (size_t first = 0; first < n; first += kLanes) {
                transpose(dy + first * width, width, kLanes, width, dy_t, kLanes);
                if (plan.packed) {
                    real_sum(dy_t, plan.packed, channels, channels, ds_t);
                } else {
                    const size_t all = round_up(channels, kGroup) / kGroup;
                    for (size_t chunk = 0; chunk < all; chunk += kChunk) {
                        const size_t count = std::min(kChunk, all - chunk);
                        for (size_t group = 0; group < count; group++) {
                            const char* rows[kGroup];
                            for (size_t i = 0; i < kGroup; i++)
                                rows[i] = reinterpret_cast<const char*>(dy_t + ((chunk + group) * kGroup + i) * kLanes);
                            signed_sums<f8>(rows, table + group * kTable);
                        }
                        select_sum<f8>(table, plan.index + chunk * channels, 1, channels, count, channels,
                                       reinterpret_cast<char*>(static_cast<float*>(ds_t)), chunk > 0);
                    }
                }
                transpose(ds_t, kLanes, width, kLanes, ds, width);
                // dx starts from the identity path's g and gathers the branches.
                BCNN_PANELS(channels, surrogate_panel, std::min(kLanes, n - first), channels, x + first * channels,
                            branch.bias, ds, width, (p == 0 ? g : dx) + first * channels, dx + first * channels,
                            bias_sum);
            }
            for (size_t k = 0; k < channels; k++) bias_sums[p * channels + k] += bias_sum[k];
        }

        if (from != channels && gradient.x)  // replicas of a channel add up
            for (size_t i = 0; i < n; i++) {
                float* row = dx + i * channels;
                for (size_t k = from; k < channels; k += from)
                    for (size_t c = 0; c < std::min(from, channels - k); c++) row[c] += row[k + c];
                std::memcpy(gradient.x + (m + i) * from, row, from * sizeof(float));
            }
    }
}

template <class Y>
static void backward(const BinaryConv& conv, const BinaryConvGradient& gradient) {
    const size_t channels = conv.channels, branches = conv.branches.size(), width = round_up(channels, kLanes);
    const size_t blocks = round_up(conv.pixels, kBackwardPixels) / kBackwardPixels;
    const size_t parts = std::min<size_t>(conv.threads, blocks);
    Buffer<float> scale(branches * channels), offset(branches * channels);
    for (size_t p = 0; p < branches; p++)
        fold(conv.branches[p].norm, channels, scale + p * channels, offset + p * channels);

    const size_t size = (2 + branches) * channels;
    Buffer<double> part_sums(parts * size), sums(size);
    parallel(parts, [&](size_t part) {
        reduce<Y>(conv, scale, offset, gradient.out, Range(blocks, part, parts), part_sums + part * size);
    });
    sum_parts(part_sums, parts, size, size, sums);
    if (conv.slope)
        for (size_t k = 0; k < channels; k++) gradient.slope[k] = float(sums[k]);

    const size_t groups = round_up(channels, kGroup) / kGroup, columns = round_up(channels, kColumns);
    Buffer<float> folded(3 * branches * channels), packed(conv.binary_weights ? 0 : branches * columns * channels);
    Buffer<uint8_t> index(conv.binary_weights ? branches * groups * channels : 0);
    std::vector<BranchPlan> plans(branches);
    for (size_t p = 0; p < branches; p++) {
        const Branch& branch = conv.branches[p];
        const BranchGradient& to = gradient.branches[p];
        const double* s = sums + channels;
        double* t = sums + (2 + p) * channels;
        float* a = folded + 3 * p * channels;
        for (size_t k = 0; k < channels; k++) {
            t[k] *= branch.norm.inverse[k];
            to.beta[k] = float(s[k]);
            to.gamma[k] = float(t[k]);
        }
        fold_gradient(branch.norm, conv.training, channels, double(conv.pixels), s, t, a, a + channels,
                      a + 2 * channels);
        plans[p] = {a, nullptr, nullptr};
        if (conv.binary_weights) {
            uint8_t* branch_index = index + p * groups * channels;
            std::fill(branch_index, branch_index + groups * channels, uint8_t(0));
            for (size_t o = 0; o < channels; o++)
                for (size_t k = 0; k < channels; k++)
                    branch_index[o / kGroup * channels + k] |=
                        uint8_t((branch.weight[o * channels + k] >= 0) << (4 + o % kGroup));
            plans[p].index = branch_index;
        } else {
            float* branch_packed = packed + p * columns * channels;
            for (size_t j = 0; j < columns; j++)
                for (size_t o = 0; o < channels; o++)
                    branch_packed[(j / kColumns * channels + o) * kColumns + j % kColumns] =
                        j < channels ? branch.weight[o * channels + j] : 0.0f;
            plans[p].packed = branch_packed;
        }
    }

    Buffer<float> weight_sums(parts * branches * width * width), rows(kLanes * width);
    Buffer<double> bias_parts(parts * branches * channels), bias_sums(branches * channels);
    parallel(parts, [&](size_t part) {
        propagate<Y>(conv, gradient, scale, offset, plans.data(), Range(blocks, part, parts),
                     weight_sums + part * branches * width * width, bias_parts + part * branches * channels);
    });
    sum_parts(bias_parts, parts, branches * channels, branches * channels, bias_sums);
    for (size_t p = 0; p < branches; p++) {
        for (size_t k = 0; k < channels; k++) gradient.branches[p].bias[k] = float(bias_sums[p * channels + k]);
        for (size_t panel = 0; panel < width; panel += kLanes) {
            float* sum = weight_sums + (p * width + panel) * width;  // [K][16]
            for (size_t part = 1; part < parts; part++)
                for (size_t i = 0; i < width * kLanes; i++) sum[i] += sum[part * branches * width * width + i];
            transpose(sum, kLanes, width, kLanes, rows, width);
            for (size_t o = panel; o < std::min(panel + kLanes, channels); o++) {
                const float *from = rows + (o - panel) * width, *latent = conv.branches[p].weight + o * channels;
                float* __restrict to = gradient.branches[p].weight + o * channels;
                for (size_t k = 0; k < channels; k++)
                    to[k] = conv.binary_weights && !(std::fabs(latent[k]) <= 1) ? 0.0f : from[k];  // Eq. 3
            }
        }
    }
}

static void backward(const BinaryConv& conv, const BinaryConvGradient& gradient) {
    if (conv.binary_weights)
        backward<int16_t>(conv, gradient);
    else
        backward<float>(conv, gradient);
}
