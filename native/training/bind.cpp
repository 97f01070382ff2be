// bcnn._training: the kernels of training.h for NumPy arrays (torch CPU tensors share their memory). Every array is checked for
// type, contiguity and size (arrays.h), so that a wrong call is a Python exception and never a wrong address.
#include <vector>

#include "arrays.h"

using namespace nanobind::literals;
using namespace bcnn::training;

namespace {

constexpr size_t kMostChannels = 5792;  // 64 squares of dots fit 32 bits, and a dot fits int16

// (gamma, beta, running_mean, running_var, mean, inverse, momentum, eps)
Norm norm(nb::handle object, size_t k) {
    nb::tuple t = sized(object, 8, "norm");
    return {floats(t[0], k, "gamma"),       floats(t[1], k, "beta"), floats(t[2], k, "running_mean"),
            floats(t[3], k, "running_var"), floats(t[4], k, "mean"), floats(t[5], k, "inverse"),
            nb::cast<double>(t[6]),         nb::cast<double>(t[7])};
}

// A convolution and the branches it points to.
struct Bound {
    BinaryConv conv;
    std::vector<Branch> branches;
};

// x [M, C]; branches of (bias, weight, norm, y); shape (inputs, channels); how (identity, prelu_before_add, binary_weights, training)
Bound binary_conv(nb::handle x, nb::tuple branches, nb::handle add, nb::handle slope, nb::tuple shape, nb::tuple how,
                  int threads) {
    Array<float> map;
    if (!nb::try_cast<Array<float>>(x, map, false) || map.ndim() != 2)
        throw nb::type_error("x: must be a contiguous float32 [M, C] array");
    Bound bound;
    BinaryConv& conv = bound.conv;
    shape = sized(shape, 2, "shape");
    how = sized(how, 4, "how");
    conv.pixels = map.shape(0);
    conv.channels_in = map.shape(1);
    const size_t inputs = conv.inputs = nb::cast<size_t>(shape[0]);
    const size_t channels = conv.channels = nb::cast<size_t>(shape[1]);
    conv.identity = nb::cast<bool>(how[0]);
    conv.prelu_before_add = nb::cast<bool>(how[1]);
    conv.binary_weights = nb::cast<bool>(how[2]);
    conv.training = nb::cast<bool>(how[3]);
    if (!conv.pixels || !conv.channels_in || inputs < conv.channels_in || inputs > kMostChannels || !channels ||
        channels > kMostChannels || (conv.identity && inputs != channels) || !branches.size())
        throw nb::value_error(
            "x: an empty map, or a number of channels that cannot be replicated to the convolution's");
    conv.x = map.data();
    const size_t size = conv.pixels * channels;
    conv.add = floats_or_null(add, size, "add");
    conv.slope = floats_or_null(slope, channels, "slope");
    conv.threads = checked_threads(threads);
    for (nb::handle branch : branches) {
        nb::tuple t = sized(branch, 4, "branch");
        void* y = conv.binary_weights ? static_cast<void*>(data<int16_t>(t[3], size, "y")) : floats(t[3], size, "y");
        bound.branches.push_back(
            {floats(t[0], inputs, "bias"), floats(t[1], channels * inputs, "weight"), norm(t[2], channels), y});
    }
    conv.branch = bound.branches.data();
    conv.branches = bound.branches.size();
    return bound;
}

// x [N, H, W, K]
DepthwiseConv depthwise_conv(nb::handle x, nb::handle weight, nb::handle norms, nb::handle slope, nb::handle y,
                             size_t stride, bool training, int threads) {
    Array<float> map;
    if (!nb::try_cast<Array<float>>(x, map, false) || map.ndim() != 4)
        throw nb::type_error("x: must be a contiguous float32 [N, H, W, K] array");
    DepthwiseConv conv{map.shape(0), map.shape(1), map.shape(2), map.shape(3), stride,   map.data(),
                       nullptr,      {},           nullptr,      nullptr,      training, checked_threads(threads)};
    if (!map.size() || stride < 1) throw nb::value_error("x: an empty map, or a stride below 1");
    const size_t k = conv.channels;
    conv.weight = floats(weight, 9 * k, "weight");
    conv.norm = norm(norms, k);
    conv.slope = floats(slope, k, "slope");
    conv.y = floats(y, conv.images * ((conv.height - 1) / stride + 1) * ((conv.width - 1) / stride + 1) * k, "y");
    return conv;
}

size_t made(const DepthwiseConv& c) {
    return c.images * ((c.height - 1) / c.stride + 1) * ((c.width - 1) / c.stride + 1) * c.channels;
}

AvgPool avg_pool(nb::handle x, size_t stride, int threads) {
    Array<float> map;
    if (!nb::try_cast<Array<float>>(x, map, false) || map.ndim() != 4)
        throw nb::type_error("x: must be a contiguous float32 [N, H, W, C] array");
    if (!map.size() || stride < 1 || map.shape(1) % stride || map.shape(2) % stride)
        throw nb::value_error("x: its size does not divide by the stride");
    return {map.shape(0), map.shape(1), map.shape(2), map.shape(3), stride, checked_threads(threads)};
}

}  // namespace

NB_MODULE(_training, m) {
    m.doc() = "Fused forward and backward passes of binary and depth wise convolutions; see bcnn.nets.fused.";
    m.def("isa", &isa);
    m.def("keep_memory", &keep_memory);

    m.def(
        "binary_conv_forward",
        [](nb::handle x, nb::tuple branches, nb::handle add, nb::handle slope, nb::tuple shape, nb::tuple how,
           int threads, nb::handle out) {
            const Bound bound = binary_conv(x, branches, add, slope, shape, how, threads);
            float* to = floats(out, bound.conv.pixels * bound.conv.channels, "out");
            nb::gil_scoped_release release;
            binary_conv_forward(bound.conv, to);
        },
        "x"_a, "branches"_a, "add"_a.none(), "slope"_a.none(), "shape"_a, "how"_a, "threads"_a, "out"_a);

    // gradient: (out, x, add, slope, ((bias, weight, gamma, beta) of each branch))
    m.def(
        "binary_conv_backward",
        [](nb::handle x, nb::tuple branches, nb::handle add, nb::handle slope, nb::tuple shape, nb::tuple how,
           int threads, nb::tuple gradient) {
            const Bound bound = binary_conv(x, branches, add, slope, shape, how, threads);
            const BinaryConv& conv = bound.conv;
            const size_t size = conv.pixels * conv.channels, inputs = conv.inputs, channels = conv.channels;
            nb::tuple g = sized(gradient, 5, "gradient");
            std::vector<BranchGradient> to_branches;
            for (nb::handle branch : sized(g[4], conv.branches, "gradients of branches")) {
                nb::tuple t = sized(branch, 4, "gradient of a branch");
                to_branches.push_back(
                    {floats(t[0], inputs, "gradient of bias"), floats(t[1], channels * inputs, "gradient of weight"),
                     floats(t[2], channels, "gradient of gamma"), floats(t[3], channels, "gradient of beta")});
            }
            const BinaryConvGradient to{floats(g[0], size, "gradient of out"),
                                        floats_or_null(g[1], conv.pixels * conv.channels_in, "gradient of x"),
                                        conv.add ? floats(g[2], size, "gradient of add") : nullptr,
                                        conv.slope ? floats(g[3], channels, "gradient of slope") : nullptr,
                                        to_branches.data()};
            nb::gil_scoped_release release;
            binary_conv_backward(conv, to);
        },
        "x"_a, "branches"_a, "add"_a.none(), "slope"_a.none(), "shape"_a, "how"_a, "threads"_a, "gradient"_a);

    bind_tap_conv(m);

    m.def(
        "depthwise_conv_forward",
        [](nb::handle x, nb::handle weight, nb::handle norm, nb::handle slope, nb::handle y, size_t stride,
           bool training, int threads, nb::handle out) {
            const DepthwiseConv conv = depthwise_conv(x, weight, norm, slope, y, stride, training, threads);
            float* to = floats(out, made(conv), "out");
            nb::gil_scoped_release release;
            depthwise_conv_forward(conv, to);
        },
        "x"_a, "weight"_a, "norm"_a, "slope"_a, "y"_a, "stride"_a, "training"_a, "threads"_a, "out"_a);

    // gradient: (out, x, weight, gamma, beta, slope)
    m.def(
        "depthwise_conv_backward",
        [](nb::handle x, nb::handle weight, nb::handle norm, nb::handle slope, nb::handle y, size_t stride,
           bool training, int threads, nb::tuple gradient) {
            const DepthwiseConv conv = depthwise_conv(x, weight, norm, slope, y, stride, training, threads);
            nb::tuple g = sized(gradient, 6, "gradient");
            const size_t k = conv.channels;
            const DepthwiseConvGradient to{floats(g[0], made(conv), "gradient of out"),
                                           floats(g[1], conv.images * conv.height * conv.width * k, "gradient of x"),
                                           floats(g[2], 9 * k, "gradient of weight"),
                                           floats(g[3], k, "gradient of gamma"),
                                           floats(g[4], k, "gradient of beta"),
                                           floats(g[5], k, "gradient of slope")};
            nb::gil_scoped_release release;
            depthwise_conv_backward(conv, to);
        },
        "x"_a, "weight"_a, "norm"_a, "slope"_a, "y"_a, "stride"_a, "training"_a, "threads"_a, "gradient"_a);

    m.def(
        "add",
        [](nb::handle a, nb::handle b, int threads, nb::handle out) {
            Array<float> first;
            if (!nb::try_cast<Array<float>>(a, first, false))
                throw nb::type_error("a: must be a contiguous float32 array");
            const size_t size = first.size();
            const float* second = floats(b, size, "b");
            float* to = floats(out, size, "out");
            checked_threads(threads);
            nb::gil_scoped_release release;
            add(first.data(), second, size, threads, to);
        },
        "a"_a, "b"_a, "threads"_a, "out"_a);

    m.def(
        "avg_pool_forward",
        [](nb::handle x, size_t stride, int threads, nb::handle out) {
            const AvgPool pool = avg_pool(x, stride, threads);
            const size_t size = pool.images * pool.height * pool.width * pool.channels;
            const float* from = floats(x, size, "x");
            float* to = floats(out, size / (stride * stride), "out");
            nb::gil_scoped_release release;
            avg_pool_forward(pool, from, to);
        },
        "x"_a, "stride"_a, "threads"_a, "out"_a);

    m.def(
        "avg_pool_backward",
        [](nb::handle out_gradient, size_t stride, int threads, nb::handle x_gradient) {
            const AvgPool pool = avg_pool(x_gradient, stride, threads);
            const size_t size = pool.images * pool.height * pool.width * pool.channels;
            const float* from = floats(out_gradient, size / (stride * stride), "gradient of out");
            float* to = floats(x_gradient, size, "gradient of x");
            nb::gil_scoped_release release;
            avg_pool_backward(pool, from, to);
        },
        "out_gradient"_a, "stride"_a, "threads"_a, "x_gradient"_a);
}
