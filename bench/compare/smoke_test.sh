#!/usr/bin/env bash
# Shows that the comparison runs, that results agree, and what it writes. No times are judged.
#   smoke_test.sh PATH_OF_CONVGRAD_COMPARE
set -eu
compare=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() {
    echo "FAILED: $1" >&2
    exit 1
}

problems=('mb2ic16ih9oc24kh3ph1n"dense"' 'g4mb2ic16ih9oc8kh3sh2ph1n"grouped"' mb2ic8iw20oc12kw3pw1)
fast=(--seconds 0.01 --rounds 2 --threads 1 --quiet)
"$compare" "${problems[@]}" "${fast[@]}" --dtype f32,bf16 --data-format all --weights-format all \
    --json >"$work/lines"
[ "$(wc -l <"$work/lines")" -eq 72 ] || say "not one line per case"
grep -q '"agrees":false' "$work/lines" && say "results differ"
"$compare" --deconv 'mb2ic16ih5oc8oh10kh3sh2ph1n"output_padding"' "${fast[@]}" --resume "$work/known" \
    >"$work/table"
grep -q 'geometric mean' "$work/table" || say "no summary"
[ "$(wc -l <"$work/known")" -eq 3 ] || say "results were not kept"
"$compare" --deconv 'mb2ic16ih5oc8oh10kh3sh2ph1n"output_padding"' "${fast[@]}" --resume "$work/known" \
    --markdown >"$work/markdown"
grep -q '^| output_padding |' "$work/markdown" || say "no Markdown"
[ "$(wc -l <"$work/known")" -eq 3 ] || say "results were measured again"
status=0
"$compare" --threads 0 mb1ic3ih5oc4kh3 2>/dev/null || status=$?
[ "$status" -eq 2 ] || say "bad arguments: exit status $status"
