// A binary convolution with what follows it, one of k x k taps, a depth wise one, and average pooling, for training on a CPU: forward and backward, each
// in two passes over its maps. The definition is the torch code in src/bcnn/nets/layers.py and binary_conv.py; nothing here knows torch or Python.
//
// Maps are float32 NHWC: channels are lanes. Legend: M pixels (N*H*W), C channels of the map read, K = RC channels that a
// convolution reads, O channels it makes, P branches. Replication (sec. 4.2.2) is an index rule: channel k reads channel k mod C.
//
// A call gives the same bits every time, for any number of threads: sums over pixels are cut into blocks of a fixed size, and
// those are added in a fixed order.
#pragma once
#include <cstddef>
#include <cstdint>

namespace bcnn::training {

// Batch norm of one convolution. Training mode takes mean and variance of this batch, writes them to `mean` and `inverse`
// (1 / sqrt(variance + eps)) for the backward pass and moves the running statistics; evaluation mode takes the running ones.
struct Norm {
    const float* gamma;
    const float* beta;
    float* running_mean;
    float* running_var;
    float* mean;
    float* inverse;
    double momentum;
    double eps;
};

// One residual of a convolution module (Fig. 4): y = conv1x1(sign(x + bias), weight), then batch norm.
struct Branch {
    const float* bias;    // [K]
    const float* weight;  // [O, K], latent: its sign is used (Eq. 3), or itself in step 1
    Norm norm;
    void* y;  // [M, O] the convolution's result: int16 where signs of weights are used (exact), float otherwise
};

// out = PReLU(x + sum of branches + add), or with `prelu_before_add` add + PReLU(x + sum of branches). Without `identity`, no x.
struct BinaryConv {
    size_t pixels, channels_in, inputs, channels;  // M, C, K, O; with `identity` O = K
    const Branch* branch;
    size_t branches;
    const float* x;                // [M, C]
    const float* add = nullptr;    // [M, O], another path
    const float* slope = nullptr;  // [O], no PReLU without
    bool identity = true;
    bool prelu_before_add = false;
    bool binary_weights = true;
    bool training = true;
    int threads = 1;
};

struct BranchGradient {
    float* bias;    // [K]
    float* weight;  // [O, K], of the latent weight
    float* gamma;   // [O]
    float* beta;    // [O]
};

struct BinaryConvGradient {
    const float* out;  // [M, O], given
    float* x;          // [M, C], or null if nobody asks
    float* add;        // [M, O], where BinaryConv::add is
    float* slope;      // [O], where BinaryConv::slope is
    const BranchGradient* branch;
};

void binary_conv_forward(const BinaryConv& conv, float* out);
void binary_conv_backward(const BinaryConv& conv, const BinaryConvGradient& gradient);

// out = scale * conv(sign(x + bias), weight), k x k: a dot over taps and channels. C and O are multiples of 8, K = C k k at most kMostInputs.
struct TapConv {
    size_t images, height, width, channels_in, channels;  // N, H, W, C, O
    size_t kernel_height, kernel_width, stride, padding;
    int pad;              // what is read outside of the map: 0, +1 or -1
    const float* x;       // [N, H, W, C]
    const float* bias;    // [C]
    const float* weight;  // [O, C, k, k]: its sign is used, or in step 1 itself
    const float* scale;   // [O]
    bool binary_weights = true;
    bool triangle = true;  // the slope of the sign is 2 - 2|x| above 0 (Eq. 1), or 1 where |x| <= limit
    float limit = 1;
    int threads = 1;
};

constexpr size_t kMostInputs = 32767;  // a dot is an int16

struct TapConvGradient {
    const float* out;  // [N, H', W', O], given
    float* x;          // [N, H, W, C], or null if nobody asks
    float* bias;       // [C], or null; only beside x
    float*
        weight;  // [O, C, k, k]: what arrives at the weight times `inside` where |weight| <= limit, times `outside` elsewhere
    const float* inside;   // [O]
    const float* outside;  // [O]
    float limit;
};

void tap_conv_forward(const TapConv& conv, float* out);
void tap_conv_backward(const TapConv& conv, const TapConvGradient& gradient);

// Real depth wise 3x3/S with zero padding 1, batch norm, PReLU.
struct DepthwiseConv {
    size_t images, height, width, channels, stride;
    const float* x;       // [N, H, W, K]
    const float* weight;  // [K, 3, 3]
    Norm norm;
    const float* slope;  // [K]
    float* y;            // [N, (H-1)/S+1, (W-1)/S+1, K]
    bool training = true;
    int threads = 1;
};

struct DepthwiseConvGradient {
    const float* out;
    float* x;
    float* weight;  // [K, 3, 3]
    float* gamma;
    float* beta;
    float* slope;
};

void depthwise_conv_forward(const DepthwiseConv& conv, float* out);
void depthwise_conv_backward(const DepthwiseConv& conv, const DepthwiseConvGradient& gradient);

// SxS/S average of [N, H, W, C] maps, and its gradient.
struct AvgPool {
    size_t images, height, width, channels, stride;
    int threads = 1;
};

void avg_pool_forward(const AvgPool& pool, const float* x, float* out);
void avg_pool_backward(const AvgPool& pool, const float* out_gradient, float* x_gradient);

// out = a + b: where two paths leave a map, their gradients meet.
void add(const float* a, const float* b, size_t size, int threads, float* out);

// From now on this process keeps the memory it frees. A training step asks for the same hundreds of megabytes as the one before, and
// getting them from the system again costs threads that share an address space more than a tenth of the step.
void keep_memory();

// "avx512", "avx2" or "portable": the best that this processor runs. BCNN_ISA=avx2 forces "avx2" at most, BCNN_ISA=scalar "portable".
const char* isa();

}  // namespace bcnn::training
