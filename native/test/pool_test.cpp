// The pool where an operating system shows its rare sides. The two calls below stand in front of the C library's own.
//   pool_test wake    a thread is held up between its last look at a stage and its sleep: no wake-up may be lost
//   pool_test create  the n-th thread cannot be created: an exception, and a pool of the same size can be made afterwards
// Linux only: elsewhere a program's functions do not go before those of its libraries.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "pool.h"

namespace {
std::atomic<bool> hold_up{false};  // the main thread, on its way to sleep
std::atomic<bool> held{false}, returning{false};
const pthread_t main_thread = pthread_self();
std::atomic<int> creations_left{1 << 30};

void sleep_us(int us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }
}  // namespace

extern "C" int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
    using Wait = int (*)(pthread_cond_t*, pthread_mutex_t*);
    static const Wait real = reinterpret_cast<Wait>(dlsym(RTLD_NEXT, "pthread_cond_wait"));
    if (hold_up &&
        pthread_equal(pthread_self(), main_thread)) {  // it has looked, it holds the mutex, it is not yet asleep
        held = true;
        while (!returning) sleep_us(100);
        sleep_us(10000);  // the other thread counts its piece as done, and wakes whoever sleeps
    }
    return real(condition, mutex);
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*work)(void*), void* with) {
    using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    static const Create real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
    if (creations_left-- <= 0) return EAGAIN;
    return real(thread, how, work, with);
}

namespace {

// Both threads have a piece; the caller's is done at once, the other's when the caller is held up on its way to sleep.
bool wake() {
    bcnn::Pool pool(2);
    std::atomic<int> done{0};
    for (int job = 0; job < 20; job++) {
        std::atomic<int> begun{0};
        held = returning = false;
        hold_up = true;
        pool.run({2}, [&](int, int, int thread) {
            begun++;
            while (begun < 2) std::this_thread::yield();
            while (thread && !held) std::this_thread::yield();
            done++;
            if (thread) returning = true;
        });
        hold_up = false;
    }
    return done == 40;
}

bool create() {
    const int threads = 6;
    for (int fails = 0; fails < threads - 1; fails++) {
        creations_left = fails;
        try {
            bcnn::Pool pool(threads);
            return false;
        } catch (const bcnn::NoThread& error) {
            const std::string wanted = "cannot start thread " + std::to_string(fails + 2) + " of 6: ";
            if (std::strncmp(error.what(), wanted.c_str(), wanted.size()) != 0) return false;
        }
    }
    creations_left = 1 << 30;
    bcnn::Pool pool(threads);
    std::atomic<int> done{0};
    pool.run({100, 100}, [&](int, int, int) { done++; });
    return done == 200;
}

}  // namespace

int main(int count, char** words) {
    alarm(60);  // a lost wake-up waits for ever
    const bool right = count == 2 && (std::strcmp(words[1], "wake") == 0 ? wake() : create());
    std::puts(right ? "right" : "wrong");
    return right ? 0 : 1;
}
