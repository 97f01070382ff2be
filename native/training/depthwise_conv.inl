// layers.DepthwiseConv and average pooling. Part of kernels.inl.

// An image with a border of zero pixels and channels filled up to whole vectors: no window needs a test, no loop a tail.
struct Padded {
    Padded(size_t height_, size_t width_, size_t channels_)
        : height(height_),
          width(width_),
          channels(channels_),
          lanes(round_up(channels_, 8)),
          row((width_ + 2) * lanes),
          data((height_ + 2) * row) {
        std::fill(data + 0, data + (height + 2) * row, 0.0f);
    }
    float* pixel(size_t y, size_t x) const { return data + (y + 1) * row + (x + 1) * lanes; }
    void copy(const float* image) const {
        for (size_t y = 0; y < height; y++)
            for (size_t x = 0; x < width; x++, image += channels)
                std::memcpy(pixel(y, x), image, channels * sizeof(float));
    }

    size_t height, width, channels, lanes, row;
    Buffer<float> data;
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
        const size_t count = std::min<size_t>(8, from.channels - k);
        float* to = out + k;
        for (size_t x = 0; x < width; x++, to += from.channels, top += step, middle += step, bottom += step) {
            f8 sum = w[0] * load<f8>(top) + w[1] * load<f8>(top + lanes) + w[2] * load<f8>(top + 2 * lanes);
            sum += w[3] * load<f8>(middle) + w[4] * load<f8>(middle + lanes) + w[5] * load<f8>(middle + 2 * lanes);
            sum += w[6] * load<f8>(bottom) + w[7] * load<f8>(bottom + lanes) + w[8] * load<f8>(bottom + 2 * lanes);
            if (count == 8)
                store(to, sum);
            else
                std::memcpy(to, &sum, count * sizeof(float));
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
        std::memcpy(out + k, &sum, std::min<size_t>(8, conv.channels - k) * sizeof(float));
    }
}

static void forward(const DepthwiseConv& conv, float* out) {
    const size_t height = (conv.height - 1) / conv.stride + 1, width = (conv.width - 1) / conv.stride + 1,
                 pixels = height * width;
    const size_t channels = conv.channels, lanes = round_up(channels, 8);
    const size_t parts = std::min<size_t>(conv.threads, conv.images);
    Buffer<float> weight(9 * lanes), scale(channels), offset(channels);
    tap_major(conv.weight, channels, lanes, false, weight);
    std::vector<Moments> moments(parts, Moments(channels));
    parallel(parts, [&](size_t part) {
        Buffer<float> sums(2 * channels);
        Buffer<double> wide(2 * channels);
        const Padded x(conv.height, conv.width, channels);
        const Range images(conv.images, part, parts);
        for (size_t image = images.begin; image < images.end; image++) {
            float* y = conv.y + image * pixels * channels;
            x.copy(conv.x + image * conv.height * conv.width * channels);
            for (size_t oy = 0; oy < height; oy++)
                convolve_row(x, x.data + oy * conv.stride * x.row, conv.stride, width, weight,
                             y + oy * width * channels);
            if (conv.training) moments[part].add(y, pixels, sums, wide);
        }
    });
    finish(conv.norm, conv.training, moments, channels);
    fold(conv.norm, channels, scale, offset);
    parallel(parts, [&](size_t part) {
        const Range images(conv.images, part, parts);
        for (size_t m = images.end * pixels; m-- > images.begin * pixels;) {
            const float *y = conv.y + m * channels, *s = scale, *o = offset, *slope = conv.slope;
            float* __restrict to = out + m * channels;
#pragma GCC ivdep
            for (size_t k = 0; k < channels; k++) {
                const float v = s[k] * y[k] + o[k], scaled = v * slope[k];
                to[k] = v > 0 ? v : scaled;
            }
        }
    });
}

static void backward(const DepthwiseConv& conv, const DepthwiseConvGradient& gradient) {
    const size_t height = (conv.height - 1) / conv.stride + 1, width = (conv.width - 1) / conv.stride + 1,
                 pixels = height * width;
    const size_t channels = conv.channels, lanes = round_up(channels, 8);
    const size_t parts = std::min<size_t>(conv.threads, conv.images);
    Buffer<float> weight(9 * lanes), scale(channels), offset(channels), folded(3 * channels);
    tap_major(conv.weight, channels, lanes, conv.stride == 1, weight);
    fold(conv.norm, channels, scale, offset);
    const float *s = scale, *o = offset, *slope = conv.slope, *mean = conv.norm.mean;

    // First pass: sums of slope, S, T as in `reduce`.
    Buffer<double> part_sums(parts * 9 * lanes), sums(9 * lanes);
    parallel(parts, [&](size_t part) {
        Buffer<float> block_sums(3 * channels);
        double* total = part_sums + part * 3 * channels;
        std::fill(total, total + 3 * channels, 0.0);
        const Range images(conv.images, part, parts);
        const size_t last = images.end * pixels;
        for (size_t first = images.begin * pixels; first < last; first += kBackwardPixels) {
            std::fill(block_sums + 0, block_sums + 3 * channels, 0.0f);
            float* __restrict slope_sum = block_sums, * __restrict g_sum = block_sums + channels, * __restrict gy_sum = block_sums + 2 * channels;
            for (size_t m = first; m < std::min(first + kBackwardPixels, last); m++) {
                const float *y = conv.y + m * channels, *grad = gradient.out + m * channels;
#pragma GCC ivdep
                for (size_t k = 0; k < channels; k++) {
                    const float v = s[k] * y[k] + o[k], scaled = grad[k] * slope[k], product = grad[k] * v;
                    const float g = v > 0 ? grad[k] : scaled;
                    slope_sum[k] += v > 0 ? 0.0f : product;
                    g_sum[k] += g;
                    gy_sum[k] += g * (y[k] - mean[k]);
                }
            }
            for (size_t i = 0; i < 3 * channels; i++) total[i] += block_sums[i];
        }
    });
    sum_parts(part_sums, parts, 3 * channels, 3 * channels, sums);
    for (size_t k = 0; k < channels; k++) {
        sums[2 * channels + k] *= conv.norm.inverse[k];
        gradient.slope[k] = float(sums[k]);
        gradient.beta[k] = float(sums[channels + k]);
        gradient.gamma[k] = float(sums[2 * channels + k]);
    }
    float *a = folded, *b = a + channels, *c = b + channels;
    fold_gradient(conv.norm, conv.training, channels, double(conv.images * pixels), sums + channels,
                  sums + 2 * channels, a, b, c);

    // Second pass, an image at a time: dy, then dw and dx from it.
    parallel(parts, [&](size_t part) {
        const Padded x(conv.height, conv.width, channels), dy(height, width, channels);
        Buffer<float> tap_sums(9 * lanes);
        double* total = part_sums + part * 9 * lanes;
        std::fill(total, total + 9 * lanes, 0.0);
        const Range images(conv.images, part, parts);
        for (size_t image = images.end; image-- > images.begin;) {
            x.copy(conv.x + image * conv.height * conv.width * channels);
            std::fill(tap_sums + 0, tap_sums + 9 * lanes, 0.0f);
            for (size_t oy = 0; oy < height; oy++) {
                for (size_t ox = 0; ox < width; ox++) {
                    const size_t m = (image * pixels + oy * width + ox) * channels;
                    const float *y = conv.y + m, *grad = gradient.out + m;
                    float* __restrict to = dy.pixel(oy, ox);
#pragma GCC ivdep
                    for (size_t k = 0; k < channels; k++) {
                        const float v = s[k] * y[k] + o[k], scaled = grad[k] * slope[k];
                        to[k] = a[k] * (v > 0 ? grad[k] : scaled) + (b[k] * y[k] + c[k]);
                    }
                }
                correlate_row(x, x.data + oy * conv.stride * x.row, conv.stride, width, dy.pixel(oy, 0), tap_sums);
            }
            for (size_t i = 0; i < 9 * lanes; i++) total[i] += tap_sums[i];

            float* dx = gradient.x + image * conv.height * conv.width * channels;
            for (size_t y = 0; y < conv.height; y++) {
                if (conv.stride == 1)
                    convolve_row(dy, dy.data + y * dy.row, 1, width, weight, dx + y * width * channels);
                else
                    for (size_t x_ = 0; x_ < conv.width; x_++)
                        spread(conv, dy, weight, y, x_, dx + (y * conv.width + x_) * channels);
            }
        }
    });
    sum_parts(part_sums, parts, 9 * lanes, 9 * lanes, sums);
    for (size_t k = 0; k < channels; k++)
        for (size_t t = 0; t < 9; t++) gradient.weight[k * 9 + t] = float(sums[t * lanes + k]);
}

// --- AvgPool ---------------------------------------------------------------------------------------------------------

static void forward(const AvgPool& pool, const float* x, float* out) {
    const size_t channels = pool.channels, height = pool.height / pool.stride, width = pool.width / pool.stride;
    const float share = 1.0f / float(pool.stride * pool.stride);
    const size_t rows = pool.images * height, parts = std::min<size_t>(pool.threads, rows);
    parallel(parts, [&](size_t part) {
        const Range range(rows, part, parts);
        for (size_t row = range.begin; row < range.end; row++)  // output rows of all images; H = stride * height
            for (size_t ox = 0; ox < width; ox++) {
                float* __restrict to = out + (row * width + ox) * channels;
                std::fill(to, to + channels, 0.0f);
                for (size_t ky = 0; ky < pool.stride; ky++)
                    for (size_t kx = 0; kx < pool.stride; kx++) {
                        const float* from =
                            x + ((row * pool.stride + ky) * pool.width + ox * pool.stride + kx) * channels;
                        for (size_t k = 0; k < channels; k++) to[k] += from[k];
                    }
                for (size_t k = 0; k < channels; k++) to[k] *= share;
            }
    });
}

static void backward(const AvgPool& pool, const float* out_gradient, float* x_gradient) {
    const size_t channels = pool.channels, width = pool.width / pool.stride;
    const float share = 1.0f / float(pool.stride * pool.stride);
    const size_t rows = pool.images * pool.height, parts = std::min<size_t>(pool.threads, rows);
    parallel(parts, [&](size_t part) {
        const Range range(rows, part, parts);
        for (size_t row = range.begin; row < range.end; row++)
            for (size_t x = 0; x < pool.width; x++) {
                const float* from = out_gradient + (row / pool.stride * width + x / pool.stride) * channels;
                float* __restrict to = x_gradient + (row * pool.width + x) * channels;
                for (size_t k = 0; k < channels; k++) to[k] = from[k] * share;
            }
    });
}
