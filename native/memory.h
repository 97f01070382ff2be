// Zeroed memory, aligned to cache lines, or to large pages where it is large.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <memory>

namespace bcnn {

void* aligned_zeros(size_t bytes);  // to be freed with std::free; throws std::bad_alloc

template <class T>
class Aligned {
public:
    explicit Aligned(size_t count = 0)
        : size_(count), data_(count ? static_cast<T*>(aligned_zeros(count * sizeof(T))) : nullptr) {}
    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    size_t size() const { return size_; }
    size_t bytes() const { return size_ * sizeof(T); }

private:
    struct Free {
        void operator()(void* p) const { std::free(p); }
    };
    size_t size_;
    std::unique_ptr<T[], Free> data_;
};

}  // namespace bcnn
