// An op of one source that reads it through a window, with endings.
#pragma once
#include "ops/endings.h"
#include "ops/window.h"

namespace bcnn {

template <class List>
class FilterOp : public EndedOp<List> {
public:
    Range rows(int slot, int y) const override {
        return slot ? this->endings_.rows(slot - 1, y) : window_.rows(y, this->from[0].h);
    }

protected:
    FilterOp(const Record& r, const Build& build)
        : EndedOp<List>(r, build), window_(r.part("window")), reads_(r.number("reads")) {}

    const Window window_;
    const int reads_;
};

}  // namespace bcnn
