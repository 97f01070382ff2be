// Averages and maxima, of floats and of 16-bit numbers: AvgPool and MaxPool over windows, GlobalAvgPool over a map,
// ChannelAvg and AbsMean over channels. Files of integer programs call the averages FixedAvgPool and so on.
#include <cmath>
#include <cstdlib>
#include <type_traits>

#include "ops/window.h"
#include "plan/cost.h"

namespace bcnn {
namespace {

template <class Value>
constexpr bool kIsFloat = std::is_same<Value, float>::value;

// `Made<float>` or `Made<int16_t>`, as the program's maps are, for a record of one of two names.
template <template <class> class Made>
struct RegisterBoth {
    RegisterBoth(const char* kind, const char* integer_kind) {
        const Make make = [](const Record& r, Build& b) {
            if (b.value_bytes == 4)
                b.add(std::make_unique<Made<float>>(r, b));
            else
                b.add(std::make_unique<Made<int16_t>>(r, b));
        };
        Register(kind, make);
        Register(integer_kind, make);
    }
};

template <class Value>
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
              r.kind != "MaxPool" && r.number("inside")};
        // S x S over S, nothing outside: the taps of a row are neighbours. In 16 bits the kernel has S = 2 only.
        const int s = kIsFloat<Value> ? window_.kernel[0] : 2;
        tiles_ = !d_.max && window_.is(s, s, 0);
    }
    Range rows(int, int y) const override { return window_.rows(y, from[0].h); }
    size_t scratch_bytes() const override { return size_t(window_.kernel[0]) * sizeof(Value*); }
    double row_time() const override {
        return kIsFloat<Value> ? Op::row_time() : double(shape.w) * shape.c * kFixedValueNs * window_.taps();
    }
    void run(const Task& task) const override {
        const auto rows = reinterpret_cast<const Value**>(task.scratch);
        const View in = task.in[0].view, out = task.out.view;
        for (int y = task.y0; y < task.y1; y++) {
            window_.rows_of(y, task.in[0], from[0].h, rows);
            Value* const to = task.out.values<Value>(y);
            if constexpr (kIsFloat<Value>) {
                if (tiles_)
                    kernels_.avg_pool(rows, window_.kernel[0], in, shape.c, to, out, shape.w);
                else
                    kernels_.pool(d_, rows, in, shape.c, to, out);
            } else {
                if (tiles_)
                    kernels_.fixed.avg_pool_2x2(rows, in, shape.c, to, out, shape.w);
                else
                    kernels_.fixed.pool(d_, rows, in, shape.c, to, out);
            }
        }
    }

private:
    const Kernels& kernels_;
    const Window window_;
    PoolData d_;
    bool tiles_;
};

template <class Value>
class GlobalAvgPool : public Op {
public:
    GlobalAvgPool(const Record& r, const Build& build)
        : kernels_(build.kernels), up_(kIsFloat<Value> ? 0 : r.number("up")) {
        shape = build.shape();
        read(r.number("source"), build);
    }
    Range rows(int, int) const override { return {0, from[0].h}; }
    bool splits_channels() const override { return true; }
    bool alone() const override { return true; }
    void run(const Task& task) const override {  // all rows of the map are there, and so in order
        const Value* const x = task.in[0].values<Value>(0);
        Value* const to = task.out.values<Value>(0);
        const View in = task.in[0].view;
        if constexpr (kIsFloat<Value>)
            kernels_.global_avg_pool(x, from[0].h * from[0].w, in, task.c0, task.c1, to);
        else
            kernels_.fixed.global_avg_pool(x, size_t(from[0].h) * size_t(from[0].w), up_, in, task.c0, task.c1, to);
    }

private:
    const Kernels& kernels_;
    const int up_;
};

// total / count, the nearest whole number, halves up.
int16_t mean(int64_t total, int64_t count) {
    const int64_t twice = 2 * total + count;
    const int64_t quotient = twice / (2 * count) - (twice % (2 * count) < 0);
    return int16_t(std::min<int64_t>(std::max<int64_t>(quotient, -32768), 32767));
}

// Output channel j is the mean of the values, or of their magnitudes, of the channels c with c mod C = j.
template <class Value, bool kMagnitudes>
class ChannelMeans : public Op {
public:
    ChannelMeans(const Record& r, const Build& build) {
        shape = build.shape();
        read(r.number("source"), build);
    }
    int channels(int) const override { return 0; }
    void run(const Task& task) const override {
        constexpr int line = line_of<Value>;
        const View in = task.in[0].view;
        for (int y = task.y0; y < task.y1; y++) {
            const Value* x = task.in[0].values<Value>(y);
            Value* out = task.out.values<Value>(y);
            for (int p = 0; p < shape.w; p++, x += line, out += line)
                for (int j = 0; j < shape.c; j++) {
                    Sum sum = term(x[place_of<Value>(in, j)]);
                    for (int c = j + shape.c; c < from[0].c; c += shape.c) sum += term(x[place_of<Value>(in, c)]);
                    out[place_of<Value>(task.out.view, j)] = divided(sum, (from[0].c - j + shape.c - 1) / shape.c);
                }
        }
    }

private:
    using Sum = std::conditional_t<kIsFloat<Value>, float, int64_t>;
    static Sum term(Value v) { return kMagnitudes ? std::abs(Sum(v)) : Sum(v); }
    static Value divided(Sum sum, int count) {
        if constexpr (!kIsFloat<Value>) return mean(sum, count);
        return kMagnitudes ? Value(sum * float(1 / double(count))) : Value(sum / float(count));
    }
};
template <class Value>
using ChannelAvg = ChannelMeans<Value, false>;
template <class Value>
using AbsMean = ChannelMeans<Value, true>;

const RegisterBoth<Pool> avg("AvgPool", "FixedAvgPool"), max("MaxPool", "MaxPool");
const RegisterBoth<GlobalAvgPool> global("GlobalAvgPool", "FixedGlobalAvgPool");
const RegisterBoth<ChannelAvg> channel("ChannelAvg", "FixedChannelAvg");
const RegisterBoth<AbsMean> abs_mean("AbsMean", "FixedAbsMean");

}  // namespace
}  // namespace bcnn
