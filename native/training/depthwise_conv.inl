// The depth wise convolution with batch norm and PReLU. Part of kernels.inl.

// An image with a border of zero pixels and channels filled up to whole vectors: no window needs a test, no loop a tail.
struct Padded {
    Padded(size_t height_, size_t width_, size_t channels_, float* data_)
        : height(height_),
          width(width_),
          channels(channels_),
          lanes(round_up(channels_, kFloats)),
          row((width_ + 2) * lanes),
          data(data_) {}
    static size_t floats(size_t height, size_t width, size_t channels) {
        return (height + 2) * (width + 2) * round_up(channels, kFloats);
    }
    void clear() const { fill(data, (height + 2) * row, 0.0f); }
    float* pixel(size_t y, size_t x) const { return data + (y + 1) * row + (x + 1) * lanes; }
    void copy(const float* image) const {
        for (size_t y = 0; y < height; y++, image += width * channels) {
            if (lanes == channels)
                __builtin_memcpy(pixel(y, 0), image, width * channels * sizeof(float));
            else
                for (size_t x = 0; x < width; x++)
                    __builtin_memcpy(pixel(y, x), image + x * channels, channels * sizeof(float));
        }
    }

    size_t height, width, channels, lanes, row;
    float* data;
};

// [K, 3, 3] -> [9][lanes], `flipped` for the gradient of stride 1: dx is dy under the weights turned round.
static void tap_major(const float* weight, size_t channels, size_t lanes, bool flipped, float* taps) {
    for (size_t t = 0; t < 9; t++)
        for (size_t k = 0; k < lanes; k++)
            taps[t * lanes + k] = k < channels ? weight[k * 9 + (flipped ? 8 - t : t)] : 0.0f;
}

// One row of a 3x3 convolution. `corner` is the window's first pixel for x = 0.
static void convolve_row(const Padded& from, const float* corner, size_t stride, size_t width, const float* weight,
                         float* out) {
    const size_t lanes = from.lanes, step = stride * lanes;
    for (size_t k = 0; k < from.channels; k += kFloats) {
        fv w[9];
        for (size_t t = 0; t < 9; t++) w[t] = load<fv>(weight + t * lanes + k);
        const float *top = corner + k, *middle = top + from.row, *bottom = middle + from.row;
        const size_t count = least(kFloats, from.channels - k);
        float* to = out + k;
        for (size_t x = 0; x < width; x++, to += from.channels, top += step, middle += step, bottom += step) {
            fv sum = w[0] * load<fv>(top) + w[1] * load<fv>(top + lanes) + w[2] * load<fv>(top + 2 * lanes);
            sum += w[3] * load<fv>(middle) + w[4] * load<fv>(middle + lanes) + w[5] * load<fv>(middle + 2 * lanes);
            sum += w[6] * load<fv>(bottom) + w[7] * load<fv>(bottom + lanes) + w[8] * load<fv>(bottom + 2 * lanes);
            if (count == kFloats)
                store(to, sum);
            else
                __builtin_memcpy(to, &sum, count * sizeof(float));
        }
    }
}

// The weights' gradient from one row of dy: sums[tap] += dy * pixel under the tap.
static void correlate_row(const Padded& from, const float* corner, size_t stride, size_t width, const float* dy,
                          float* sums) {
    const size_t lanes = from.lanes, step = stride * lanes;
    for (size_t k = 0; k < lanes; k += kFloats) {
        fv sum[9];
        for (size_t t = 0; t < 9; t++) sum[t] = load<fv>(sums + t * lanes + k);
        const float *top = corner + k, *middle = top + from.row, *bottom = middle + from.row, *grad = dy + k;
        for (size_t x = 0; x < width; x++, grad += lanes, top += step, middle += step, bottom += step) {
            const fv g = load<fv>(grad);
            for (size_t t = 0; t < 3; t++) {
                sum[t] += g * load<fv>(top + t * lanes);
                sum[3 + t] += g * load<fv>(middle + t * lanes);
                sum[6 + t] += g * load<fv>(bottom + t * lanes);
            }
        }
        for (size_t t = 0; t < 9; t++) store(sums + t * lanes + k, sum[t]);
    }
}

// The windows that a row or column of the map lies under, at strides above 1: at most two outputs and where each has it.
struct Windows {
    Windows() = default;
    Windows(size_t at, size_t stride, size_t outputs) {
        for (size_t tap = 0; tap < 3; tap++) {
            if (at + 1 < tap || (at + 1 - tap) % stride || (at + 1 - tap) / stride >= outputs) continue;
            taps[count] = tap;
            output[count++] = (at + 1 - tap) / stride;
        }
    }
    size_t count = 0, taps[2], output[2];
};

// dx for strides above 1, one pixel.
static void spread(const Padded& dy, const float* weight, const Windows& rows, const Windows& columns, float* out) {
    const float *w[4], *from[4];
    size_t count = 0;
    for (size_t i = 0; i < rows.count; i++)
        for (size_t j = 0; j < columns.count; j++) {
            w[count] = weight + (3 * rows.taps[i] + columns.taps[j]) * dy.lanes;
            from[count++] = dy.pixel(rows.output[i], columns.output[j]);
        }
    for (size_t k = 0; k < dy.channels; k += kFloats) {
        fv sum = {};
        for (size_t t = 0; t < count; t++) sum += load<fv>(w[t] + k) * load<fv>(from[t] + k);
        if (k + kFloats <= dy.channels)
            store(out + k, sum);
        else
            __builtin_memcpy(out + k, &sum, (dy.channels - k) * sizeof(float));
    }
}

// Second pass: batch norm and PReLU. Backwards, as that of the binary convolution.
template <class F>
BCNN_KERNEL void activate_panel(size_t k, size_t n, size_t channels, const float* y, const float* scale,
                                const float* offset, const float* slopes, float* out) {
    const F s = load<F>(scale + k), o = load<F>(offset + k), slope = load<F>(slopes + k);
    for (size_t m = n; m-- > 0;) {
        const F v = s * load<F>(y + m * channels + k) + o, scaled = v * slope;
        store(out + m * channels + k, v > 0 ? v : scaled);
    }
}

// Images are pieces of work; a thread clears its own padded images when it takes its first one.
static void forward(const DepthwiseConv& conv, float* out) {
    const size_t height = (conv.height - 1) / conv.stride + 1, width = (conv.width - 1) / conv.stride + 1;
    const size_t channels = conv.channels, lanes = round_up(channels, kFloats), pixels = height * width,
                 threads = size_t(conv.threads);
    const size_t image_size = conv.height * conv.width * channels, run = units(pixels, kMomentsPixels) * 2 * channels;
    const size_t padded_size = Padded::floats(conv.height, conv.width, channels),
                 parts = shares(conv.images, conv.threads);
    Buffer<float> weight(9 * lanes), scale(channels), offset(channels), padded(threads * padded_size);
    Buffer<float> records(conv.training ? conv.images * run : 0);
    Buffer<bool> cleared(threads);
    fill<bool>(cleared, threads, false);
    tap_major(conv.weight, channels, lanes, false, weight);
    const int pieces[] = {int(conv.images), int(units(channels, kSumChannels)), int(parts)};
    parallel(conv.threads, pieces, 3, [&](int stage, size_t piece, size_t thread) {
        if (stage == 0) {
            const Padded x(conv.height, conv.width, channels, padded + thread * padded_size);
            if (!cleared[thread]) x.clear();
            cleared[thread] = true;
            float* y = conv.y + piece * pixels * channels;
            x.copy(conv.x + piece * image_size);
            for (size_t oy = 0; oy < height; oy++)
                convolve_row(x, x.data + oy * conv.stride * x.row, conv.stride, width, weight,
                             y + oy * width * channels);
            float* record = records + piece * run;
            if (conv.training) measure(y, channels, pixels, channels, record, record + channels, 2 * channels);
        } else if (stage == 1) {
            const size_t k = piece * kSumChannels, end = least(k + kSumChannels, channels);
            merge<float>(conv.norm, conv.training, records, conv.images, pixels, channels, k, end - k);
            fold(conv.norm, k, end, scale, offset);
        } else {
            const Range images(conv.images, mirrored(piece, parts, threads), parts);
            for (size_t m = images.end * pixels, turn = turn_pixels(channels); m > images.begin * pixels;) {
                const size_t n = least(turn, m - images.begin * pixels);
                m -= n;
                BCNN_PANELS(channels, activate_panel, n, channels, conv.y + m * channels, scale, offset, conv.slope,
                            out + m * channels);
            }
        }
    });
}

// What the two passes of the backward pass read of every channel.
struct DepthwiseFold {
    const float *scale, *offset, *slope, *mean, *a, *b, *c;
};

// First pass: the sums of slope, S and T as in the binary convolution's `reduce_panel`, of n pixels.
template <class F>
BCNN_KERNEL void reduce_panel(size_t k, size_t n, size_t channels, const float* ys, const float* gradient,
                              const DepthwiseFold& f, float* sums) {
    const F s = load<F>(f.scale + k), o = load<F>(f.offset + k), slope = load<F>(f.slope + k),
            mean = load<F>(f.mean + k), zero = F{};
    F slope_sum = load<F>(sums + k), g_sum = load<F>(sums + channels + k), gy_sum = load<F>(sums + 2 * channels + k);
    for (size_t m = 0; m < n; m++) {
        const F y = load<F>(ys + m * channels + k), grad = load<F>(gradient + m * channels + k);
        const F v = s * y + o, scaled = grad * slope, product = grad * v, g = v > 0 ? grad : scaled;
        slope_sum += v > 0 ? zero : product;
        g_sum += g;
        gy_sum += g * (y - mean);
    }
    store(sums + k, slope_sum);
    store(sums + channels + k, g_sum);
    store(sums + 2 * channels + k, gy_sum);
}

static void reduce(const DepthwiseConv& conv, const float* gradient, const DepthwiseFold& f, size_t begin, size_t end,
                   float* sums) {
    const size_t channels = conv.channels, turn = turn_pixels(channels);
    fill(sums, 3 * channels, 0.0f);
    for (size_t m = begin; m < end; m += turn)
        BCNN_PANELS(channels, reduce_panel, least(turn, end - m), channels, conv.y + m * channels,
                    gradient + m * channels, f, sums);
}

// dy of n pixels, `lanes` floats each.
template <class F>
BCNN_KERNEL void gradient_panel(size_t k, size_t n, size_t channels, const float* ys, const float* gradient,
                                const DepthwiseFold& f, size_t lanes, float* dy) {
    const F s = load<F>(f.scale + k), o = load<F>(f.offset + k), slope = load<F>(f.slope + k), a = load<F>(f.a + k),
            b = load<F>(f.b + k), c = load<F>(f.c + k);
    for (size_t m = 0; m < n; m++) {
        const F y = load<F>(ys + m * channels + k), grad = load<F>(gradient + m * channels + k);
        const F v = s * y + o, scaled = grad * slope;
        store(dy + m * lanes + k, F(a * (v > 0 ? grad : scaled) + (b * y + c)));
    }
}

// Second pass, one image: dy, then the weights' gradient [9][lanes] and dx from it.
static void propagate(const DepthwiseConv& conv, const DepthwiseConvGradient& gradient, const DepthwiseFold& f,
                      const float* weight, const Windows* columns, size_t image, const Padded& x, const Padded& dy,
                      float* tap_sums) {
    const size_t channels = conv.channels, image_size = conv.height * conv.width * channels;
    x.copy(conv.x + image * image_size);
    fill(tap_sums, 9 * x.lanes, 0.0f);
    for (size_t oy = 0; oy < dy.height; oy++) {
        const size_t row = (image * dy.height + oy) * dy.width * channels;
        BCNN_PANELS(channels, gradient_panel, dy.width, channels, conv.y + row, gradient.out + row, f, dy.lanes,
                    dy.pixel(oy, 0));
        correlate_row(x, x.data + oy * conv.stride * x.row, conv.stride, dy.width, dy.pixel(oy, 0), tap_sums);
    }
    float* dx = gradient.x + image * image_size;
    for (size_t y = 0; y < conv.height; y++) {
        if (conv.stride == 1) {
            convolve_row(dy, dy.data + y * dy.row, 1, dy.width, weight, dx + y * dy.width * channels);
            continue;
        }
        const Windows rows(y, conv.stride, dy.height);
        for (size_t x_ = 0; x_ < conv.width; x_++)
            spread(dy, weight, rows, columns[x_], dx + (y * conv.width + x_) * channels);
    }
}

static void backward(const DepthwiseConv& conv, const DepthwiseConvGradient& gradient) {
    const size_t height = (conv.height - 1) / conv.stride + 1, width = (conv.width - 1) / conv.stride + 1;
    const size_t channels = conv.channels, lanes = round_up(channels, kFloats), pixels = height * width,
                 threads = size_t(conv.threads);
    const size_t all = conv.images * pixels, blocks = units(all, kBackwardPixels), parts = shares(blocks, conv.threads);
    const size_t x_size = Padded::floats(conv.height, conv.width, channels),
                 dy_size = Padded::floats(height, width, channels);
    Buffer<float> weight(9 * lanes), scale(channels), offset(channels), folded(3 * channels);
    Buffer<float> block_sums(blocks * 3 * channels), tap_sums(conv.images * 9 * lanes),
        padded(threads * (x_size + dy_size));
    Buffer<bool> cleared(threads);
    fill<bool>(cleared, threads, false);
    tap_major(conv.weight, channels, lanes, conv.stride == 1, weight);
    fold(conv.norm, 0, channels, scale, offset);
    float *a = folded, *b = a + channels, *c = b + channels;
    const DepthwiseFold f{scale, offset, conv.slope, conv.norm.mean, a, b, c};
    Buffer<Windows> columns(conv.width);
    for (size_t x = 0; x < conv.width && conv.stride > 1; x++) columns[x] = Windows(x, conv.stride, width);
    const size_t chunks = units(channels, kSumChannels), taps = 9 * lanes / 8;
    const int pieces[] = {int(parts), int(chunks), int(conv.images), int(taps)};
    parallel(conv.threads, pieces, 4, [&](int stage, size_t piece, size_t thread) {
        if (stage == 0) {
            const Range range(blocks, piece, parts);
            for (size_t block = range.begin; block < range.end; block++)
                reduce(conv, gradient.out, f, block * kBackwardPixels, least((block + 1) * kBackwardPixels, all),
                       block_sums + block * 3 * channels);
        } else if (stage == 1) {
            const size_t k = piece * kSumChannels, count = least(kSumChannels, channels - k);
            double sums[3][kSumChannels] = {};
            for (size_t block = 0; block < blocks; block++)
                for (size_t j = 0; j < 3; j++)
                    for (size_t i = 0; i < count; i++) sums[j][i] += block_sums[(block * 3 + j) * channels + k + i];
            for (size_t i = 0; i < count; i++) {
                const double t = sums[2][i] * conv.norm.inverse[k + i];
                gradient.slope[k + i] = float(sums[0][i]);
                gradient.beta[k + i] = float(sums[1][i]);
                gradient.gamma[k + i] = float(t);
                fold_gradient(conv.norm, conv.training, k + i, double(all), sums[1][i], t, a, b, c);
            }
        } else if (stage == 2) {
            const size_t image = mirrored(piece, conv.images, threads);
            const Padded x(conv.height, conv.width, channels, padded + thread * (x_size + dy_size));
            const Padded dy(height, width, channels, x.data + x_size);
            if (!cleared[thread]) x.clear(), dy.clear();
            cleared[thread] = true;
            propagate(conv, gradient, f, weight, columns, image, x, dy, tap_sums + image * 9 * lanes);
        } else {  // eight channels of one tap
            double sums[8] = {};
            for (size_t image = conv.images; image-- > 0;)
                for (size_t i = 0; i < 8; i++) sums[i] += tap_sums[image * 9 * lanes + piece * 8 + i];
            const size_t tap = piece * 8 / lanes, k = piece * 8 % lanes;
            for (size_t i = 0; i < 8 && k + i < channels; i++) gradient.weight[(k + i) * 9 + tap] = float(sums[i]);
        }
    });
}
