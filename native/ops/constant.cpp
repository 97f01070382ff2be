// Constant: a map that is the same for every image.
#include "ops/op.h"

namespace bcnn {
namespace {

class Constant : public Op {
public:
    Constant(const Record& r, const Build& build) {
        shape = build.shape();
        const size_t size = size_t(shape.h) * size_t(shape.w) * size_t(shape.c);
        const float* const value = r.floats("value", size);
        value_.assign(value, value + size);
    }
    size_t parameter_bytes() const override { return value_.size() * sizeof(float); }
    void run(const Task& task) const override {
        for (int y = task.y0; y < task.y1; y++) {
            const float* from = value_.data() + size_t(y) * size_t(shape.w) * size_t(shape.c);
            for (int x = 0; x < shape.w; x++, from += shape.c)
                for (int c = 0; c < shape.c; c++)
                    task.out.floats(y)[place_of(task.out.view, c) + ptrdiff_t(x) * kLine] = from[c];
        }
    }

private:
    std::vector<float> value_;
};

const Register constant("Constant", [](const Record& r, Build& b) { b.add(std::make_unique<Constant>(r, b)); });

}  // namespace
}  // namespace bcnn
