// The training kernels for whatever the compiler targets.
#include <cstdlib>

#include "kernels.h"
#include "parallel.h"

namespace bcnn::training {
namespace portable {
#include "kernels.inl"
}  // namespace portable
BCNN_TRAINING_KERNELS(portable)
}  // namespace bcnn::training
