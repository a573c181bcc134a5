#!/bin/sh
# In front of oneDNN the trace says who runs a partition and why, and a library behind that cannot be
# one is named on standard error. Usage: who.sh DELEGATION_CLIENT C_CLIENT FAKE_LIBRARY LOCAL_CLIENT
set -eu
client=$1
alone=$2
fake=$3
local_client=$4
lines=$(CONVGRAD_VERBOSE=1 CONVGRAD_ONEDNN_POLICY=always "$client" --gtest_filter='*EveryOpRuns:*OtherPostOps*:*WhatTheyRefuse*:*KnownFaults*')
expect() {
    echo "$lines" | grep -Eq "$1" || { echo "who: no line like: $1"; echo "$lines"; exit 1; }
}
for event in compile exec; do
    expect "^convgrad_verbose,$event,cpu,partition:[0-9]+,abs:abs,oneDNN 3\.99\.1 \[abs not computed here\],f32:[^,]*,"
    expect "^convgrad_verbose,$event,cpu,partition:[0-9]+,Convolution:op11\+ReLU:relu,[a-z_.]+:[a-z0-9_]+ [^,]*\[policy always\],"
    expect "^convgrad_verbose,$event,.*Convolution:op11\+gelu:gelu,oneDNN 3\.99\.1 \[gelu not computed here\],"
    expect "^convgrad_verbose,$event,.*ConvTransposeBackwardData:op5,.*\[oneDNN 3\.99\.1 does not support it\],"
    expect "^convgrad_verbose,$event,.*ConvTransposeBackwardData:op5,.*\[oneDNN 3\.99\.1: dilations"
done
lines=$(CONVGRAD_VERBOSE=1 "$client" --gtest_filter='*EveryOpRuns')
expect "^convgrad_verbose,exec,cpu,partition:[0-9]+,Convolution:op11\+ReLU:relu,(oneDNN 3\.99\.1 \[(predicted|nothing is known)|.*\[predicted [0-9]+ % of oneDNN's speed\])"
lines=$(CONVGRAD_VERBOSE=1 CONVGRAD_ONEDNN_POLICY=correct "$client" --gtest_filter='*EveryOpRuns')
expect "^convgrad_verbose,exec,.*Convolution:op11\+ReLU:relu,oneDNN 3\.99\.1 \[policy correct\],"
# By name; not at all; and not one of another make. The C client only runs what the drop-in has.
refused() { # refused WORDS ENVIRONMENT...
    words=$1
    shift
    said=$(env CONVGRAD_ONEDNN_LIBRARY="$fake" "$@" "$alone" 2>&1 >/dev/null) || {
        echo "who: the client fails with $*: $said"
        exit 1
    }
    echo "$said" | grep -q "$words" || { echo "who: $*: not a word of $words: $said"; exit 1; }
}
refused "oneDNN 4.99.1; 3.x is expected" FAKE_DNNL_MAJOR=4
refused "describes tensors in another way" FAKE_DNNL_ABI=other
[ "$(CONVGRAD_ONEDNN_LIBRARY=none "$alone" 2>&1)" = "all as expected" ]
CONVGRAD_ONEDNN_LIBRARY=/nowhere/libdnnl.so "$alone" 2>&1 | grep -q "CONVGRAD_ONEDNN_LIBRARY: /nowhere"
said=$(CONVGRAD_ONEDNN_POLICY=sometimes "$client" --gtest_filter='*EveryOpRuns' 2>&1)
echo "$said" | grep -q 'CONVGRAD_ONEDNN_POLICY is "sometimes"; always, faster and correct are known'
said=$(CONVGRAD_ONEDNN_MATH=quick CONVGRAD_ONEDNN_POLICY=always "$client" --gtest_filter='*EveryOpRuns' 2>&1)
echo "$said" | grep -q 'CONVGRAD_ONEDNN_MATH is "quick"; strict, accurate and fast are known'
# One that was opened for a module only is found by the names that it has in the field, and by no other.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for name in libdnnl.so.3 libdnnl-5e1f3a.so.3.6 libonednn_cpu_so.so; do
    cp "$fake" "$folder/$name"
    [ "$("$local_client" "$folder/$name")" = "version 3.99 capacity 77" ] || { echo "who: $name is not found"; exit 1; }
done
cp "$fake" "$folder/libother.so"
[ "$("$local_client" "$folder/libother.so")" = "version 3.14 capacity 1024" ]
