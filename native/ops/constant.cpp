// Constant, FixedConstant: a map that is the same for every image.
#include "ops/op.h"

namespace bcnn {
namespace {

template <class Value>
class Constant : public Op {
public:
    Constant(const Record& r, const Build& build) {
        shape = build.shape();
        const size_t size = size_t(shape.h) * size_t(shape.w) * size_t(shape.c);
        const Value* const value = static_cast<const Value*>(r.data("value", size, sizeof(Value)));
        value_.assign(value, value + size);
    }
    size_t parameter_bytes() const override { return value_.size() * sizeof(Value); }
    void run(const Task& task) const override {
        for (int y = task.y0; y < task.y1; y++) {
            const Value* from = value_.data() + size_t(y) * size_t(shape.w) * size_t(shape.c);
            for (int x = 0; x < shape.w; x++, from += shape.c)
                for (int c = 0; c < shape.c; c++)
                    task.out.values<Value>(y)[place_of<Value>(task.out.view, c) + ptrdiff_t(x) * line_of<Value>] =
                        from[c];
        }
    }

private:
    std::vector<Value> value_;
};

const Register constant("Constant", [](const Record& r, Build& b) { b.add(std::make_unique<Constant<float>>(r, b)); });
const Register fixed_constant("FixedConstant",
                              [](const Record& r, Build& b) { b.add(std::make_unique<Constant<int16_t>>(r, b)); });

}  // namespace
}  // namespace bcnn
