// Dispatch: the kernels are compiled twice, for AVX2 + FMA and for whatever the compiler targets, and chosen at run time.
#include "training.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define BCNN_TRAINING_AVX2 1
#include <immintrin.h>
#endif

namespace bcnn::training {
namespace {

// Runs work(part) for part 0 ... parts-1, one thread each. Threads are made per call: a call is milliseconds, a thread
// microseconds, and there is no pool to break in a forked data loader.
template <class Work>
void parallel(size_t parts, const Work& work) {
    std::vector<std::thread> threads;
    for (size_t part = 1; part < parts; part++) threads.emplace_back([&work, part] { work(part); });
    work(0);
    for (auto& thread : threads) thread.join();
}

// A cache-line aligned array, not initialised.
template <class T>
class Buffer {
public:
    explicit Buffer(size_t size) : data_(static_cast<T*>(std::aligned_alloc(64, (size * sizeof(T) + 127) / 64 * 64))) {
        if (!data_) throw std::bad_alloc();
    }
    Buffer(Buffer&& other) noexcept : data_(other.data_) { other.data_ = nullptr; }
    ~Buffer() { std::free(data_); }
    operator T*() const { return data_; }

private:
    T* data_;
};

constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

namespace portable {
namespace {
#include "kernels.inl"
}
}  // namespace portable

#ifdef BCNN_TRAINING_AVX2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define BCNN_KERNELS_AVX2
namespace avx2 {
namespace {
#include "kernels.inl"
}
}  // namespace avx2
#undef BCNN_KERNELS_AVX2
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

namespace {

bool has_avx2() {
#ifdef BCNN_TRAINING_AVX2
    static const bool has = [] {
        const char* forced = std::getenv("BCNN_ISA");
        if (forced && std::strcmp(forced, "scalar") == 0) return false;
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    }();
    return has;
#else
    return false;
#endif
}

}  // namespace

#ifdef BCNN_TRAINING_AVX2
#define BCNN_DISPATCH(call) return has_avx2() ? avx2::call : portable::call
#else
#define BCNN_DISPATCH(call) return portable::call
#endif

void binary_conv_forward(const BinaryConv& conv, float* out) { BCNN_DISPATCH(forward(conv, out)); }
void binary_conv_backward(const BinaryConv& conv, const BinaryConvGradient& gradient) {
    BCNN_DISPATCH(backward(conv, gradient));
}
void depthwise_conv_forward(const DepthwiseConv& conv, float* out) { BCNN_DISPATCH(forward(conv, out)); }
void depthwise_conv_backward(const DepthwiseConv& conv, const DepthwiseConvGradient& gradient) {
    BCNN_DISPATCH(backward(conv, gradient));
}
void avg_pool_forward(const AvgPool& pool, const float* x, float* out) { BCNN_DISPATCH(forward(pool, x, out)); }
void avg_pool_backward(const AvgPool& pool, const float* out_gradient, float* x_gradient) {
    BCNN_DISPATCH(backward(pool, out_gradient, x_gradient));
}
const char* isa() { return has_avx2() ? "avx2" : "portable"; }

}  // namespace bcnn::training
