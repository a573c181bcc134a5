#!/bin/sh
# processes.sh CONVGRAD_SOAK: processes with other thread counts, affinities and neighbours compute the
# same bits.
set -eu
program=$1
layers=400
work=$(mktemp -d)
spinner=""
trap 'rm -rf "$work"; [ -z "$spinner" ] || kill "$spinner"' EXIT

"$program" --sums $layers 1 >"$work/first"
[ "$(wc -l <"$work/first")" -eq $layers ]
same() { # same NAME COMMAND...
    name=$1
    shift
    "$@" >"$work/other"
    if ! cmp -s "$work/first" "$work/other"; then
        echo "FAIL: $name gives other bits than one thread"
        diff "$work/first" "$work/other" | head -5
        exit 1
    fi
    echo "$name: same bits"
}
same "a second process" "$program" --sums $layers 1
for threads in 2 3 5 16; do
    same "$threads threads" "$program" --sums $layers $threads
done
core=$(taskset -pc $$ | sed 's/.*: //; s/[-,].*//')
same "5 threads on core $core" taskset -c "$core" "$program" --sums $layers 5
same "other addresses" env CONVGRAD_PADDING="$(printf '%4000s' x)" "$program" --sums $layers 3
sh -c 'while :; do :; done' &
spinner=$!
same "beside a spinning process" "$program" --sums $layers 2
