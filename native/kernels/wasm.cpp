// The kernels for wasm.
#if defined(__wasm__)
#include <wasm_simd128.h>

#include "kernels/kernels.h"

namespace bcnn {
namespace wasm {
#include "../simd/wasm.h"
#include "../simd/wasm_shorts.h"

#include "binary.inl"
#include "endings.inl"
#include "peak.inl"
#include "real.inl"

#include "fixed_numbers.inl"

#include "fixed_binary.inl"
#include "fixed_endings.inl"
#include "fixed_real.inl"
#include "pools.inl"
#include "table.inl"
}  // namespace wasm
BCNN_KERNELS(wasm)
}  // namespace bcnn
#endif
