#!/bin/sh
# Builds for 64-bit ARM with the cross compiler and runs tests under QEMU (make test-aarch64): ops, plans, kernels,
# graphs, and the portable kernels' bits against those of this machine. The rest is the same code as anywhere.
set -eu
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
log=build/aarch64/build.log
build() { # build PRESET TARGET...
    preset=$1
    shift
    cmake --preset "$preset" -Wno-dev >/dev/null
    cmake --build --preset "$preset" -j "$jobs" --target "$@" >"$log" 2>&1 && return
    grep -E 'error|warning' "$log" || tail -n 50 "$log"
    exit 1
}
mkdir -p build/aarch64
build aarch64 cpu_test op_test conv_test graph_test backend_test convgrad_bits convgrad_cli
emulate() { qemu-aarch64 -L /usr/aarch64-linux-gnu "$@"; }
bin=build/aarch64/bin

emulate "$bin/convgrad" info | grep -q 'neon' || {
    echo "NEON is not used"
    exit 1
}
emulate "$bin/cpu_test" --gtest_brief=1
emulate "$bin/op_test" --gtest_brief=1 --gtest_filter=-docs.*
emulate "$bin/conv_test" --gtest_brief=1 \
    --gtest_filter='plans.*:pointwise.exact*:edges.*:special_values.*:few_channels.*exact*'

# QEMU runs no second program of its kind and loses threads at fork(): not those two.
emulate "$bin/graph_test" --gtest_brief=1 --gtest_filter='-*death*:fork.*'
emulate "$bin/backend_test" --gtest_brief=1

# The same bits on every kind of processor, by name.
if [ "$(uname -m)" = x86_64 ]; then
    build release convgrad_bits
    build/release/bin/convgrad_bits 25 random | grep ' portable ' >build/aarch64/here.txt
    emulate "$bin/convgrad_bits" 25 random >build/aarch64/all.txt
    grep ' portable ' build/aarch64/all.txt >build/aarch64/there.txt
    test -s build/aarch64/here.txt
    cmp build/aarch64/here.txt build/aarch64/there.txt
    grep -q ' neon tiled.fma ' build/aarch64/all.txt
fi
echo "64-bit ARM: as it should be"
