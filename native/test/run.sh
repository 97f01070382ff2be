#!/bin/sh
# Tests the native core without Python against maps that the interpreter made.
#   native/test/run.sh sanitize   under AddressSanitizer and UndefinedBehaviorSanitizer
#   native/test/run.sh threads    under ThreadSanitizer
#   native/test/run.sh avx512     the AVX-512 kernels with a model of their instructions, for machines without them
#   native/test/run.sh neon       for AArch64, in an emulator (Debian: apt install g++-aarch64-linux-gnu qemu-user)
set -eu
cd "$(dirname "$0")/../.."
mode=${1:?sanitize, threads, avx512 or neon}
python=${PYTHON:-python3}
# Not optimised under sanitizers: the compiler takes minutes for kernels that are inlined and instrumented.
build=build/test
mkdir -p "$build"

cxx=${CXX:-g++} run=
case $mode in
  sanitize) flags="-O0 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all" ;;
  threads) flags="-O0 -g1 -fsanitize=thread" ;;
  avx512) flags="-O0 -g1 -DBCNN_MODEL_AVX512 -fsanitize=address,undefined -fno-sanitize-recover=all" ;;
  neon) cxx=aarch64-linux-gnu-g++ flags="-O3 -static" run=qemu-aarch64 ;;
  *) echo "unknown test $mode" >&2; exit 2 ;;
esac

PYTHONPATH=src "$python" tests/native_vectors.py "$build/vectors"
jobs=
for source in native/*.cpp native/test/core_test.cpp; do
  [ "$source" = native/bind.cpp ] && continue
  # shellcheck disable=SC2086
  "$cxx" -std=c++17 -ffp-contract=off -Wall -Wextra -Wno-maybe-uninitialized $flags -Inative -c "$source" \
    -o "$build/$mode-$(basename "$source" .cpp).o" &
  jobs="$jobs $!"
done
for job in $jobs; do wait "$job"; done
# shellcheck disable=SC2086
"$cxx" $flags "$build/$mode"-*.o -o "$build/$mode" -lpthread
$run "$build/$mode" "$build/vectors"
