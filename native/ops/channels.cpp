// Concat, Select, Upsample: ops that move values and compute nothing, whatever their size.
#include <algorithm>
#include <cstring>

#include "ops/op.h"

namespace bcnn {
namespace {

template <class Value>
class Concat : public Op {
    static constexpr int kLine = line_of<Value>;

public:
    Concat(const Record& r, const Build& build) {
        shape = build.shape();
        for (const int map : r.list("sources")) read(map, build);
    }
    int channels(int) const override { return 0; }
    void run(const Task& task) const override {
        for (int y = task.y0; y < task.y1; y++) {
            Value* const out = task.out.values<Value>(y);
            for (size_t i = 0, first = 0; i < from.size(); first += size_t(from[i].c), i++)
                for (int c = 0, run; c < from[i].c; c += run) {  // runs of channels that are in one line on both sides
                    const int to = int(first) + c;
                    run = std::min({kLine - c % kLine, kLine - to % kLine, from[i].c - c});
                    const Value* x = task.in[i].values<Value>(y) + place_of<Value>(task.in[i].view, c);
                    Value* v = out + place_of<Value>(task.out.view, to);
                    for (int p = 0; p < shape.w; p++, x += kLine, v += kLine)
                        std::memcpy(v, x, size_t(run) * sizeof(Value));
                }
        }
    }
};

template <class Value>
class Select : public Op {
    static constexpr int kLine = line_of<Value>;

public:
    Select(const Record& r, const Build& build) {
        shape = build.shape();
        read(r.number("source"), build);
        const int32_t* const index = r.indices("index", size_t(shape.c));
        index_.assign(index, index + shape.c);
    }
    int channels(int) const override { return 0; }
    size_t parameter_bytes() const override { return index_.size() * sizeof(int32_t); }
    void run(const Task& task) const override {
        for (int y = task.y0; y < task.y1; y++)
            for (int o = 0; o < shape.c; o++) {
                const Value* x = task.in[0].values<Value>(y) + place_of<Value>(task.in[0].view, index_[o]);
                Value* v = task.out.values<Value>(y) + place_of<Value>(task.out.view, o);
                for (int p = 0; p < shape.w; p++, x += kLine, v += kLine) *v = *x;
            }
    }

private:
    std::vector<int32_t> index_;
};

template <class Value>
class Upsample : public Op {
    static constexpr int kLine = line_of<Value>;

public:
    Upsample(const Record& r, const Build& build) : factor_{r.number("factor", 0), r.number("factor", 1)} {
        shape = build.shape();
        read(r.number("source"), build);
    }
    Range rows(int, int y) const override { return {y / factor_[0], y / factor_[0] + 1}; }
    void run(const Task& task) const override {
        for (int y = task.y0; y < task.y1; y++)
            for (int c = 0; c < shape.c; c += kLine) {
                const Value* x = task.in[0].values<Value>(y / factor_[0]) + place_of<Value>(task.in[0].view, c);
                Value* v = task.out.values<Value>(y) + place_of<Value>(task.out.view, c);
                for (int p = 0; p < from[0].w; p++, x += kLine)
                    for (int i = 0; i < factor_[1]; i++, v += kLine) std::memcpy(v, x, kLine * sizeof(Value));
            }
    }

private:
    const int factor_[2];
};

template <template <class> class Of>
void make(const Record& r, Build& b) {
    if (b.value_bytes == 4)
        b.add(std::make_unique<Of<float>>(r, b));
    else
        b.add(std::make_unique<Of<int16_t>>(r, b));
}

const Register concat("Concat", make<Concat>);
const Register select("Select", make<Select>);
const Register upsample("Upsample", make<Upsample>);

}  // namespace
}  // namespace bcnn
