// The training kernels without Python: every operator with one thread and with several, compared bit for bit. For sanitizers.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "../training/training.h"

using namespace bcnn::training;

namespace {

typedef std::vector<float> Floats;

Floats random_floats(size_t size, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    Floats values(size);
    for (float& v : values) v = normal(random);
    return values;
}

void append(Floats& all, const Floats& some) { all.insert(all.end(), some.begin(), some.end()); }

// Results and gradients of one binary convolution, one after the other.
Floats binary_conv(size_t pixels, size_t from, size_t inputs, size_t channels, bool binary, int threads) {
    const bool identity = inputs == channels;
    const size_t size = pixels * channels;
    const Floats x = random_floats(pixels * from, 1), add = random_floats(size, 2), slope = random_floats(channels, 3);
    const Floats bias = random_floats(inputs, 4), weight = random_floats(channels * inputs, 5),
                 gamma = random_floats(channels, 6);
    const Floats beta = random_floats(channels, 7), out_gradient = random_floats(size, 8);
    Floats running(2 * channels), statistics(2 * channels), y(size), out(size);
    const Norm norm{gamma.data(),
                    beta.data(),
                    running.data(),
                    running.data() + channels,
                    statistics.data(),
                    statistics.data() + channels,
                    0.1,
                    1e-5};
    const Branch branch{bias.data(), weight.data(), norm, y.data()};
    BinaryConv conv;
    conv.pixels = pixels;
    conv.channels_in = from;
    conv.inputs = inputs;
    conv.channels = channels;
    conv.branch = &branch;
    conv.branches = 1;
    conv.x = x.data();
    conv.add = add.data();
    conv.slope = slope.data();
    conv.identity = identity;
    conv.binary_weights = binary;
    conv.threads = threads;
    binary_conv_forward(conv, out.data());
    Floats dx(x.size()), d_add(size), d_slope(channels), d_bias(inputs), d_weight(weight.size()), d_gamma(channels),
        d_beta(channels);
    const BranchGradient to{d_bias.data(), d_weight.data(), d_gamma.data(), d_beta.data()};
    binary_conv_backward(conv, {out_gradient.data(), dx.data(), d_add.data(), d_slope.data(), &to});
    Floats all;
    for (const Floats* some :
         {&out, &running, &statistics, &dx, &d_add, &d_slope, &d_bias, &d_weight, &d_gamma, &d_beta})
        append(all, *some);
    return all;
}

Floats depthwise_conv(size_t images, size_t height, size_t width, size_t channels, size_t stride, int threads) {
    const size_t made = images * ((height - 1) / stride + 1) * ((width - 1) / stride + 1) * channels;
    const Floats x = random_floats(images * height * width * channels, 1), weight = random_floats(9 * channels, 2);
    const Floats gamma = random_floats(channels, 3), beta = random_floats(channels, 4),
                 slope = random_floats(channels, 5);
    const Floats out_gradient = random_floats(made, 6);
    Floats running(2 * channels), statistics(2 * channels), y(made), out(made);
    const Norm norm{gamma.data(),
                    beta.data(),
                    running.data(),
                    running.data() + channels,
                    statistics.data(),
                    statistics.data() + channels,
                    0.1,
                    1e-5};
    const DepthwiseConv conv{images,        height, width,        channels, stride, x.data(),
                             weight.data(), norm,   slope.data(), y.data(), true,   threads};
    depthwise_conv_forward(conv, out.data());
    Floats dx(x.size()), d_weight(weight.size()), d_gamma(channels), d_beta(channels), d_slope(channels);
    depthwise_conv_backward(
        conv, {out_gradient.data(), dx.data(), d_weight.data(), d_gamma.data(), d_beta.data(), d_slope.data()});
    Floats all;
    for (const Floats* some : {&out, &running, &statistics, &dx, &d_weight, &d_gamma, &d_beta, &d_slope})
        append(all, *some);
    return all;
}

// One of k x k taps, of both kinds of weights and all paddings.
Floats tap_conv(size_t images, size_t side, size_t from, size_t channels, size_t kernel, int pad, bool binary,
                int threads) {
    const size_t stride = pad == 0 ? 1 : 2, padding = kernel / 2,
                 made_side = (side + 2 * padding - kernel) / stride + 1;
    const Floats x = random_floats(images * side * side * from, 1), bias = random_floats(from, 2),
                 weight = random_floats(channels * from * kernel * kernel, 3), scale = random_floats(channels, 4),
                 out_gradient = random_floats(images * made_side * made_side * channels, 5);
    const TapConv conv{images, side,     side,        from,          channels,     kernel, kernel,   stride, padding,
                       pad,    x.data(), bias.data(), weight.data(), scale.data(), binary, pad == 0, 1.0f,   threads};
    Floats out(out_gradient.size()), dx(x.size()), d_bias(from), d_weight(weight.size());
    tap_conv_forward(conv, out.data());
    tap_conv_backward(conv,
                      {out_gradient.data(), dx.data(), d_bias.data(), d_weight.data(), scale.data(), scale.data(), 1});
    Floats all;
    for (const Floats* some : {&out, &dx, &d_bias, &d_weight}) append(all, *some);
    return all;
}

int failures = 0;

void expect_same(const char* what, const Floats& one, const Floats& several) {
    if (one.size() == several.size() && !std::memcmp(one.data(), several.data(), one.size() * sizeof(float))) return;
    std::printf("%s: other bits with several threads\n", what);
    failures++;
}

int compare() {
    for (int threads : {2, 5}) {
        for (bool binary : {true, false}) {
            expect_same("many pixels", binary_conv(2100, 5, 12, 12, binary, 1),
                        binary_conv(2100, 5, 12, 12, binary, threads));
            expect_same("few pixels", binary_conv(70, 40, 40, 40, binary, 1),
                        binary_conv(70, 40, 40, 40, binary, threads));
            expect_same("other channels", binary_conv(130, 9, 9, 33, binary, 1),
                        binary_conv(130, 9, 9, 33, binary, threads));
        }
        for (int pad : {-1, 0, 1})
            for (bool binary : {true, false}) {
                expect_same("lanes of pixels", tap_conv(17, 9, 8, 24, 3, pad, binary, 1),
                            tap_conv(17, 9, 8, 24, 3, pad, binary, threads));
                expect_same("panels", tap_conv(3, 2, 72, 480, 3, pad, binary, 1),
                            tap_conv(3, 2, 72, 480, 3, pad, binary, threads));
            }
        for (size_t stride : {1, 2, 3})
            for (size_t channels : {4, 9, 25})
                expect_same("depth wise", depthwise_conv(3, 6, 7, channels, stride, 1),
                            depthwise_conv(3, 6, 7, channels, stride, threads));
    }
    std::printf("training kernels, %s: %d failures\n", isa(), failures);
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}

}  // namespace

// A process chooses its instruction set once: a child for each.
int main() {
    int result = EXIT_SUCCESS;
    for (const char* name : {"scalar", "avx2", "avx512"}) {
        std::fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            setenv("BCNN_ISA", name, 1);
            std::exit(compare());
        }
        int status = EXIT_FAILURE;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) result = EXIT_FAILURE;
    }
    return result;
}
