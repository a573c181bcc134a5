#!/bin/sh
# Formats all C++ files that git knows; with --check only tells which ones differ.
set -eu
cd "$(dirname "$0")/.."
command -v clang-format >/dev/null || { echo "please install clang-format" >&2; exit 1; }
mode=-i
[ "${1:-}" = --check ] && mode="--dry-run --Werror"
# shellcheck disable=SC2086  # two words
git ls-files '*.cpp' '*.hpp' '*.inl' | xargs clang-format $mode
