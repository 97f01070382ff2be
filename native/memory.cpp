#include "memory.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstring>
#include <new>

namespace bcnn {

void* aligned_zeros(size_t bytes) {
    // Pixels of late levels are a page apart: with large pages a row of them does not outgrow the translation buffers.
    constexpr size_t huge = 2 << 20;
    const size_t align = bytes >= huge / 2 ? huge : 64;
    if (bytes > ~size_t(0) / 2) throw std::bad_alloc();
    const size_t whole = (bytes + align - 1) / align * align;
    void* memory = std::aligned_alloc(align, whole);
    if (!memory) throw std::bad_alloc();
#if defined(__linux__)
    if (align == huge) madvise(memory, whole, MADV_HUGEPAGE);
#endif
    std::memset(memory, 0, whole);
    return memory;
}

}  // namespace bcnn
