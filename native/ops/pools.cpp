// AvgPool and MaxPool over windows, GlobalAvgPool over a map, ChannelAvg over channels.
#include "ops/pools.h"
#include "ops/window.h"

namespace bcnn {
namespace {

class Pool : public Op {
public:
    Pool(const Record& r, const Build& build) : kernels_(build.kernels), window_(r.part("window")) {
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
              r.kind == "AvgPool" && r.number("inside")};
        // S x S over S, nothing outside: the taps of a row are neighbours
        tiles_ = !d_.max && window_.is(window_.kernel[0], window_.kernel[0], 0);
    }
    Range rows(int, int y) const override { return window_.rows(y, from[0].h); }
    size_t scratch_bytes() const override { return size_t(window_.kernel[0]) * sizeof(float*); }
    void run(const Task& task) const override {
        const auto rows = reinterpret_cast<const float**>(task.scratch);
        for (int y = task.y0; y < task.y1; y++) {
            window_.rows_of(y, task.in[0], from[0].h, rows);
            if (tiles_)
                kernels_.avg_pool(rows, window_.kernel[0], task.in[0].view, shape.c, task.out.floats(y), task.out.view,
                                  shape.w);
            else
                kernels_.pool(d_, rows, task.in[0].view, shape.c, task.out.floats(y), task.out.view);
        }
    }

private:
    const Kernels& kernels_;
    const Window window_;
    PoolData d_;
    bool tiles_;
};

class GlobalAvgPool : public Op {
public:
    GlobalAvgPool(const Record& r, const Build& build) : kernels_(build.kernels) {
        shape = build.shape();
        read(r.number("source"), build);
    }
    Range rows(int, int) const override { return {0, from[0].h}; }
    bool splits_channels() const override { return true; }
    bool alone() const override { return true; }
    void run(const Task& task) const override {  // all rows of the map are there, and so in order
        kernels_.global_avg_pool(task.in[0].floats(0), from[0].h * from[0].w, task.in[0].view, task.c0, task.c1,
                                 task.out.floats(0));
    }

private:
    const Kernels& kernels_;
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
            const float* x = task.in[0].floats(y);
            float* out = task.out.floats(y);
            for (int p = 0; p < shape.w; p++, x += kLine, out += kLine)
                for (int j = 0; j < shape.c; j++) {
                    float sum = x[place_of(in, j)];
                    for (int c = j + shape.c; c < from[0].c; c += shape.c) sum += x[place_of(in, c)];
                    out[place_of(task.out.view, j)] = sum / float((from[0].c - j + shape.c - 1) / shape.c);
                }
        }
    }
};

const Register avg("AvgPool", [](const Record& r, Build& b) { b.add(std::make_unique<Pool>(r, b)); });
const Register max("MaxPool", [](const Record& r, Build& b) {
    b.value_bytes == 4 ? void(b.add(std::make_unique<Pool>(r, b))) : add_fixed_pool(r, b);
});
const Register global("GlobalAvgPool", [](const Record& r, Build& b) { b.add(std::make_unique<GlobalAvgPool>(r, b)); });
const Register channel("ChannelAvg", [](const Record& r, Build& b) { b.add(std::make_unique<ChannelAvg>(r, b)); });

}  // namespace
}  // namespace bcnn
