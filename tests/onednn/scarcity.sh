#!/bin/sh
# Without memory in front of an installed oneDNN, which CONVGRAD_ONEDNN_LIBRARY names: what the
# drop-in runs says so, and works again; what oneDNN runs ends as its own. Usage: scarcity.sh CLIENT
set -eu
lines=$(CONVGRAD_ONEDNN_POLICY=always "$1")
expect() {
    echo "$lines" | grep -Eq "^$1\$" || { echo "scarcity: no line like: $1"; echo "$lines"; exit 1; }
}
works="again \(compile 0 execute 0\)"
for graph in convolution convolution_bf16; do
    expect "$graph null 0: compile 0 execute 1 $works held 0"
    expect "$graph throw 0: compile 0 execute thrown $works held 0"
done
for graph in matmul softmax convolution convolution_bf16 convolution_sigmoid; do
    expect "$graph limit: tensor [01] $works" # 3.2 gives a tensor without memory
done
