// Loaded before the C library (LD_PRELOAD) into a Python process: the n-th allocation of C++ code, or the n-th thread, fails
// when the test says so, and what was allocated and not given back is counted. For glibc: tests/engine/test_native_failures.py.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

extern "C" void* __libc_malloc(size_t);
extern "C" void* __libc_memalign(size_t, size_t);
extern "C" void __libc_free(void*);

namespace {

std::atomic<long> seen{0}, fail_from{0}, fail_to{0};  // allocations and threads are counted as one sequence
std::atomic<bool> counting{false};
std::atomic<long> live{0};  // of operator new

// Aligned memory is freed like any other: its addresses are remembered while they live.
constexpr size_t kSlots = 4096;
std::atomic<void*> aligned[kSlots];

bool fails() {
    if (!counting) return false;
    const long now = ++seen;
    return now >= fail_from && now < fail_to;
}

bool forget(void* p) {
    for (auto& slot : aligned) {
        void* expected = p;
        if (slot.load(std::memory_order_relaxed) == p && slot.compare_exchange_strong(expected, nullptr)) return true;
    }
    return false;
}

void* allocate(size_t size) {
    void* const p = fails() ? nullptr : __libc_malloc(size ? size : 1);
    if (!p) throw std::bad_alloc();
    live++;
    return p;
}

void release(void* p) {
    if (p) live--;
    __libc_free(p);
}

}  // namespace

// From the `from`-th on, up to before the `to`-th, counted from now.
extern "C" void failing_start(long from, long to) {
    seen = 0;
    fail_from = from;
    fail_to = to;
    counting = true;
}
extern "C" long failing_stop() {  // how many there were
    counting = false;
    return seen;
}
extern "C" long failing_live() {
    long count = live;
    for (auto& slot : aligned) count += slot.load() != nullptr;
    return count;
}

void* operator new(size_t size) { return allocate(size); }
void* operator new[](size_t size) { return allocate(size); }
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, size_t) noexcept { release(p); }
void operator delete[](void* p, size_t) noexcept { release(p); }

extern "C" void* aligned_alloc(size_t align, size_t size) {
    if (fails()) return nullptr;
    void* const p = __libc_memalign(align, size);
    for (auto& slot : aligned) {
        void* expected = nullptr;
        if (!slot.load(std::memory_order_relaxed) && slot.compare_exchange_strong(expected, p)) break;
    }
    return p;
}

extern "C" void free(void* p) {
    if ((reinterpret_cast<size_t>(p) & 63) == 0 && p) forget(p);  // cache lines at least
    __libc_free(p);
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*work)(void*), void* with) {
    using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    static const Create real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
    return fails() ? EAGAIN : real(thread, how, work, with);
}
