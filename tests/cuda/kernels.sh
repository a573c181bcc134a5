#!/bin/sh
# Names the kernels that no test launched, by what tests wrote to CONVGRAD_CUDA_KERNELS; fails if there
# are any. Usage: kernels.sh FILE [PATTERN of kernels that need not be there]
set -eu
left=$(awk '{ n[$1] += $2 } END { for (k in n) if (n[k] == 0) print k }' "$1" | grep -vE "${2:-^$}" | sort || true)
[ -s "$1" ] || { echo "no test told which kernels it launched"; exit 1; }
[ -z "$left" ] || { echo "launched by no test:"; echo "$left"; exit 1; }
echo "every kernel was launched ($(cut -d ' ' -f 1 "$1" | sort -u | wc -l))"
