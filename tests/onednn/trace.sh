#!/bin/sh
# CONVGRAD_VERBOSE prints a line with kernel and time for each compile and each execution, and says
# why a call was refused; without it nothing is printed. Usage: trace.sh C_CLIENT
set -eu
lines=$(CONVGRAD_VERBOSE=1 "$1")
echo "$lines"
number='[0-9.e+-]*'
for event in compile exec; do
    echo "$lines" | grep -Eq \
        "^convgrad_verbose,$event,cpu,partition:[0-9]+,Convolution:op\+ReLU:relu,[a-z_.]+:[a-z0-9_]+ [^,]*,[^,]*,$number\$"
done
echo "$lines" | grep -q '^convgrad_verbose,exec,.*ConvolutionBackwardData:op+ConvolutionBackwardWeights'
[ "$(CONVGRAD_VERBOSE=0 "$1")" = "all as expected" ]
[ "$("$1")" = "all as expected" ]
