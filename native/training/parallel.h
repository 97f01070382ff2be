// Work shared by threads: a job is a sequence of stages, a stage a number of pieces that any thread may take (see ../pool.h).
// Which thread takes a piece never changes what it computes, so results do not depend on the number of threads.
#pragma once
#include <cstddef>

namespace bcnn::training {

using Piece = void (*)(const void* work, int stage, int piece, int thread);

// piece(work, stage, i, thread) for i from 0 to pieces[stage] - 1, stage after stage; thread is below `threads`.
void run_stages(int threads, const int* pieces, int stages, Piece piece, const void* work);

// Memory aligned to cache lines, to be returned by std::free.
void* allocate(size_t bytes);

}  // namespace bcnn::training
