// What an instruction set offers training: a table of functions, one table per instruction set. They are written once, in
// kernels.inl and what it includes.
#pragma once
#include "training.h"

namespace bcnn::training {

struct Kernels {
    const char* name;
    void (*binary_conv_forward)(const BinaryConv& conv, float* out);
    void (*binary_conv_backward)(const BinaryConv& conv, const BinaryConvGradient& gradient);
    void (*tap_conv_forward)(const TapConv& conv, float* out);
    void (*tap_conv_backward)(const TapConv& conv, const TapConvGradient& gradient);
    void (*depthwise_conv_forward)(const DepthwiseConv& conv, float* out);
    void (*depthwise_conv_backward)(const DepthwiseConv& conv, const DepthwiseConvGradient& gradient);
    void (*avg_pool_forward)(const AvgPool& pool, const float* x, float* out);
    void (*avg_pool_backward)(const AvgPool& pool, const float* out_gradient, float* x_gradient);
    void (*add)(const float* a, const float* b, size_t size, int threads, float* out);
};

extern const Kernels portable_kernels, avx2_kernels, avx512_kernels;

}  // namespace bcnn::training

#define BCNN_TRAINING_KERNELS(ISA)                                                                           \
    const Kernels ISA##_kernels = {#ISA,         ISA::forward,  ISA::backward, ISA::forward,  ISA::backward, \
                                   ISA::forward, ISA::backward, ISA::forward,  ISA::backward, ISA::sum};
