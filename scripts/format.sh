#!/bin/sh
# Formats all C++ files that git knows; with --check only tells which ones differ (77: another version
# of clang-format than the one that decides is installed).
set -eu
cd "$(dirname "$0")/.."
command -v clang-format >/dev/null || { echo "please install clang-format" >&2; exit 1; }
deciding=14
mode=-i
if [ "${1:-}" = --check ]; then
    mode="--dry-run --Werror"
    clang-format --version | grep -q "version $deciding\." || {
        echo "clang-format $deciding decides; this is $(clang-format --version)"
        exit 77
    }
fi
# shellcheck disable=SC2086  # two words
git ls-files '*.cpp' '*.hpp' '*.inl' '*.cu' '*.cuh' | xargs clang-format $mode
