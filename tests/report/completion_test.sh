#!/usr/bin/env bash
# Completion in a real bash, and the manual page in troff: completion_test.sh PATH_OF_CONVGRAD
set -u
convgrad=$1
failures=0
complain() {
    printf 'FAILED: %s\n' "$1"
    failures=$((failures + 1))
}
# shellcheck disable=SC1090  # made by the command
source <("$convgrad" completion bash) || complain 'the script is no bash'

# complete_words EXPECTED WORD...: what is proposed for the last word.
complete_words() {
    local expected=$1
    shift
    COMP_WORDS=(convgrad "$@")
    COMP_CWORD=$#
    COMPREPLY=()
    _convgrad 2>/dev/null
    [ "${COMPREPLY[*]}" = "$expected" ] || complain "convgrad $*: '${COMPREPLY[*]}', not '$expected'"
}
complete_words 'verify' ver
complete_words 'train' tr
complete_words '--data-format' bench --data-
complete_words '--data --dtype' train --d
complete_words 'ConvTransposeBackwardWeights' verify --op ConvTransposeBackwardW
complete_words 'f32,bf16' verify --dtype f32,b
complete_words 'bf16' verify --dtype = b
complete_words 'all' bench --isa al
complete_words '' train --isa al
complete_words 'autoencoder' train --model a
complete_words 'ConvolutionBackwardData' explain ConvolutionBackwardD
complete_words 'bash' completion b
cd "$(mktemp -d)" || exit 1
mkdir digits && touch dots
complete_words 'digits' train --data d
complete_words 'digits dots' train --html d

# Every subcommand and every long option that --help shows is on the page.
page=$("$convgrad" man)
for subcommand in verify bench explain ops info train completion man; do
    grep -q "^.SS convgrad $subcommand\$" <<<"$page" || complain "the manual lacks $subcommand"
    for option in $("$convgrad" "$subcommand" --help | grep -oE -- '^  (-[a-z],)?--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
        grep -qF -- "${option//-/\\-}" <<<"$page" || complain "the manual lacks $option of $subcommand"
    done
done
for title in NAME SYNOPSIS 'EXIT STATUS' ENVIRONMENT; do
    grep -q "^.SH $title\$" <<<"$page" || complain "the manual lacks the section $title"
done
if command -v groff >/dev/null; then
    warnings=$(groff -man -Tutf8 -ww <<<"$page" 2>&1 >/dev/null)
    [ -z "$warnings" ] || complain "troff says: $warnings"
fi

# Misspelt options get a proposal.
"$convgrad" verify --dytpe f32 2>&1 | grep -q 'did you mean --dtype?' || complain 'no proposal for an option'

[ $failures -eq 0 ] && echo 'all passed'
exit $((failures > 0))
