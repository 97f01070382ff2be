// The instruction set that runs: the best one this machine has.
#include <cstdlib>
#include <cstring>

#include "kernels.h"

namespace bcnn::training {
namespace {

const Kernels& kernels() {
#if defined(__x86_64__)
    static const bool avx2 = [] {
        const char* forced = std::getenv("BCNN_ISA");
        if (forced && std::strcmp(forced, "scalar") == 0) return false;
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    }();
    return avx2 ? avx2_kernels : portable_kernels;
#else
    return portable_kernels;
#endif
}

}  // namespace

void binary_conv_forward(const BinaryConv& conv, float* out) { kernels().binary_conv_forward(conv, out); }
void binary_conv_backward(const BinaryConv& conv, const BinaryConvGradient& gradient) {
    kernels().binary_conv_backward(conv, gradient);
}
void tap_conv_forward(const TapConv& conv, float* out) { kernels().tap_conv_forward(conv, out); }
void tap_conv_backward(const TapConv& conv, const TapConvGradient& gradient) {
    kernels().tap_conv_backward(conv, gradient);
}
void depthwise_conv_forward(const DepthwiseConv& conv, float* out) { kernels().depthwise_conv_forward(conv, out); }
void depthwise_conv_backward(const DepthwiseConv& conv, const DepthwiseConvGradient& gradient) {
    kernels().depthwise_conv_backward(conv, gradient);
}
void avg_pool_forward(const AvgPool& pool, const float* x, float* out) { kernels().avg_pool_forward(pool, x, out); }
void avg_pool_backward(const AvgPool& pool, const float* out_gradient, float* x_gradient) {
    kernels().avg_pool_backward(pool, out_gradient, x_gradient);
}
void add(const float* a, const float* b, size_t size, int threads, float* out) {
    kernels().add(a, b, size, threads, out);
}
const char* isa() { return kernels().name; }

}  // namespace bcnn::training
