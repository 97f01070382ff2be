// The instruction set that runs: the best one this machine has.
#include <cstdlib>
#include <cstring>

#include "../cpu.h"
#include "kernels.h"

namespace bcnn::training {
namespace {

const Kernels& kernels() {
#if defined(__x86_64__)
    static const Kernels& best = [&]() -> const Kernels& {
        const char* name = std::getenv("BCNN_ISA");
        const auto forced = [&](const char* isa) { return name && std::strcmp(name, isa) == 0; };
        const Cpu has = cpu();
        if (forced("scalar") || !has.avx2 || !has.fma) return portable_kernels;
        return forced("avx2") || !has.avx512 ? avx2_kernels : avx512_kernels;
    }();
    return best;
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
