// A program, packed for one instruction set and planned for a number of threads. uint8 images in, logits out: float32,
// or int16 of a program in integers.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "fork.h"
#include "kernels/kernels.h"
#include "memory.h"
#include "ops/op.h"
#include "plan/plan.h"
#include "pool.h"
#include "record.h"

namespace bcnn {

class Engine {
public:
    // `shapes` are those of the records' maps. Neither is read once the engine is made.
    Engine(const std::vector<Record>& records, const std::vector<Shape>& shapes, const Kernels& kernels, int threads,
           Goal goal = Goal::time);
    ~Engine();

    // Callable from any thread; calls of one engine take turns.
    void run(const uint8_t* images, size_t count, void* logits);
    // The same run of one image, copying each row of each record's map to maps[record] (H,W,C) as it is made.
    void maps(const uint8_t* image, void* const* maps);
    // Seconds spent in each record's ops, on one thread: the sum over their steps of the fastest of `repeats` runs of
    // that step. A step takes microseconds, so this sees through the noise of a shared machine.
    void profile(const uint8_t* image, int repeats, double* seconds);

    size_t logits() const { return logits_; }
    size_t value_bytes() const { return value_bytes_; }  // of maps and logits
    size_t peak_memory() const;    // bytes of maps and scratch of one image's run, weights not counted
    size_t weight_memory() const;  // bytes of packed weights and other parameters

private:
    struct Context;  // memory of one image's run
    struct Run;      // what a step needs to know besides its op

    void after_fork();
    std::unique_ptr<Context> context(const Plan& plan, int scratches) const;
    void segment(const Plan& plan, int index, int share, const Run& run) const;
    void step(int op, const Task& task, const Run& run) const;
    Map map(const Plan& plan, const Segment& segment, const Share& share, int op, Context& context) const;
    void copy_out(const Op& op, const Task& task, void* to) const;
    void take_logits(const Plan& plan, Context& context, uint8_t* logits) const;
    Pool& pool();
    const Plan& split() const { return threads_ > 1 ? split_ : alone_; }

    const int threads_;
    Ops ops_;
    std::vector<int> maker_;  // by record: the op that makes its map
    std::vector<Layout> layouts_;
    Plan alone_, split_;  // for one thread, for all if they are more
    size_t value_bytes_, logits_, image_bytes_, scratch_bytes_ = 0;
    std::vector<int> split_pieces_;
    std::vector<std::unique_ptr<Context>> contexts_;  // thread i's for alone_
    std::unique_ptr<Context> split_context_;
    std::unique_ptr<Pool> pool_;
    std::unique_ptr<Turn> turn_;
    AtFork at_fork_;  // last: made when all else is, and gone first
};

}  // namespace bcnn
