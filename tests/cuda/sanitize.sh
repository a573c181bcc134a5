#!/bin/sh
# Runs tests under compute-sanitizer, where it is installed: one case of each kernel, and some random
# problems. Usage: sanitize.sh CUDA_TEST
set -eu
command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not installed: skipped"; exit 0; }
here=$(dirname "$0")
launched=$(mktemp)
trap 'rm -f "$launched"' EXIT
for tool in memcheck racecheck; do
    : > "$launched"
    CONVGRAD_REQUIRE_GPU=1 CONVGRAD_CUDA_SAMPLE=40 CONVGRAD_CUDA_KERNELS="$launched" \
        compute-sanitizer --tool "$tool" --error-exitcode 9 "$1" \
        --gtest_filter='cuda_sample.cases_of_every_kernel_are_exact:cuda_random.small_integers_are_exact:cuda_random.large_integers_are_exact'
    # Those that look after cuDNN's sums have tests with cuDNN alone.
    "$here/kernels.sh" "$launched" '^care_'
done
