// Threads that wait for work, of one engine or of a training process. A job is a sequence of stages, a stage a number of pieces that any thread may
// take; a stage begins when all pieces of the one before it are done. The caller takes part, so a job never waits for a
// thread that has not woken up yet. Waiting threads spin briefly, since the next stage is microseconds away, then sleep,
// since others may want the core.
#pragma once
#if defined(__wasm__)
#include "web/single_thread.h"
#else
#include <atomic>
#include <chrono>
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

    // Which piece of a stage a thread takes: the next one, or first those of its own share, which is the same of every stage. Shares
    // keep what a thread has made in its own caches: between cores of one machine a line may take as long as from memory.
    enum class Take { next, share };

    // `threads`: the caller's included; NoThread if one cannot be made. `patience`: how long a thread waits before it sleeps.
    explicit Pool(int threads, Take take = Take::next,
                  std::chrono::microseconds patience = std::chrono::microseconds(200));
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    // work(stage, piece, thread) for every piece of every stage. One caller at a time.
    void run(const std::vector<int>& pieces, const Work& work);

    int size() const { return int(threads_.size()) + 1; }

private:
    struct alignas(64) Share {  // a cache line each: threads do not disturb each other
        std::atomic<int> next{0};
        int end = 0;
    };
    struct alignas(64) Stage {
        std::atomic<int> done{0};
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
    const Take take_;
    const std::chrono::microseconds patience_;
    std::unique_ptr<Stage[]> stages_;
    std::unique_ptr<Share[]> shares_;  // of every stage, one or one a thread
    int shares_of_stage_ = 1;
    int stage_count_ = 0;
    const Work* work_ = nullptr;
};

}  // namespace bcnn
#endif
