// A program, packed for one instruction set and planned for a number of threads. uint8 images in, float32 logits out.
#pragma once
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels.h"
#include "model.h"
#include "plan.h"
#include "pool.h"

namespace bcnn {

struct Free {
    void operator()(void* p) const { std::free(p); }
};

template <class T>
class Aligned {  // zeroed memory, aligned to cache lines
public:
    explicit Aligned(size_t count = 0);
    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    size_t size() const { return size_; }

private:
    size_t size_;
    std::unique_ptr<T[], Free> data_;
};

class Engine {
public:
    Engine(const Model& model, const Kernels& kernels, int threads);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // Callable from any thread; calls of one engine take turns.
    void run(const uint8_t* images, size_t count, float* logits);
    // The same run of one image, copying each row of each map to maps[op] (H,W,C) as it is made.
    void maps(const uint8_t* image, float* const* maps);
    // Seconds spent in each op, on one thread: the sum over its steps of the fastest of `repeats` runs of that step. A step
    // takes microseconds, so this sees through the noise of a shared machine.
    void profile(const uint8_t* image, int repeats, double* seconds);

    const Kernels& kernels() const { return kernels_; }
    int threads() const { return threads_; }
    size_t logits() const { return logits_; }
    size_t peak_memory() const;    // bytes of maps and scratch of one image's run, weights not counted
    size_t weight_memory() const;  // bytes of packed weights and other parameters
    void after_fork();             // in the child: its threads are gone, and a lock may be held by one of them

private:
    struct Packed;   // an op's parameters as the kernels want them
    struct Context;  // memory of one image's run
    struct Run;      // what a step needs to know besides its op

    void pack(const Op& op, Packed& packed) const;
    std::unique_ptr<Context> context(const Plan& plan, int scratches) const;
    void segment(const Plan& plan, int index, int share, const Run& run) const;
    void step(const Step& step, const Share& share, const Run& run) const;
    void input(const Packed& packed, const Step& step, float* out, const uint8_t* image) const;
    void channel_avg(const Op& op, const float* x, View x_view, float* out, View out_view) const;
    void copy_out(const Step& step, const Share& share, const Run& run) const;
    void take_logits(const Plan& plan, const Context& context, float* logits) const;
    Pool& pool();

    const Kernels& kernels_;
    const int threads_;
    Model model_;  // its arrays are not to be read once the engine is made
    std::vector<Layout> layouts_;
    std::vector<Packed> packed_;
    Plan alone_, split_;  // for one thread, for all
    size_t logits_, scratch_bytes_;
    // What shifted filters read outside a map: a pixel of zeros, with the blocks of channels as far apart as in the map. Nobody
    // writes here, so no memory stands behind it but the system's page of zeros.
    std::unique_ptr<float[], Free> zeros_;
    std::vector<int> split_pieces_;
    std::vector<std::unique_ptr<Context>> contexts_;  // [0] for split_, [i] thread i's for alone_
    std::unique_ptr<Context> split_context_;
    std::unique_ptr<Pool> pool_;
    std::unique_ptr<std::mutex> turn_;
};

}  // namespace bcnn
