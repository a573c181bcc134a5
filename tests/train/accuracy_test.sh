#!/usr/bin/env bash
# Trains the classifier with the default settings: accuracy_test.sh CONVGRAD TYPE PERCENT
set -eu
result=$("$1" train --dtype "$2" --quiet)
echo "$result"
awk -v least="$3" '/^test accuracy/ { good = $3 >= least } END { exit !good }' <<<"$result"
