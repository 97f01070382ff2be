// Pointwise: a map, or its replicas, with endings and nothing before them.
#include "ops/endings.h"

namespace bcnn {
namespace {

template <class Value, class List>
class Pointwise : public EndedOp<List> {
public:
    Pointwise(const Record& r, const Build& build) : EndedOp<List>(r, build), reads_(r.number("reads")) {}
    Range rows(int slot, int y) const override { return slot ? endings_.rows(slot - 1, y) : Range{y, y + 1}; }
    int channels(int slot) const override { return slot ? endings_.channels(slot - 1) : reads_; }
    size_t parameter_bytes() const override { return endings_.parameter_bytes(); }
    double row_time() const override { return Op::row_time() + double(shape.w) * shape.c * endings_.row_time(); }
    void run(const Task& task) const override {
        for (int y = task.y0; y < task.y1; y++)
            copy(kernels_, task.in[0].values<Value>(y), task.in[0].view, task.out.values<Value>(y), task.out.view);
        this->finish(task);
    }

private:
    using EndedOp<List>::endings_;
    using EndedOp<List>::kernels_;
    using Op::shape;
    void copy(const Kernels& k, const float* x, View v, float* out, View out_view) const {
        k.copy(x, v, shape.w, shape.c, out, out_view);
    }
    void copy(const Kernels& k, const int16_t* x, View v, int16_t* out, View out_view) const {
        k.fixed.copy(x, v, shape.w, shape.c, out, out_view);
    }
    const int reads_;
};

const Register pointwise("Pointwise", [](const Record& r, Build& b) {
    if (b.value_bytes == 4)
        b.add(std::make_unique<Pointwise<float, Endings>>(r, b));
    else
        b.add(std::make_unique<Pointwise<int16_t, FixedEndings>>(r, b));
});

}  // namespace
}  // namespace bcnn
