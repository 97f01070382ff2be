// What follows the sums of an op: the list `after` of its record, as bcnn/program/ops/endings.py defines it.
//
// A binary convolution does the first of them in registers where they are what networks use (`fuse`); `run` does the
// rest over the rows made.
#pragma once
#include "ops/op.h"

namespace bcnn {

class Endings {
public:
    // Reads the record's `after`; `first_slot` is the op's next free slot. The maps that endings read are in `maps`.
    Endings(const Record& record, const Build& build);

    std::vector<int> maps;  // by slot, counted from the first that is the endings'
    Range rows(int slot, int y) const { return endings_[of_slot_[slot]].height == 1 ? Range{0, 1} : Range{y, y + 1}; }
    int channels(int slot) const;
    size_t parameter_bytes() const;
    double row_time() const;

    struct Fused {
        int end = 0;             // kernels.h: End
        int slot[2] = {-1, -1};  // of the maps added
        const float* slope[2] = {nullptr, nullptr};
    };
    // Takes the endings at the front that `finish` can do, in the order add, PReLU, add, PReLU. `negative_zero`: -0.0
    // may come in.
    Fused fuse(bool negative_zero);
    // A PReLU at the front, for kernels that do just that.
    const float* fuse_prelu();

    // Those that are left, over the rows of a task; `in` is the first of the endings' slots.
    void run(const Task& task, const Map* in, const Shape& shape, const Kernels& kernels) const;

private:
    struct Ending {
        std::string kind;
        EndingData data{};
        bool whole = false;  // Add: to all channels
        int slot = -1, height = 1, width = 1, channels = 0, reads = 0, first = 0;
        bool negative = false;  // PReLU: some slope is
        Aligned<float> a, b;
    };
    std::vector<Ending> endings_;
    std::vector<int> of_slot_;  // the ending that a slot belongs to
    size_t done_ = 0;           // that are done in registers
};

}  // namespace bcnn
