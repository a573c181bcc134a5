#!/bin/sh
# Runs clang-tidy on the library, the command and the examples; takes the build folder.
set -eu
cd "$(dirname "$0")/.."
command -v run-clang-tidy >/dev/null || { echo "please install clang-tidy" >&2; exit 1; }
run-clang-tidy -quiet -p "${1:-build/release}" "^$PWD/(src|cli|examples)/.*\.cpp$"
