// The k x k convolution of signs for NumPy arrays.
#include "arrays.h"

using namespace nanobind::literals;

namespace bcnn::training {
namespace {

// x [N, H, W, C], weight [O, C, k, k]; how (stride, padding, pad, binary_weights, triangle, limit)
TapConv tap_conv(nb::handle x, nb::handle bias, nb::handle weight, nb::handle scale, nb::tuple how, int threads) {
    Array<float> map, filters;
    if (!nb::try_cast<Array<float>>(x, map, false) || map.ndim() != 4)
        throw nb::type_error("x: must be a contiguous float32 [N, H, W, C] array");
    if (!nb::try_cast<Array<float>>(weight, filters, false) || filters.ndim() != 4)
        throw nb::type_error("weight: must be a contiguous float32 [O, C, k, k] array");
    how = sized(how, 6, "how");
    TapConv conv{map.shape(0),
                 map.shape(1),
                 map.shape(2),
                 map.shape(3),
                 filters.shape(0),
                 filters.shape(2),
                 filters.shape(3),
                 nb::cast<size_t>(how[0]),
                 nb::cast<size_t>(how[1]),
                 nb::cast<int>(how[2]),
                 map.data(),
                 floats(bias, map.shape(3), "bias"),
                 filters.data(),
                 floats(scale, filters.shape(0), "scale"),
                 nb::cast<bool>(how[3]),
                 nb::cast<bool>(how[4]),
                 nb::cast<float>(how[5]),
                 checked_threads(threads)};
    const size_t largest = 1 << 20;  // of a side: what follows stays far below 2^64
    const size_t sides[] = {conv.height, conv.width, conv.kernel_height, conv.kernel_width, conv.stride};
    for (size_t side : sides)
        if (side < 1 || side > largest) throw nb::value_error("x: an empty map, filter or stride, or one too large");
    if (!map.size() || conv.channels_in % 8 || conv.channels % 8 || !conv.channels ||
        filters.shape(1) != conv.channels_in || filters.size() / conv.channels > kMostInputs)
        throw nb::value_error("weight: channels must be the map's, multiples of 8, and at most 32767 inputs");
    if (conv.padding > largest || conv.height + 2 * conv.padding < conv.kernel_height ||
        conv.width + 2 * conv.padding < conv.kernel_width || conv.pad < -1 || conv.pad > 1)
        throw nb::value_error("weight: larger than the padded map, or padding that is not 0, +1 or -1");
    return conv;
}

size_t made(const TapConv& c) {
    return c.images * ((c.height + 2 * c.padding - c.kernel_height) / c.stride + 1) *
           ((c.width + 2 * c.padding - c.kernel_width) / c.stride + 1) * c.channels;
}

}  // namespace

void bind_tap_conv(nb::module_& m) {
    m.def(
        "tap_conv_forward",
        [](nb::handle x, nb::handle bias, nb::handle weight, nb::handle scale, nb::tuple how, int threads,
           nb::handle out) {
            const TapConv conv = tap_conv(x, bias, weight, scale, how, threads);
            float* to = floats(out, made(conv), "out");
            nb::gil_scoped_release release;
            tap_conv_forward(conv, to);
        },
        "x"_a, "bias"_a, "weight"_a, "scale"_a, "how"_a, "threads"_a, "out"_a);

    // gradient: (out, x or None, bias or None, weight, (inside, outside, limit) of the weights' slope)
    m.def(
        "tap_conv_backward",
        [](nb::handle x, nb::handle bias, nb::handle weight, nb::handle scale, nb::tuple how, int threads,
           nb::tuple gradient) {
            const TapConv conv = tap_conv(x, bias, weight, scale, how, threads);
            nb::tuple g = sized(gradient, 5, "gradient"), slope = sized(g[4], 3, "slope");
            const size_t read = conv.images * conv.height * conv.width * conv.channels_in,
                         filter = conv.kernel_height * conv.kernel_width * conv.channels_in;
            const TapConvGradient to{floats(g[0], made(conv), "gradient of out"),
                                     floats_or_null(g[1], read, "gradient of x"),
                                     floats_or_null(g[2], conv.channels_in, "gradient of bias"),
                                     floats(g[3], conv.channels * filter, "gradient of weight"),
                                     floats(slope[0], conv.channels, "inside"),
                                     floats(slope[1], conv.channels, "outside"),
                                     nb::cast<float>(slope[2])};
            nb::gil_scoped_release release;
            tap_conv_backward(conv, to);
        },
        "x"_a, "bias"_a, "weight"_a, "scale"_a, "how"_a, "threads"_a, "gradient"_a);
}

}  // namespace bcnn::training
