#!/bin/sh
# Builds with Clang's sanitizers and runs tests there. Usage: sanitize.sh quick|all asan|tsan
#   asan  addresses, undefined behaviour and leaks
#   tsan  data races
# quick builds and runs what the tests of each change have time for, without a look into the kernels
# for AVX-512 and AMX, and depthwise ones for AVX2; all compiles every program of the tree and runs
# every C++ test and the clients of the drop-in.
set -eu
cd "$(dirname "$0")/.."
extent=$1
preset=$2
jobs=$(nproc)

export ASAN_OPTIONS="detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1"
export UBSAN_OPTIONS="print_stacktrace=1"
export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1"

wide=ON
[ "$extent" = all ] || wide=OFF
cmake --preset "$preset" -Wno-dev -DCONVGRAD_SANITIZE_WIDE="$wide" >/dev/null
build() { # build TARGET...
    log="build/$preset/build.log"
    cmake --build "build/$preset" -j "$jobs" --target "$@" >"$log" 2>&1 && return
    grep -E 'error|warning' "$log" || tail -n 50 "$log"
    exit 1
}
run() { # run OPTIONS-OF-CTEST...
    ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure --no-tests=error "$@"
}

case $extent-$preset in
quick-asan)
    build op_test graph_test cli_test support_selftest_test memory_test conv_test
    several='^(op|graph|cli|support_selftest)_test:|^memory_test:(allocation_failure_of|executable)'
    kernels='^conv_test:(edges|special_values|workspace|random_problems.large_integers)'
    run -R "$several|$kernels"
    ;;
quick-tsan)
    build graph_test
    run -R '^graph_test:'
    ;;
*)
    # Left out: what measures or compares errors only, what needs a browser or other Python packages,
    # and what trains for long. Long lists of cases are sampled (tests/support/sanitizers.hpp).
    build all
    run -E '^(oracle|report:|bench:|train:accuracy|soak|accuracy_test:split_f32.no_larger)'
    ;;
esac
