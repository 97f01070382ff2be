// Threads that wait for work, for one engine. A job is a sequence of stages, a stage a number of pieces that any thread may
// take; a stage begins when all pieces of the one before it are done. The caller takes part, so a job never waits for a
// thread that has not woken up yet. Waiting threads spin briefly, since the next stage is microseconds away, then sleep,
// since others may want the core.
#pragma once
#if defined(__wasm__)
#include "web/alone.h"
#else
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace bcnn {

using Turn = std::mutex;

// The operating system has no thread left for us: a limit of the user, or no memory for a stack. In Python a MemoryError.
class NoThread : public std::bad_alloc {
public:
    NoThread(int number, int threads, const std::string& reason);
    const char* what() const noexcept override { return what_.c_str(); }

private:
    std::string what_;
};

class Pool {
public:
    using Work = std::function<void(int stage, int piece, int thread)>;

    explicit Pool(int threads);  // the caller's included; NoThread if one cannot be made
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    // work(stage, piece, thread) for every piece of every stage. One caller at a time.
    void run(const std::vector<int>& pieces, const Work& work);

private:
    struct Stage {
        std::atomic<int> next{0}, done{0};
        int pieces = 0;
    };
    void wait_for_jobs(int thread);
    void take_part(int thread);
    template <class Ready>
    void wait(const Ready& ready);
    void wake_sleepers();
    void end();

    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::atomic<int> sleepers_{0};
    std::atomic<bool> stop_{false};
    std::atomic<unsigned> job_{0};  // counts jobs
    bool open_ = false;             // workers may still join the job
    std::atomic<int> inside_{0};    // workers that have
    std::unique_ptr<Stage[]> stages_;
    int stage_count_ = 0;
    const Work* work_ = nullptr;
};

}  // namespace bcnn
#endif
