// After fork the child has only the thread that called it: whoever keeps threads or locks is told.
#pragma once
#if defined(__wasm__)
#include "web/single_thread.h"
#else
#include <functional>

namespace bcnn {

class AtFork {  // calls `child` in the child of every fork while it exists
public:
    explicit AtFork(std::function<void()> child);
    ~AtFork();
    AtFork(const AtFork&) = delete;
    AtFork& operator=(const AtFork&) = delete;

private:
    const std::function<void()> child_;
};

}  // namespace bcnn
#endif
