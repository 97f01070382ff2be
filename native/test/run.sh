#!/bin/sh
# Tests the native core without Python against maps that the interpreter made, and the training kernels against themselves.
#   native/test/run.sh sanitize   under AddressSanitizer and UndefinedBehaviorSanitizer
#   native/test/run.sh threads    under ThreadSanitizer
#   native/test/run.sh neon       for AArch64, in an emulator (Debian: apt install g++-aarch64-linux-gnu qemu-user)
#   native/test/run.sh avx512     its kernels with every intrinsic emulated (Debian: apt install libsimde-dev)
# QUICK=1 leaves out under sanitizers what costs most: some numbers of threads, and for kernels of intrinsics, which define what they do,
# UndefinedBehaviorSanitizer.
set -eu
cd "$(dirname "$0")/../.."
mode=${1:?sanitize, threads, neon or avx512}
python=${PYTHON:-python3}
# Not optimised under sanitizers: the compiler takes minutes for kernels that are inlined and instrumented.
build=build/test
mkdir -p "$build"
rm -f "$build/$mode"-*.o "$build/training-$mode"-*.o

cxx=${CXX:-g++} run= chosen= vectors=
case $mode in
  sanitize) flags="-O0 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all"
    [ -z "${QUICK:-}" ] || chosen="1 3" vectors=-fno-sanitize=undefined ;;
  threads) flags="-O0 -g1 -fsanitize=thread"
    [ -z "${QUICK:-}" ] || chosen="turns 2 3" ;;
  neon) cxx=aarch64-linux-gnu-g++ flags="-O3 -static" run=qemu-aarch64 ;;
  avx512) flags="-O2 -DBCNN_EMULATE_AVX512 -Wno-psabi" ;;
  *) echo "unknown test $mode" >&2; exit 2 ;;
esac

# compile PREFIX FLAGS < names of sources: as many at a time as there are cores
compile() {
  while read -r source; do
    echo "$source $build/$1$mode-$(echo "${source%.cpp}" | tr / -).o"
  done | xargs -P "$(nproc)" -n 2 sh -c \
    "more=; case \$0 in */kernels/avx*) more=$vectors ;; esac; $cxx $2 $flags \$more -c \"\$0\" -o \"\$1\""
}

PYTHONPATH=src "$python" tests/helpers/native_vectors.py "$build/vectors"
# The kernels take longest, the scalar ones most: they begin first.
{ ls -r native/kernels/*.cpp && ls native/ops/*.cpp native/plan/*.cpp native/[!b]*.cpp native/test/core_test.cpp; } |
  compile "" "-std=c++17 -ffp-contract=off -Wall -Wextra -Wno-maybe-uninitialized -Inative"
ls native/pool.cpp native/training/[dkp]*.cpp native/test/training_test.cpp |
  compile training- "-std=c++17 -fno-trapping-math -fno-math-errno -Wall -Wextra -Wno-psabi -Wno-unknown-pragmas"
# shellcheck disable=SC2086
"$cxx" $flags "$build/$mode"-*.o -o "$build/$mode" -lpthread
# shellcheck disable=SC2086
$run "$build/$mode" "$build/vectors" $chosen
# shellcheck disable=SC2086
"$cxx" $flags "$build/training-$mode"-*.o -o "$build/training-$mode" -lpthread
$run "$build/training-$mode"
