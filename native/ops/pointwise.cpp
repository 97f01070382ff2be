// Pointwise: a map, or its replicas, with endings and nothing before them.
#include "ops/endings.h"

namespace bcnn {
namespace {

class Pointwise : public Op {
public:
    Pointwise(const Record& r, const Build& build)
        : kernels_(build.kernels), endings_(r, build), reads_(r.number("reads")) {
        shape = build.shape();
        read(r.number("source"), build);
        for (const int map : endings_.maps) read(map, build);
    }
    Range rows(int slot, int y) const override { return slot ? endings_.rows(slot - 1, y) : Range{y, y + 1}; }
    int channels(int slot) const override { return slot ? endings_.channels(slot - 1) : reads_; }
    size_t parameter_bytes() const override { return endings_.parameter_bytes(); }
    double row_time() const override { return Op::row_time() + double(shape.w) * shape.c * endings_.row_time(); }
    void run(const Task& task) const override {
        for (int y = task.y0; y < task.y1; y++)
            kernels_.copy(task.in[0].floats(y), task.in[0].view, shape.w, shape.c, task.out.floats(y), task.out.view);
        endings_.run(task, task.in + 1, shape, kernels_);
    }

private:
    const Kernels& kernels_;
    Endings endings_;
    const int reads_;
};

const Register pointwise("Pointwise", [](const Record& r, Build& b) { b.add(std::make_unique<Pointwise>(r, b)); });

}  // namespace
}  // namespace bcnn
