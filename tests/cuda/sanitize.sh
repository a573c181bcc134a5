#!/bin/sh
# Runs some of the tests under compute-sanitizer, where it is installed. Usage: sanitize.sh CUDA_TEST
set -eu
command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not installed: skipped"; exit 0; }
for tool in memcheck racecheck; do
    CONVGRAD_CUDA_SAMPLE=40 compute-sanitizer --tool "$tool" --error-exitcode 9 \
        "$1" --gtest_filter='cuda_random.small_integers_are_exact:cuda_random.large_integers_are_exact'
done
