#!/usr/bin/env bash
# Runs the command the way users do: exit status, what goes to stdout and what to stderr.
#   command_test.sh PATH_OF_CONVGRAD
set -u
convgrad=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

complain() {
    printf 'FAILED: %s\n' "$1"
    sed 's/^/  out: /' "$work/out"
    sed 's/^/  err: /' "$work/err"
    failures=$((failures + 1))
}

# run STATUS ARGS...: runs the command and checks its exit status.
run() {
    local expected=$1
    shift
    what="convgrad $*"
    "$convgrad" "$@" >"$work/out" 2>"$work/err" </dev/null
    local status=$?
    [ "$status" -eq "$expected" ] || complain "$what: exit status $status, not $expected"
}
out_has() { grep -qF -- "$1" "$work/out" || complain "$what: stdout lacks '$1'"; }
out_lacks() { ! grep -qF -- "$1" "$work/out" || complain "$what: stdout has '$1'"; }
err_has() { grep -qF -- "$1" "$work/err" || complain "$what: stderr lacks '$1'"; }
err_lacks() { ! grep -qF -- "$1" "$work/err" || complain "$what: stderr has '$1'"; }
err_is_empty() { [ ! -s "$work/err" ] || complain "$what: stderr is not empty"; }
out_is_empty() { [ ! -s "$work/out" ] || complain "$what: stdout is not empty"; }
last_line_is() { [ "$(tail -n 1 "$work/out")" = "$1" ] || complain "$what: last line is not '$1'"; }

# Help and version.
run 0 --help
out_has 'Exit status:'
out_has 'verify'
run 0 --version
grep -qE '^[0-9]+\.[0-9]+\.[0-9]+$' "$work/out" || complain 'the version is no version'
for subcommand in verify bench explain ops info; do
    run 0 "$subcommand" --help
    out_has 'convgrad '"$subcommand"
    out_has 'Example'
    err_is_empty
done

# Bad arguments: status 2, a message on stderr, nothing on stdout.
bad() {
    local message=$1
    shift
    run 2 "$@"
    out_is_empty
    err_has "$message"
}
bad 'subcommand'
bad 'expected verify, bench, explain, ops, info' nonsense
bad 'did you mean verify' verfy
bad '--nonsense' verify --nonsense
bad 'did you mean ConvolutionBackwardData' ops ConvolutonBackwardData
bad 'did you mean ConvolutionBackwardWeights' verify --op ConvolutionBackwardWeight ic3ih5oc4kh3
bad 'did you mean bf16' verify --dtype bf61 ic3ih5oc4kh3
bad 'expected NXC, NCX' verify --data-format NHWC ic3ih5oc4kh3
bad 'takes XOI or IOX' verify --deconv --weights-format OIX ic3ih5oc4kh3
bad 'transposed' verify --deconv --op Convolution ic3ih5oc4kh3
bad '--threads 0' verify --threads 0 ic3ih5oc4kh3
bad 'expected cpu, cuda or cuda:N' verify --engine gpu ic3ih5oc4kh3
bad 'expected cpu, cuda or cuda:N' bench --engine cuda:x ic3ih5oc4kh3
bad 'expected cpu, cuda or cuda:N' explain Convolution --engine cuda:-1 ic3ih5oc4kh3
bad 'expected cpu, cuda or cuda:N' explain Convolution --engine cpu+cudnn ic3ih5oc4kh3
bad 'are for the CPU, which --engine does not name' verify --engine cuda --threads 2 ic3ih5oc4kh3
# Without a GPU an engine on it is refused before anything runs.
if "$convgrad" info | grep -q '^engine cuda .*none'; then
    bad '--engine cuda:0: engine: kind is cuda, but' verify --engine cpu,cuda ic3ih5oc4kh3
    bad '--engine cuda:0: engine: kind is cuda, but' bench --engine cpu,cuda ic3ih5oc4kh3
    bad '--engine cuda:0: engine: kind is cuda, but' bench --model --engine cuda ic3ih5oc4kh3
    bad '--engine cuda:0: engine: kind is cuda, but' bench --engine cuda+cudnn ic3ih5oc4kh3
    bad '--engine cuda:7: engine: kind is cuda, but' explain Convolution --engine cpu,cuda:7 ic3ih5oc4kh3
fi
bad '--threads two' verify --threads two ic3ih5oc4kh3
bad '--isa mmx' verify --isa mmx ic3ih5oc4kh3
bad '--math' verify --math exact ic3ih5oc4kh3
bad '--match' verify --match '(' ic3ih5oc4kh3
bad 'lookahead is not supported' verify --match 'ic(?=3)' ic3ih5oc4kh3
bad '--mb' verify --mb -1 ic3ih5oc4kh3
bad "--mb: '0' is not a number from 1 to 9223372036854775807" verify --mb 0 ic3ih5oc4kh3
for seed in x -1 18446744073709551616 1e3 010x '' ' 3'; do
    bad "--seed: '$seed' is not a number from 0 to 18446744073709551615" verify --seed "$seed" ic3ih5oc4kh3
done
for mb in 9223372036854775808 ' 3' 0x3 1.5 3,4; do
    bad "--mb: '$mb' is not a number" verify --mb "$mb" ic3ih5oc4kh3
done
for option in --op --dtype --data-format --weights-format --threads --isa --math --match --batch; do
    bad "$option" verify "$option" '' ic3ih5oc4kh3
done
bad '--op needs a value' verify --op , ic3ih5oc4kh3
bad 'did you mean' verify --op all,Convoluton ic3ih5oc4kh3
bad '--isa foo: expected' verify --isa all,foo ic3ih5oc4kh3
bad 'is larger than 64 MiB' verify --batch /dev/zero

# What is quoted in messages does not act on the terminal.
for argument in $'\033[31mx' $'x\a' $'\177'; do
    bad '?' "$argument"
    bad '?' verify "$argument"
    bad '?' verify "--$argument"
    bad '?' verify --op "$argument"
    bad '?' verify --mb "$argument"
    bad '?' verify --batch "$argument"
    ! grep -q $'[\001-\010\013-\037\177]' "$work/err" || complain "$what: a control character"
done
run 0 verify $'ic3ih5oc4kh3n"a\033b"' --op Convolution --seed 010
out_lacks $'\033'
bad 'position 4' verify ic3xh5oc4kh3
bad "cannot read batch file '$work/absent'" verify --batch "$work/absent"
long=$(printf 'x%.0s' $(seq 1 5000))  # longer than any file name
bad "cannot read batch file 'xxx" verify --batch "$long"
printf 'ic3ih5oc4kh3\n# comment\nic3ih5oc4kz3\n' >"$work/wrong"
bad "$work/wrong:3" verify --batch "$work/wrong"
printf -- '--batch=wrong2\n' >"$work/wrong2"
bad 'include itself' verify --batch "$work/wrong2"

# ops and info.
run 0 ops
for op in Convolution ConvolutionBackwardData ConvolutionBackwardWeights ConvTranspose \
    ConvTransposeBackwardData ConvTransposeBackwardWeights; do
    out_has "$op"
done
run 0 ops ConvolutionBackpropWeights-1
out_has 'ConvolutionBackwardWeights'
out_has 'weights_shape'
out_has 'auto_pad'
for op in Convolution ConvolutionBackwardData ConvolutionBackwardWeights ConvTranspose \
    ConvTransposeBackwardData ConvTransposeBackwardWeights; do
    run 0 ops "$op"
    out_has 'Output shape'
    out_has 'E = dilation*(kernel - 1) + 1'
    out_has '- same_upper, same_lower: total = max(0, '  # what "see below" promises
    out_has 'same_lower puts the larger half at the beginning.'
    out_lacks '`'
done
run 0 ops Convolution
out_has 'floor((L + pads_begin + pads_end - E) / stride) + 1'
run 0 info
out_has 'engine cuda'
out_has 'instruction sets found'
out_has 'threads'
out_has 'algorithms'

# verify.
run 0 verify ic3ih5oc4kh3
last_line_is '3 passed, 0 failed'
out_has 'ConvolutionBackwardWeights'
out_lacks $'\033'
err_is_empty
run 0 verify ic3ih5oc4kh3 --quiet
[ "$(wc -l <"$work/out")" -eq 1 ] || complain "$what: more than the closing line"
last_line_is '3 passed, 0 failed'
run 0 verify ic3ih5oc4kh3 --deconv
last_line_is '3 passed, 0 failed'
out_has 'ConvTransposeBackwardWeights'
run 0 verify ic3ih5oc4kh3 --op all --dtype f32,bf16,f16 --data-format NXC,NCX --weights-format all \
    --threads 1,2 --isa portable
last_line_is '156 passed, 0 failed'
run 0 verify --op ConvolutionBackpropWeights-1,convtranspose ic3ih5oc4kh3 --math strict,fast --seed 7
last_line_is '4 passed, 0 failed'
run 0 verify ic3ih5oc4kh3 --exhaustive --isa all --op Convolution
grep -qE '^[1-5] passed, 0 failed$' "$work/out" || complain "$what: closing line"
run 0 verify mb0ic3ih5oc4kh3 ic0ih5oc4kh3 ic4ih5oc0kh3 --dtype all --deconv
last_line_is '27 passed, 0 failed'

# A problem that needs more memory than any machine has is skipped, and said so.
# If all is skipped, nothing was checked, which is success only if that was asked for.
run 1 verify mb1000000000ic3000ih500oc4kh3 --op Convolution
last_line_is '0 passed, 0 failed, 1 skipped'
err_has 'nothing was checked: all was skipped'
run 0 verify mb1000000000ic3000ih500oc4kh3 --op Convolution --allow-empty
last_line_is '0 passed, 0 failed, 1 skipped'
err_is_empty
run 0 verify mb1000000000ic3000ih500oc4kh3 ic3ih5oc4kh3 --op Convolution
last_line_is '1 passed, 0 failed, 1 skipped'

# Batch files.
printf '# two problems\nic3ih5oc4kh3 n"x*2"\n' >"$work/spaced"
run 2 verify --batch "$work/spaced"
printf '# two problems\nic3ih5oc4kh3n"x*2" # one\n\nmb1_ic4iw7_oc6_kw3pw1\n' >"$work/plain"
run 0 verify --batch "$work/plain"
last_line_is '6 passed, 0 failed'
run 0 verify --batch "$work/plain" ic3ih5oc4kh3 --op Convolution
last_line_is '3 passed, 0 failed'
run 0 verify --batch "$work/plain" "$work/plain" --op Convolution
last_line_is '4 passed, 0 failed'
run 0 verify --batch="$work/plain" --match 'x\*2' --mb 3
last_line_is '3 passed, 0 failed'
printf -- '--reset --stag=axb --dir=BWD_W --dt=bf16,s8:s8:f32\n--batch=plain\n--dt=u8:s8:s8 ic3ih5oc4kh3\n' >"$work/options"
run 0 verify --batch "$work/options"
last_line_is '2 passed, 0 failed'
out_has 'bf16'
err_has '--stag (1)'
err_has 'passed over 1 problem of batch files, whose types (--dt=u8:s8:s8)'
run 0 verify --batch "$work/options" --op Convolution --dtype f32 --quiet
last_line_is '3 passed, 0 failed'
err_is_empty
printf '' >"$work/empty"
run 1 verify --batch "$work/empty"
last_line_is '0 passed, 0 failed'
err_has "nothing was checked: no problem to be run is in $work/empty"
run 0 verify --batch "$work/empty" --allow-empty
last_line_is '0 passed, 0 failed'
err_is_empty
run 1 verify --match mistyped
last_line_is '0 passed, 0 failed'
err_has 'no problem matches --match mistyped (--allow-empty'
run 1 bench --match mistyped
err_has 'nothing was measured'
run 1 bench --match mistyped --plan
run 1 bench --match mistyped --scan
run 0 bench --match mistyped --allow-empty --json
out_is_empty
run 1 explain Convolution --batch "$work/empty"
err_has 'nothing was explained'
printf -- '--dt=bf16:bf16:f32\nic3ih5oc4kh3\nic3ih6oc4kh3\n' >"$work/mixed"
run 1 verify --batch "$work/mixed"
err_has 'passed over 2 problems of batch files, whose types (--dt=bf16:bf16:f32) are not'
err_has 'for all tensors alike'

# The embedded set, cut down to one type and layout.
run 0 verify --dtype f32 --data-format NXC --weights-format XIO,XOI
grep -qE '^[0-9]+ passed, 0 failed$' "$work/out" || complain "$what: closing line"
out_has 'ConvTransposeBackwardData'

# bench: a table, or exactly these keys in this order.
run 0 bench mb1ic8ih9oc8kh3 --dtype all --seconds 0.01
out_has 'roofline'
out_has 'Peaks measured in this run'
run 0 bench mb1ic8ih9oc8kh3 --seconds 0.01 --quiet --cold --threads 1 --isa portable --math strict
[ "$(wc -l <"$work/out")" -eq 5 ] || complain "$what: not a title, a rule and three results"
err_is_empty
# Several engines are shown side by side, one is not.
out_lacks 'side by side'
run 0 bench mb1ic8ih9oc8kh3 --seconds 0.01 --quiet --threads 1,2 --isa portable
for part in 'Engines side by side' 'cpu (portable, 1 thread) ms' 'cpu (portable, 2 threads) ms' 'of 3 cases'; do
    out_has "$part"
done
run 0 bench 'mb1ic8ih9oc8kh3n"a\b*2"' --deconv --seconds 0.01 --json
[ "$(wc -l <"$work/out")" -eq 3 ] || complain "$what: not one line per case"
keys=$(head -n 1 "$work/out" | grep -oE '"[a-z_]+": ' | tr -d '": \n')
expected='opdtypedata_formatweights_formatproblemnameenginemathisaalgorithmthreadsmin_msmedian_msgflopsroofline'
[ "$keys" = "$expected" ] || complain "$what: keys are $keys"
out_has '"problem": "mb1ic8ih9oc8oh11kh3", "name": "a\\b*2"'
out_has '"op": "ConvTransposeBackwardWeights", "dtype": "f32", "data_format": "NXC", "weights_format": "XOI"'
err_is_empty
run 0 bench mb1ic8ih9oc8kh3 --plan --dtype all --data-format all
out_has '18 plans; the slowest takes'
# --model: every algorithm with its prediction, one of them chosen.
run 0 bench mb1ic8ih9oc8kh3 --model --threads 1 --seconds 0.001
for part in 'predicted ms' 'tiled.fma' 'chosen' '3 cases: the choice is within 5 %'; do out_has "$part"; done
run 0 bench mb1ic8ih9oc8kh3 --model --json --quiet --threads 1 --seconds 0.001
[ "$(grep -c '"regret": [0-9.]*, "rows": \[{"algorithm": "' "$work/out")" -eq 3 ] || complain "$what: three lines"
bad '--model' bench mb1ic8ih9oc8kh3 --model --plan
run 0 bench mb1ic8ih9oc8kh3 --plan --json --quiet
[ "$(grep -c '"plan_us": ' "$work/out")" -eq 3 ] || complain "$what: not one line per case"
run 0 bench --scan=2 --threads 1
out_has '18 points, '
run 0 bench --scan=2 mb2ic16ih14oc16kh3ph1 --seed 3 --dtype f32 --threads 1 --json
[ "$(grep -c '"neighbours": .*"flagged": ' "$work/out")" -eq 6 ] || complain "$what: not one line per case"
mv "$work/out" "$work/before"
run 0 bench --scan=2 mb2ic16ih14oc16kh3ph1 --seed 3 --dtype f32 --threads 1 --json
[ "$(grep -oE '"problem": "[^"]+"' "$work/out")" = "$(grep -oE '"problem": "[^"]+"' "$work/before")" ] ||
    complain "$what: other problems with the same seed"
bad '--scan' bench --scan=x
bad "--scan: '0' is not a number from 1 to" bench --scan=0
bad '--scan' bench --scan=-3
bad '--html' bench --scan=2 --html "$work/page"
bad '--html' bench --plan --html "$work/page"
bad '--cold' bench --plan --cold
bad '--seconds' bench --plan --seconds 1
bad '--scan' bench --seed 3 ic3ih5oc4kh3
run 0 bench --scan=1 mb0ic3ih5oc4kh3 --op Convolution --dtype f32  # ends, although the batch is empty
run 1 bench mb1000000000ic3000ih500oc4kh3 --op Convolution
err_has 'needs'
for seconds in -1 nan -nan inf 3601 1e400 x; do
    bad "--seconds: '$seconds' is not a number from 0 to 3600" bench --seconds "$seconds" ic3ih5oc4kh3
done
bad 'position 4' bench ic3xh5oc4kh3

# explain.
run 0 explain ConvolutionBackwardWeights mb2ic16ih9oc16kh3ph1
for part in algorithm accuracy predicted blocks workspace limit 'other algorithms' 'why not' 'times as long'; do out_has "$part"; done
run 0 explain ConvTranspose,ConvTransposeBackwardData mb2ic16ih9oc16kh3 --dtype bf16 --isa portable --threads 1
out_has 'ConvTransposeBackwardData bf16 NXC XOI'
bad 'OP' explain
bad 'needs a problem' explain Convolution
bad 'did you mean Convolution' explain Convolutoin mb2ic16ih9oc16kh3

# Results that are lost are an error, whatever the subcommand.
small='ic3ih5oc4kh3 --op Convolution --threads 1'
while read -r arguments; do
    for sink in full closed; do
        what="convgrad $arguments, stdout $sink"
        : >"$work/out"
        # shellcheck disable=SC2086
        if [ $sink = full ]; then
            "$convgrad" $arguments >/dev/full 2>"$work/err"
        else
            "$convgrad" $arguments >&- 2>"$work/err"
        fi
        status=$?
        [ $status -eq 2 ] || complain "$what: exit status $status, not 2"
        err_has 'cannot write to stdout'
    done
done <<END
--help
--version
verify --help
verify $small
verify $small --quiet
bench $small --seconds 0.01
bench $small --seconds 0.01 --json
bench $small --plan
bench $small --plan --json
bench --scan=1 $small --dtype f32
bench --scan=1 $small --dtype f32 --json
explain Convolution ic3ih5oc4kh3 --threads 1
explain Convolution ic3ih5oc4kh3 --threads 1 --json
ops
ops Convolution
info
train --epochs 1
train --epochs 1 --quiet
completion bash
man
END
# Without results there is nothing to lose.
what='an error with closed stdout'
"$convgrad" nonsense >&- 2>"$work/err"
[ $? -eq 2 ] || complain "$what"
err_lacks 'cannot write'

# A message that nobody can read changes nothing; no file gets the number of a closed stream.
for arguments in nonsense 'verify --nonsense' 'ops Convoluton' "verify --match mistyped" \
    "bench mb1000000000ic3000ih500oc4kh3 --op Convolution"; do
    # shellcheck disable=SC2086
    "$convgrad" $arguments >"$work/out" 2>"$work/err"
    expected=$?
    for sink in full closed; do
        # shellcheck disable=SC2086
        if [ $sink = full ]; then
            "$convgrad" $arguments >"$work/out" 2>/dev/full
        else
            "$convgrad" $arguments >"$work/out" 2>&-
        fi
        status=$?
        [ $status -eq $expected ] || complain "convgrad $arguments, stderr $sink: exit status $status"
    done
done
"$convgrad" verify ic3ih5oc4kh3 >"$work/out" 2>&- || complain 'verify with closed stderr'
last_line_is '3 passed, 0 failed'
"$convgrad" bench $small --seconds 0.01 --html "$work/page" >&- 2>&-
! grep -q 'Peaks measured' "$work/page" 2>/dev/null || complain 'results in the page instead of stdout'
rm -f "$work/page"

# Pages: links are followed, what is no regular file is written to, failures leave nothing behind.
page() { run 0 bench $small --seconds 0.01 --quiet --html "$1"; }
mkdir "$work/pages"
ln -s target "$work/pages/link"
page "$work/pages/link"
[ -L "$work/pages/link" ] || complain 'a link was replaced'
grep -q '<html' "$work/pages/target" || complain "what a link leads to was not written"
chmod 600 "$work/pages/target"
: >"$work/pages/target"
page "$work/pages/link"
[ -L "$work/pages/link" ] && grep -q '<html' "$work/pages/target" || complain 'a link to a file'
[ "$(stat -c %a "$work/pages/target")" = 600 ] || complain 'other permissions than before'
mkfifo "$work/pages/fifo"
cat "$work/pages/fifo" >"$work/read" &
page "$work/pages/fifo"
wait $!
[ -p "$work/pages/fifo" ] || complain 'a FIFO was replaced'
grep -q '<html' "$work/read" || complain 'nothing came through a FIFO'
page /dev/null
[ -c /dev/null ] || complain '/dev/null was replaced'
"$convgrad" bench $small --seconds 0.01 --quiet --html /dev/stdout >"$work/read" || complain '/dev/stdout'
grep -q 'roofline' "$work/read" && grep -q '<html' "$work/read" || complain '/dev/stdout: not both'
run 2 bench $small --seconds 0.01 --quiet --html /dev/full
err_has 'cannot write /dev/full'
bad 'Is a directory' bench $small --html "$work/pages"
bad 'No such file' bench $small --html "$work/absent/page"
bad 'the value is empty' bench $small --html ''
long=$(printf 'x%.0s' $(seq 1 255))
page "$work/pages/$long"
rm "$work/pages/$long"
(
    ulimit -f 8  # of 1 KiB
    trap '' XFSZ
    exec "$convgrad" bench $small --seconds 0.01 --quiet --html "$work/pages/target"
) >/dev/null 2>"$work/err"
[ $? -eq 2 ] || complain 'a page that does not fit'
err_has 'cannot write'
grep -q '</html>' "$work/pages/target" || complain 'the old page is not whole'
[ "$(cd "$work/pages" && echo *)" = 'fifo link target' ] || complain "left behind: $(ls "$work/pages")"

# Ctrl-C ends the progress line, and the process by its signal.
if command -v script >/dev/null; then
    for signal in INT TERM HUP; do
        : >"$work/typescript"
        script -qfec "env --default-signal=$signal sh -c 'echo \$\$ >\"$work/pid\"; \
            exec \"$convgrad\" bench $small --seconds 600'; echo \"status \$?\"" "$work/typescript" \
            >/dev/null 2>&1 </dev/null &
        shell=$!
        until grep -qF '0/1' "$work/typescript"; do sleep 0.1; done
        kill -"$signal" "$(cat "$work/pid")"
        wait $shell
        status=$((128 + $(kill -l $signal)))
        grep -qF "status $status" "$work/typescript" || complain "SIG$signal: exit status"
        # The line is begun once and erased once.
        [ "$(grep -aoF $'\r\033[K' "$work/typescript" | wc -l)" -eq 2 ] ||
            complain "SIG$signal: the progress line stays"
    done
fi

[ "$failures" -eq 0 ] || exit 1
echo 'all as expected'
