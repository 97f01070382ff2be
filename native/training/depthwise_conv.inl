// The depth wise convolution with batch norm and PReLU. Part of kernels.inl.

// An image with a border of zero pixels and channels filled up to whole vectors: no window needs a test, no loop a tail.
struct Padded {
    Padded(size_t height_, size_t width_, size_t channels_, float* data_)
        : height(height_),
          width(width_),
          channels(channels_),
          lanes(round_up(channels_, 8)),
          row((width_ + 2) * lanes),
          data(data_) {}
    static size_t floats(size_t height, size_t width, size_t channels) {
        return (height + 2) * (width + 2) * round_up(channels, 8);
    }
    void clear() const { fill(data, (height + 2) * row, 0.0f); }
    float* pixel(size_t y, size_t x) const { return data + (y + 1) * row + (x + 1) * lanes; }
    void copy(const float* image) const {
        for (size_t y = 0; y < height; y++)
            for (size_t x = 0; x < width; x++, image += channels)
                __builtin_memcpy(pixel(y, x), image, channels * sizeof(float));
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
    for (size_t k = 0; k < from.channels; k += 8) {
        f8 w[9];
        for (size_t t = 0; t < 9; t++) w[t] = load<f8>(weight + t * lanes + k);
        const float *top = corner + k, *middle = top + from.row, *bottom = middle + from.row;
        const size_t count = least(8, from.channels - k);
        float* to = out + k;
        for (size_t x = 0; x < width; x++, to += from.channels, top += step, middle += step, bottom += step) {
            f8 sum = w[0] * load<f8>(top) + w[1] * load<f8>(top + lanes) + w[2] * load<f8>(top + 2 * lanes);
            sum += w[3] * load<f8>(middle) + w[4] * load<f8>(middle + lanes) + w[5] * load<f8>(middle + 2 * lanes);
            sum += w[6] * load<f8>(bottom) + w[7] * load<f8>(bottom + lanes) + w[8] * load<f8>(bottom + 2 * lanes);
            if (count == 8)
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
    for (size_t k = 0; k < lanes; k += 8) {
        f8 sum[9];
        for (size_t t = 0; t < 9; t++) sum[t] = load<f8>(sums + t * lanes + k);
        const float *top = corner + k, *middle = top + from.row, *bottom = middle + from.row, *grad = dy + k;
        for (size_t x = 0; x < width; x++, grad += lanes, top += step, middle += step, bottom += step) {
            const f8 g = load<f8>(grad);
            for (size_t t = 0; t < 3; t++) {
                sum[t] += g * load<f8>(top + t * lanes);
                sum[3 + t] += g * load<f8>(middle + t * lanes);
                sum[6 + t] += g * load<f8>(bottom + t * lanes);
            }
        }
        for (size_t t = 0; t < 9; t++) store(sums + t * lanes + k, sum[t]);
    }
}

// dx for strides above 1: a pixel (y, x) lies under the windows of at most four outputs.
static void spread(const DepthwiseConv& conv, const Padded& dy, const float* weight, size_t y, size_t x, float* out) {
    const float *w[4], *from[4];
    size_t count = 0;
    for (size_t ky = 0; ky < 3; ky++)
        for (size_t kx = 0; kx < 3; kx++) {
            if (y + 1 < ky || x + 1 < kx || (y + 1 - ky) % conv.stride || (x + 1 - kx) % conv.stride) continue;
            const size_t oy = (y + 1 - ky) / conv.stride, ox = (x + 1 - kx) / conv.stride;
            if (oy >= dy.height || ox >= dy.width) continue;
            w[count] = weight + (3 * ky + kx) * dy.lanes;
            from[count++] = dy.pixel(oy, ox);
        }
    for (size_t k = 0; k < conv.channels; k += 8) {
        f8 sum = {};
        for (size_t t = 0; t < count; t++) sum += load<f8>(w[t] + k) * load<f8>(from[t] + k);
        __builtin_memcpy(out + k, &sum, least(8, conv.channels - k) * sizeof(float));
    }
}

// Images are pieces of work; a thread clears its own padded images when it takes its first one.
static void forward(const DepthwiseConv& conv, float* out) {
    const size_t height = (conv.height - 1) / conv.stride + 1, width = (conv.width - 1) / conv.stride + 1;
    const size_t channels = conv.channels, lanes = round_up(channels, 8), pixels = height * width,
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
            for (size_t m = images.end * pixels; m-- > images.begin * pixels;) {
                const float *y = conv.y + m * channels, *s = scale, *o = offset, *slope = conv.slope;
                float* __restrict to = out + m * channels;
#pragma GCC ivdep
                for (size_t k = 0; k < channels; k++) {
                    const float v = s[k] * y[k] + o[k], scaled = v * slope[k];
                    to[k] = v > 0 ? v : scaled;
                }
            }
        }
    });
}

// What the two passes of the backward pass read of every channel.
struct DepthwiseFold {
    const float *scale, *offset, *slope, *mean, *a, *b, *c;
};

// First pass: the sums of slope, S and T as in `reduce_panel`, of the pixels of one block.
static void reduce(const DepthwiseConv& conv, const float* gradient, const DepthwiseFold& f, size_t begin, size_t end,
                   float* sums) {
    const size_t channels = conv.channels;
    fill(sums, 3 * channels, 0.0f);
    const float *s = f.scale, *o = f.offset, *slope = f.slope, *mean = f.mean;
    float* __restrict slope_sum = sums, * __restrict g_sum = sums + channels, * __restrict gy_sum = sums + 2 * channels;
    for (size_t m = begin; m < end; m++) {
        const float *y = conv.y + m * channels, *grad = gradient + m * channels;
#pragma GCC ivdep
        for (size_t k = 0; k < channels; k++) {
            const float v = s[k] * y[k] + o[k], scaled = grad[k] * slope[k], product = grad[k] * v;
            const float g = v > 0 ? grad[k] : scaled;
            slope_sum[k] += v > 0 ? 0.0f : product;
            g_sum[k] += g;
            gy_sum[k] += g * (y[k] - mean[k]);
        }
    }
}

// Second pass, one image: dy, then the weights' gradient [9][lanes] and dx from it.
static void propagate(const DepthwiseConv& conv, const DepthwiseConvGradient& gradient, const DepthwiseFold& f,
                      const float* weight, size_t image, const Padded& x, const Padded& dy, float* tap_sums) {
    const size_t channels = conv.channels, image_size = conv.height * conv.width * channels;
    const float *s = f.scale, *o = f.offset, *slope = f.slope, *a = f.a, *b = f.b, *c = f.c;
    x.copy(conv.x + image * image_size);
    fill(tap_sums, 9 * x.lanes, 0.0f);
    for (size_t oy = 0; oy < dy.height; oy++) {
        for (size_t ox = 0; ox < dy.width; ox++) {
            const size_t m = ((image * dy.height + oy) * dy.width + ox) * channels;
            const float *y = conv.y + m, *grad = gradient.out + m;
            float* __restrict to = dy.pixel(oy, ox);
#pragma GCC ivdep
            for (size_t k = 0; k < channels; k++) {
                const float v = s[k] * y[k] + o[k], scaled = grad[k] * slope[k];
                to[k] = a[k] * (v > 0 ? grad[k] : scaled) + (b[k] * y[k] + c[k]);
            }
        }
        correlate_row(x, x.data + oy * conv.stride * x.row, conv.stride, dy.width, dy.pixel(oy, 0), tap_sums);
    }
    float* dx = gradient.x + image * image_size;
    for (size_t y = 0; y < conv.height; y++) {
        if (conv.stride == 1)
            convolve_row(dy, dy.data + y * dy.row, 1, dy.width, weight, dx + y * dy.width * channels);
        else
            for (size_t x_ = 0; x_ < conv.width; x_++)
                spread(conv, dy, weight, y, x_, dx + (y * conv.width + x_) * channels);
    }
}

static void backward(const DepthwiseConv& conv, const DepthwiseConvGradient& gradient) {
    const size_t height = (conv.height - 1) / conv.stride + 1, width = (conv.width - 1) / conv.stride + 1;
    const size_t channels = conv.channels, lanes = round_up(channels, 8), pixels = height * width,
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
            propagate(conv, gradient, f, weight, image, x, dy, tap_sums + image * 9 * lanes);
        } else {  // eight channels of one tap
            double sums[8] = {};
            for (size_t image = conv.images; image-- > 0;)
                for (size_t i = 0; i < 8; i++) sums[i] += tap_sums[image * 9 * lanes + piece * 8 + i];
            const size_t tap = piece * 8 / lanes, k = piece * 8 % lanes;
            for (size_t i = 0; i < least(8, channels - k); i++) gradient.weight[(k + i) * 9 + tap] = float(sums[i]);
        }
    });
}
