// MaxPool works on both kinds of numbers; in 16 bits it is one of the pools of ops/fixed_pools.cpp.
#pragma once
#include "ops/op.h"

namespace bcnn {

void add_fixed_pool(const Record& r, Build& build);

}  // namespace bcnn
