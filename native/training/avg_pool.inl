// Average pooling, and the sum of two maps. Part of kernels.inl.

// One row of the result; `next` from row to row of the map.
template <class F>
BCNN_KERNEL void average_panel(size_t k, size_t width, size_t channels, size_t stride, size_t next, const float* x,
                               float share, float* out) {
    for (size_t ox = 0; ox < width; ox++, x += stride * channels, out += channels) {
        F sum = F{};
        for (size_t ky = 0; ky < stride; ky++)
            for (size_t kx = 0; kx < stride; kx++) sum += load<F>(x + ky * next + kx * channels + k);
        store(out + k, F(sum * share));
    }
}

static void forward(const AvgPool& pool, const float* x, float* out) {
    const size_t channels = pool.channels, height = pool.height / pool.stride, width = pool.width / pool.stride;
    const float share = 1.0f / float(pool.stride * pool.stride);
    const size_t rows = pool.images * height, parts = shares(rows, pool.threads);
    const int pieces[] = {int(parts)};
    parallel(pool.threads, pieces, 1, [&](int, size_t piece, size_t) {
        const Range range(rows, piece, parts);
        const size_t next = pool.width * channels;
        for (size_t row = range.begin; row < range.end; row++)  // output rows of all images; H = stride * height
            BCNN_PANELS(channels, average_panel, width, channels, pool.stride, next, x + row * pool.stride * next,
                        share, out + row * width * channels);
    });
}

static void backward(const AvgPool& pool, const float* out_gradient, float* x_gradient) {
    const size_t channels = pool.channels, width = pool.width / pool.stride;
    const float share = 1.0f / float(pool.stride * pool.stride);
    const size_t rows = pool.images * pool.height, parts = shares(rows, pool.threads);
    const int pieces[] = {int(parts)};
    parallel(pool.threads, pieces, 1, [&](int, size_t piece, size_t) {
        const Range range(rows, piece, parts);
        for (size_t row = range.begin; row < range.end; row++)
            for (size_t x = 0; x < pool.width; x++) {
                const float* from = out_gradient + (row / pool.stride * width + x / pool.stride) * channels;
                float* __restrict to = x_gradient + (row * pool.width + x) * channels;
                for (size_t k = 0; k < channels; k++) to[k] = from[k] * share;
            }
    });
}

static void sum(const float* a, const float* b, size_t size, int threads, float* out) {
    constexpr size_t block = 4096;
    const size_t blocks = units(size, block), parts = shares(blocks, threads);
    const int pieces[] = {int(parts)};
    parallel(threads, pieces, 1, [&](int, size_t piece, size_t) {
        const Range range(blocks, piece, parts);
        float* __restrict to = out;
        for (size_t i = range.begin * block; i < least(range.end * block, size); i++) to[i] = a[i] + b[i];
    });
}
