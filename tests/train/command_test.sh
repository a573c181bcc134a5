#!/usr/bin/env bash
# `convgrad train` as users run it: bits, checkpoints, kills, errors, pipes.
#   command_test.sh PATH_OF_CONVGRAD
set -u
convgrad=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
complain() {
    printf 'FAILED: %s\n' "$1"
    failures=$((failures + 1))
}
weights() { "$convgrad" train --quiet "$@" | grep '^weights '; }

# Same seed, same bits, whatever the number of threads; another seed, other bits.
for type in f32 bf16 f16; do
    one=$(weights --dtype $type --epochs 1 --threads 1)
    for threads in 2 3; do
        [ "$(weights --dtype $type --epochs 1 --threads $threads)" = "$one" ] ||
            complain "$type: $threads threads give other weights than one"
    done
done
[ "$(weights --epochs 1 --dtype F32 --isa PORTABLE)" = "$(weights --epochs 1 --isa portable)" ] ||
    complain 'the case of letters matters'
[ "$(weights --epochs 1 --seed 2)" != "$(weights --epochs 1)" ] || complain 'seeds give the same weights'

# Killed at any moment, the checkpoint is absent or whole, and continuing leads to the same bits.
expected=$(weights --model autoencoder --epochs 6)
state=$work/state
for round in $(seq 1 12); do
    resume=()
    [ ! -e "$state" ] || resume=(--resume "$state")
    "$convgrad" train --model autoencoder --epochs 6 --quiet --checkpoint "$state" "${resume[@]}" \
        >"$work/out" 2>"$work/err" &
    process=$!
    sleep "0.$((RANDOM % 90 + 10))"
    kill -KILL $process 2>/dev/null
    wait $process 2>/dev/null
    [ ! -s "$work/err" ] || complain "round $round: $(cat "$work/err")"
done
resume=()
[ ! -e "$state" ] || resume=(--resume "$state")
[ "$(weights --model autoencoder --epochs 6 --checkpoint "$state" "${resume[@]}")" = "$expected" ] ||
    complain 'a resumed training ends with other weights'

# A finished training can be resumed: nothing is left to do.
[ "$(weights --resume "$state")" = "$expected" ] || complain 'resuming a finished training'

# Errors: status 2, a message, nothing on stdout.
bad() {
    local message=$1
    shift
    "$convgrad" train "$@" >"$work/out" 2>"$work/err" </dev/null
    local status=$?
    [ $status -eq 2 ] || complain "train $*: exit status $status, not 2"
    [ ! -s "$work/out" ] || complain "train $*: something on stdout"
    grep -qF -- "$message" "$work/err" || complain "train $*: $(cat "$work/err") lacks '$message'"
}
bad 'did you mean autoencoder' --model autoencodr
bad 'did you mean bf16' --dtype bf61
bad 'expected cpu, cuda or cuda:N' --engine gpu
bad 'expected one engine' --engine cpu,cuda
bad 'are for the CPU, which --engine does not name' --engine cuda --threads 2
bad 'are for the CPU, which --engine does not name' --engine cuda:1 --isa avx2
# Without a GPU training on one is refused, before anything is printed; with one it works.
if "$convgrad" info | grep -q '^engine cuda .*none'; then
    bad 'engine: kind is cuda, but' --engine cuda
else
    [ "$(weights --engine cuda --epochs 1)" = "$(weights --engine cuda --epochs 1)" ] ||
        complain 'two trainings on a GPU give different weights'
    "$convgrad" train --engine cuda --epochs 1 >"$work/out" || complain 'training on a GPU'
    grep -q '^copies ' "$work/out" || complain 'nothing is said about copies'
fi
[ "$(weights --engine CPU --epochs 1)" = "$(weights --epochs 1)" ] || complain '--engine cpu is another engine'
bad '--threads' --threads 0
bad '--epochs' --epochs 0
bad '--isa mmx' --isa mmx
bad '--math exact' --math exact
bad 'cannot read' --resume "$work/absent"
bad 'is not a checkpoint' --resume "$0"
bad '--dtype differs' --resume "$state" --dtype f16
bad '--model differs' --resume "$state" --model classifier
bad 'is not a directory' --data "$work/absent"
head -c 2000 "$state" >"$work/short"
bad 'is damaged' --resume "$work/short"
cp "$state" "$work/flipped"
printf '\x55' | dd of="$work/flipped" bs=1 seek=5000 conv=notrunc status=none
bad 'is damaged' --resume "$work/flipped"
bad 'cannot open' --epochs 1 --checkpoint "$work/absent/state" --quiet
bad 'cannot open' --html "$work/absent/page"
bad 'Is a directory' --html "$work"
bad 'cannot write /dev/full' --epochs 1 --checkpoint /dev/full --quiet
bad 'the value is empty' --checkpoint ''
bad 'name the same file' --checkpoint "$work/one" --html "$work/one"
bad 'name the same file' --resume "$state" --html "$state"
bad '--seed' --seed -5
bad 'is not a checkpoint' --resume /dev/zero
bad "cannot read $work" --resume "$work"

# Checkpoints go through links and into what is no regular file; nothing else is left behind.
mkdir "$work/links"
ln -s state "$work/links/link"
weights --epochs 1 --checkpoint "$work/links/link" >/dev/null
[ -L "$work/links/link" ] || complain 'a link was replaced by a checkpoint'
[ -n "$(weights --resume "$work/links/link")" ] || complain 'a checkpoint behind a link'
[ "$(weights --epochs 1 --checkpoint /dev/null --html /dev/null)" = "$(weights --epochs 1)" ] ||
    complain '--checkpoint /dev/null'
[ -c /dev/null ] || complain '/dev/null was replaced'
(ulimit -f 4; trap '' XFSZ; exec "$convgrad" train --epochs 2 --quiet --checkpoint "$work/links/link") \
    >/dev/null 2>"$work/err" && complain 'a checkpoint that does not fit'
grep -q 'cannot write' "$work/err" || complain "a checkpoint that does not fit: $(cat "$work/err")"
[ "$(cd "$work/links" && echo *)" = 'link state' ] || complain "left behind: $(ls "$work/links")"
[ -n "$(weights --resume "$work/links/link")" ] || complain 'the old checkpoint is gone'

# IDX files: 64 random images of 12×12 pixels.
mkdir "$work/idx"
header() { printf '\x00\x00\x08'; printf "$1"; }
for part in train t10k; do
    { header '\x03\x00\x00\x00\x40\x00\x00\x00\x0c\x00\x00\x00\x0c'; head -c 9216 /dev/urandom; } \
        >"$work/idx/$part-images-idx3-ubyte"
    { header '\x01\x00\x00\x00\x40'; for _ in $(seq 16); do printf '\x00\x01\x02\x03'; done; } \
        >"$work/idx/$part-labels-idx1-ubyte"
done
"$convgrad" train --data "$work/idx" --epochs 1 >"$work/out" 2>&1 || complain "IDX files: $(cat "$work/out")"
grep -q '64 training and 64 test images of 12×12' "$work/out" || complain 'IDX files: sizes'
"$convgrad" train --data "$work/idx" --epochs 1 --model autoencoder -q >"$work/out" 2>&1 ||
    complain "IDX files, autoencoder: $(cat "$work/out")"
bad 'made with other data' --resume "$state" --data "$work/idx"
bad 'less than one batch' --data "$work/idx" --mb 65
printf 'x' >>"$work/idx/t10k-images-idx3-ubyte"
bad 'announces 9216 values but holds 9217' --data "$work/idx"
mv "$work/idx/t10k-images-idx3-ubyte" "$work/idx/t10k-images-idx3-ubyte.gz"
bad 'unpack it with gunzip' --data "$work/idx"
rm "$work/idx/t10k-images-idx3-ubyte.gz"
bad 't10k-images-idx3-ubyte is missing' --data "$work/idx"

# In a pipe: no progress line, no colours. The table by op has all six ops.
"$convgrad" train --model autoencoder --epochs 1 >"$work/out" 2>"$work/err"
[ ! -s "$work/err" ] || complain 'progress in a pipe'
! grep -q $'\033' "$work/out" || complain 'colours in a pipe'
for op in Convolution ConvolutionBackwardData ConvolutionBackwardWeights ConvTranspose \
    ConvTransposeBackwardData ConvTransposeBackwardWeights; do
    grep -q "^$op " "$work/out" || complain "no time of $op"
done

[ $failures -eq 0 ] && echo 'all passed'
exit $((failures > 0))
