// FixedAvgPool and MaxPool over windows, FixedGlobalAvgPool over a map, FixedChannelAvg and FixedAbsMean over channels.
#include <cstdlib>

#include "ops/pools.h"
#include "ops/window.h"
#include "plan/cost.h"

namespace bcnn {
namespace {

// total / count, the nearest whole number, halves up.
int16_t mean(int64_t total, int64_t count) {
    const int64_t twice = 2 * total + count;
    const int64_t quotient = twice / (2 * count) - (twice % (2 * count) < 0);
    return int16_t(std::min<int64_t>(std::max<int64_t>(quotient, -32768), 32767));
}

class Pool : public Op {
public:
    Pool(const Record& r, const Build& build) : kernels_(build.kernels.fixed), window_(r.part("window")) {
        shape = build.shape();
        read(r.number("source"), build);
        d_ = {window_.kernel[0],
              window_.kernel[1],
              window_.stride[1],
              window_.dilation[1],
              window_.padding[1],
              from[0].w,
              shape.w,
              r.kind == "MaxPool",
              r.kind != "MaxPool" && r.number("inside")};
        by_four_ = !d_.max && window_.is(2, 2, 0);
    }
    Range rows(int, int y) const override { return window_.rows(y, from[0].h); }
    size_t scratch_bytes() const override { return size_t(window_.kernel[0]) * sizeof(int16_t*); }
    double row_time() const override { return double(shape.w) * shape.c * kFixedValueNs * window_.taps(); }
    void run(const Task& task) const override {
        const auto rows = reinterpret_cast<const int16_t**>(task.scratch);
        for (int y = task.y0; y < task.y1; y++) {
            window_.rows_of(y, task.in[0], from[0].h, rows);
            if (by_four_)
                kernels_.avg_pool_2x2(rows, task.in[0].view, shape.c, task.out.shorts(y), task.out.view, shape.w);
            else
                kernels_.pool(d_, rows, task.in[0].view, shape.c, task.out.shorts(y), task.out.view);
        }
    }

private:
    const FixedKernels& kernels_;
    const Window window_;
    PoolData d_;
    bool by_four_;  // 2 x 2 over 2
};

class GlobalAvgPool : public Op {
public:
    GlobalAvgPool(const Record& r, const Build& build) : kernels_(build.kernels.fixed), up_(r.number("up")) {
        shape = build.shape();
        read(r.number("source"), build);
    }
    Range rows(int, int) const override { return {0, from[0].h}; }
    bool splits_channels() const override { return true; }
    bool alone() const override { return true; }
    void run(const Task& task) const override {
        kernels_.global_avg_pool(task.in[0].shorts(0), size_t(from[0].h) * size_t(from[0].w), up_, task.in[0].view,
                                 task.c0, task.c1, task.out.shorts(0));
    }

private:
    const FixedKernels& kernels_;
    const int up_;
};

class ChannelAvg : public Op {
public:
    ChannelAvg(const Record& r, const Build& build) {
        shape = build.shape();
        read(r.number("source"), build);
    }
    int channels(int) const override { return 0; }
    void run(const Task& task) const override {
        const View in = task.in[0].view;
        for (int y = task.y0; y < task.y1; y++) {
            const int16_t* x = task.in[0].shorts(y);
            int16_t* out = task.out.shorts(y);
            for (int p = 0; p < shape.w; p++, x += kShortLine, out += kShortLine)
                for (int j = 0; j < shape.c; j++) {
                    int64_t sum = 0;
                    for (int c = j; c < from[0].c; c += shape.c) sum += x[place_of<int16_t>(in, c)];
                    out[place_of<int16_t>(task.out.view, j)] = mean(sum, (from[0].c - j + shape.c - 1) / shape.c);
                }
        }
    }
};

class AbsMean : public Op {
public:
    AbsMean(const Record& r, const Build& build) {
        shape = build.shape();
        read(r.number("source"), build);
    }
    int channels(int) const override { return 0; }
    void run(const Task& task) const override {
        const View in = task.in[0].view;
        for (int y = task.y0; y < task.y1; y++) {
            const int16_t* x = task.in[0].shorts(y);
            int16_t* out = task.out.shorts(y);
            for (int p = 0; p < shape.w; p++, x += kShortLine, out += kShortLine) {
                int64_t sum = 0;
                for (int c = 0; c < from[0].c; c++) sum += std::abs(int(x[place_of<int16_t>(in, c)]));
                out[place_of<int16_t>(task.out.view, 0)] = mean(sum, from[0].c);
            }
        }
    }
};

const Register avg("FixedAvgPool", add_fixed_pool);
const Register global("FixedGlobalAvgPool",
                      [](const Record& r, Build& b) { b.add(std::make_unique<GlobalAvgPool>(r, b)); });
const Register channel("FixedChannelAvg", [](const Record& r, Build& b) { b.add(std::make_unique<ChannelAvg>(r, b)); });
const Register abs_mean("FixedAbsMean", [](const Record& r, Build& b) { b.add(std::make_unique<AbsMean>(r, b)); });

}  // namespace

void add_fixed_pool(const Record& r, Build& build) { build.add(std::make_unique<Pool>(r, build)); }

}  // namespace bcnn
