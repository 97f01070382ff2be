// What follows the sums of an op of an integer program, as bcnn/program/ops/fixed_endings.py defines it. As in
// ops/endings.h, kernels do the first of them in registers, `run` does the rest.
#pragma once
#include "ops/op.h"

namespace bcnn {

class FixedEndings {
public:
    FixedEndings(const Record& record, const Build& build);

    std::vector<int> maps;  // by slot, counted from the first that is the endings'
    Range rows(int slot, int y) const { return endings_[of_slot_[slot]].height == 1 ? Range{0, 1} : Range{y, y + 1}; }
    int channels(int slot) const;
    size_t parameter_bytes() const;
    double row_time() const;

    struct Fused {
        FixedEnd end{};
        int slot[3] = {-1, -1, -1};  // of the maps added
    };
    // Takes the endings at the front that kernels can do after the sums of so many branches: up to two maps added, a PReLU,
    // and a bound with a shift up, or another map, or, after one map, a shift up; before one map, a shift up.
    Fused fuse(int branches);
    struct Bend {
        const int16_t* bend = nullptr;
        int up = 0;
    };
    Bend fuse_prelu();  // a PReLU at the front, for kernels that do just that

    // By channel, what no magnitude exceeds, if the last ending is a Bound, or a shift after one.
    const std::vector<int>* bound() const { return bound_.empty() ? nullptr : &bound_; }

    void run(const Task& task, const Map* in, const Shape& shape, const Kernels& kernels) const;

private:
    struct Ending {
        std::string kind;
        FixedEndingData data{};
        bool whole = false;  // FixedAdd: to all channels
        int slot = -1, height = 1, width = 1, channels = 0, reads = 0, first = 0;
        Aligned<int16_t> a, b;
    };
    bool is(size_t index, const char* kind) const { return index < endings_.size() && endings_[index].kind == kind; }
    bool adds(size_t index) const {  // a whole map as it is
        return is(index, "FixedAdd") && endings_[index].whole && endings_[index].data.bits == 0;
    }
    bool shifts_up(size_t index) const { return is(index, "Shift") && endings_[index].data.bits > 0; }
    std::vector<Ending> endings_;
    std::vector<int> of_slot_;
    std::vector<int> bound_;
    size_t done_ = 0;  // that are done in registers
};

}  // namespace bcnn
