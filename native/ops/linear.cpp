// Linear: the fully connected layer of a map of one pixel, whose channels are all neighbours in memory.
#include <algorithm>

#include "ops/endings.h"
#include "plan/cost.h"

namespace bcnn {
namespace {

class Linear : public EndedOp<Endings> {
public:
    Linear(const Record& r, const Build& build) : EndedOp(r, build) {
        const size_t o = size_t(shape.c), c = size_t(from[0].c);
        const float* const weight = r.floats("weight", c * o);
        bias_ = padded_floats(r.floats("bias", o), o);
        weight_ = Aligned<float>(padded(o) * c);
        for (size_t begin = 0; begin < o; begin += kPad)
            for (size_t i = 0; i < c; i++)
                std::copy(weight + i * o + begin, weight + i * o + std::min(begin + kPad, o),
                          weight_.data() + begin * c + i * kPad);
    }
    Range rows(int slot, int y) const override { return slot ? endings_.rows(slot - 1, y) : Range{0, 1}; }
    int channels(int slot) const override { return slot ? endings_.channels(slot - 1) : 0; }
    bool splits_channels() const override { return true; }
    bool alone() const override { return true; }
    size_t parameter_bytes() const override { return weight_.bytes() + bias_.bytes() + endings_.parameter_bytes(); }
    void run(const Task& task) const override {
        kernels_.linear(task.in[0].floats(0), from[0].c, weight_.data(), bias_.data(), task.c0, task.c1,
                        task.out.floats(0));
        finish(task);
    }

private:
    Aligned<float> weight_, bias_;
};

const Register linear("Linear", [](const Record& r, Build& b) { b.add(std::make_unique<Linear>(r, b)); });

}  // namespace
}  // namespace bcnn
