// Batch norm: statistics of a batch, its fold to one multiply-add, its gradient. Part of kernels.inl.

// What a block of up to 64 pixels leaves for `merge`: of real values their mean and sum of squared deviations; of integers |y| <= K
// the sums of y and of y * y, which are whole numbers, exact in 32 bits up to K = 5,792.
template <class Y>
struct Record;
template <>
struct Record<float> {
    typedef float type;
};
template <>
struct Record<int16_t> {
    typedef int32_t type;
};

// A block's record of one panel of channels.
template <class F>
BCNN_INLINE void measure_panel(size_t k, const float* y, size_t stride, size_t n, float* sums, float* squares) {
    F mean = F{}, square = F{};
    for (size_t m = 0; m < n; m++) mean += load<F>(y + m * stride + k);
    mean *= 1.0f / float(n);
    for (size_t m = 0; m < n; m++) {
        const F d = load<F>(y + m * stride + k) - mean;
        square += d * d;
    }
    store(sums + k, mean);
    store(squares + k, square);
}

template <class F>
BCNN_INLINE void measure_panel(size_t k, const int16_t* y, size_t stride, size_t n, int32_t* sums, int32_t* squares) {
    typedef typename Integers<F>::words I;
    I sum = I{}, square = I{};
    for (size_t m = 0; m < n; m++) {
        const I value = load_whole<F>(y + m * stride + k);
        sum += value;
        square += value * value;
    }
    store(sums + k, sum);
    store(squares + k, square);
}

// The records of [pixels][channels] values, `stride` from pixel to pixel; `next` from one block's record to the next block's.
template <class Y, class R>
static void measure(const Y* y, size_t stride, size_t pixels, size_t channels, R* sums, R* squares, size_t next) {
    for (size_t begin = 0; begin < pixels; begin += kMomentsPixels, sums += next, squares += next)
        BCNN_PANELS(channels, measure_panel, y + begin * stride, stride, least(kMomentsPixels, pixels - begin), sums,
                    squares);
}

BCNN_INLINE void widen(const float* sum, const float* square, size_t, size_t channels, double* mean, double* squares) {
    for (size_t k = 0; k < channels; k++) mean[k] = sum[k], squares[k] = square[k];
}

BCNN_INLINE void widen(const int32_t* sum, const int32_t* square, size_t n, size_t channels, double* mean,
                       double* squares) {
    const double share = 1.0 / double(n);
    for (size_t k = 0; k < channels; k++) {
        mean[k] = sum[k] * share;
        squares[k] = square[k] - sum[k] * mean[k];
    }
}

// Mean and variance of channels k ... k+count from the records [blocks][2][channels] of `runs` runs of `pixels` pixels, block by
// block (Chan's update): no difference of large sums. Then what the forward pass needs of them.
template <class R>
static void merge(const Norm& norm, bool training, const R* records, size_t runs, size_t pixels, size_t channels,
                  size_t k, size_t count) {
    if (!training) {
        for (size_t i = k; i < k + count; i++) {
            norm.mean[i] = norm.running_mean[i];
            norm.inverse[i] = float(1 / __builtin_sqrt(double(norm.running_var[i]) + norm.eps));
        }
        return;
    }
    double mean[kSumChannels] = {}, squares[kSumChannels] = {}, block_mean[kSumChannels], block_squares[kSumChannels];
    double total = 0;
    for (size_t run = 0; run < runs; run++)
        for (size_t begin = 0; begin < pixels; begin += kMomentsPixels, records += 2 * channels) {
            const double n = double(least(kMomentsPixels, pixels - begin)), share = n / (total + n);
            widen(records + k, records + channels + k, least(kMomentsPixels, pixels - begin), count, block_mean,
                  block_squares);
            for (size_t i = 0; i < count; i++) {
                const double delta = block_mean[i] - mean[i];
                mean[i] += delta * share;
                squares[i] += block_squares[i] + delta * delta * total * share;
            }
            total += n;
        }
    for (size_t i = 0; i < count; i++) {
        norm.mean[k + i] = float(mean[i]);
        norm.inverse[k + i] = float(1 / __builtin_sqrt(squares[i] / total + norm.eps));
        // torch's rule: the running variance is the unbiased one.
        norm.running_mean[k + i] += float(norm.momentum * (mean[i] - norm.running_mean[k + i]));
        norm.running_var[k + i] += float(norm.momentum * (squares[i] / (total - 1) - norm.running_var[k + i]));
    }
}

// Batch norm of channels k ... end as one multiply-add: scale * y + offset.
static void fold(const Norm& norm, size_t k, size_t end, float* scale, float* offset) {
    for (; k < end; k++) {
        scale[k] = norm.gamma[k] * norm.inverse[k];
        offset[k] = norm.beta[k] - scale[k] * norm.mean[k];
    }
}

// Gradient of batch norm, of one channel. With yhat = (y - mean) * inverse, S = sum of g, T = sum of g * yhat over M pixels:
//   dy = gamma * inverse * (g - S / M - yhat * T / M) = a * g + b * y + c, one multiply-add more than the forward pass.
// In evaluation mode mean and inverse are constants: dy = a * g.
static void fold_gradient(const Norm& norm, bool training, size_t k, double pixels, double s, double t, float* a,
                          float* b, float* c) {
    const double scale = double(norm.gamma[k]) * norm.inverse[k];
    const double slope = training ? -scale * norm.inverse[k] * t / pixels : 0;
    a[k] = float(scale);
    b[k] = float(slope);
    c[k] = training ? float(-scale * s / pixels - slope * norm.mean[k]) : 0;
}
