// Batch norm: statistics of a batch, its fold to one multiply-add, its gradient. Part of kernels.inl.

// Mean and sum of squared deviations per channel, gathered block by block (Chan's update): no difference of large sums.
struct Moments {
    explicit Moments(size_t channels) : mean(channels, 0.0), squares(channels, 0.0) {}
    double count = 0;
    std::vector<double> mean, squares;

    void merge(double n, const double* block_mean, const double* block_squares) {
        const double share = n / (count + n);
        for (size_t k = 0; k < mean.size(); k++) {
            const double delta = block_mean[k] - mean[k];
            mean[k] += delta * share;
            squares[k] += block_squares[k] + delta * delta * count * share;
        }
        count += n;
    }

    // Adds [pixels][K] values; `scratch` is 2 K floats, `wide` 2 K doubles.
    void add(const float* y, size_t pixels, float* scratch, double* wide) {
        const size_t channels = mean.size();
        float* __restrict sum = scratch, * __restrict square = scratch + channels;
        for (size_t begin = 0; begin < pixels; begin += kMomentsPixels) {
            const size_t n = std::min(kMomentsPixels, pixels - begin);
            const float* block = y + begin * channels;
            std::fill(scratch, scratch + 2 * channels, 0.0f);
            for (size_t m = 0; m < n; m++) {
                const float* row = block + m * channels;
#pragma GCC ivdep
                for (size_t k = 0; k < channels; k++) sum[k] += row[k];
            }
            const float share = 1.0f / float(n);
            for (size_t k = 0; k < channels; k++) sum[k] *= share;
            for (size_t m = 0; m < n; m++) {
                const float* row = block + m * channels;
#pragma GCC ivdep
                for (size_t k = 0; k < channels; k++) {
                    const float d = row[k] - sum[k];
                    square[k] += d * d;
                }
            }
            for (size_t k = 0; k < channels; k++) wide[k] = sum[k], wide[channels + k] = square[k];
            merge(double(n), wide, wide + channels);
        }
    }

    // The same for integers |y| <= K: sums and sums of squares are whole numbers, exact in 32 bits up to K = 5,792.
    void add(const int16_t* y, size_t pixels, float* scratch, double* wide) {
        const size_t channels = mean.size();
        int32_t* __restrict sum = reinterpret_cast<int32_t*>(scratch), * __restrict square = sum + channels;
        for (size_t begin = 0; begin < pixels; begin += kMomentsPixels) {
            const size_t n = std::min(kMomentsPixels, pixels - begin);
            std::fill(sum, sum + 2 * channels, 0);
            for (size_t m = begin; m < begin + n; m++) {
                const int16_t* row = y + m * channels;
#pragma GCC ivdep
                for (size_t k = 0; k < channels; k++) {
                    const int32_t value = row[k];
                    sum[k] += value;
                    square[k] += value * value;
                }
            }
            const double share = 1.0 / double(n);
            for (size_t k = 0; k < channels; k++) {
                wide[k] = sum[k] * share;
                wide[channels + k] = square[k] - sum[k] * wide[k];
            }
            merge(double(n), wide, wide + channels);
        }
    }
};

static void finish(const Norm& norm, bool training, const std::vector<Moments>& parts, size_t channels) {
    if (!training) {
        for (size_t k = 0; k < channels; k++) {
            norm.mean[k] = norm.running_mean[k];
            norm.inverse[k] = float(1 / std::sqrt(double(norm.running_var[k]) + norm.eps));
        }
        return;
    }
    Moments all(channels);
    for (const Moments& part : parts)
        if (part.count > 0) all.merge(part.count, part.mean.data(), part.squares.data());
    for (size_t k = 0; k < channels; k++) {
        norm.mean[k] = float(all.mean[k]);
        norm.inverse[k] = float(1 / std::sqrt(all.squares[k] / all.count + norm.eps));
        // torch's rule: the running variance is the unbiased one.
        norm.running_mean[k] += float(norm.momentum * (all.mean[k] - norm.running_mean[k]));
        norm.running_var[k] += float(norm.momentum * (all.squares[k] / (all.count - 1) - norm.running_var[k]));
    }
}

// Batch norm as one multiply-add: scale * y + offset.
static void fold(const Norm& norm, size_t channels, float* scale, float* offset) {
    for (size_t k = 0; k < channels; k++) {
        scale[k] = norm.gamma[k] * norm.inverse[k];
        offset[k] = norm.beta[k] - scale[k] * norm.mean[k];
    }
}

// Gradient of batch norm. With yhat = (y - mean) * inverse, S = sum of g, T = sum of g * yhat over M pixels:
//   dy = gamma * inverse * (g - S / M - yhat * T / M) = a * g + b * y + c, one multiply-add more than the forward pass.
// In evaluation mode mean and inverse are constants: dy = a * g.
static void fold_gradient(const Norm& norm, bool training, size_t channels, double pixels, const double* s,
                          const double* t, float* a, float* b, float* c) {
    for (size_t k = 0; k < channels; k++) {
        const double scale = double(norm.gamma[k]) * norm.inverse[k];
        const double slope = training ? -scale * norm.inverse[k] * t[k] / pixels : 0;
        a[k] = float(scale);
        b[k] = float(slope);
        c[k] = training ? float(-scale * s[k] / pixels - slope * norm.mean[k]) : 0;
    }
}

// The part of `count` blocks that belongs to `part` of `parts`.
struct Range {
    Range(size_t count, size_t part, size_t parts) : begin(count * part / parts), end(count * (part + 1) / parts) {}
    size_t begin, end;
};

static void sum_parts(const double* parts, size_t count, size_t stride, size_t size, double* total) {
    for (size_t i = 0; i < size; i++) {
        total[i] = 0;
        for (size_t part = 0; part < count; part++) total[i] += parts[part * stride + i];
    }
}
