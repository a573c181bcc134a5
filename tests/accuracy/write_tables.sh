#!/bin/sh
# write_tables.sh PROGRAM PAGE [PYTHON]: measures and writes the tables of docs/accuracy.md. PYTHON
# (build/torch-venv's, or the system's) adds PyTorch's errors if it has PyTorch.
set -eu
program=$1
page=$2
python=${3:-build/torch-venv/bin/python}
[ -x "$python" ] || python=python3

if ! "$python" -c 'import numpy, torch' 2>/dev/null; then
    echo "no PyTorch ($python): the tables go without it"
    exec "$program" --write "$page"
fi
exchange=$(mktemp -d)
trap 'rm -rf "$exchange"' EXIT
"$program" --export "$exchange"
"$python" "$(dirname "$0")/torch_results.py" "$exchange"
"$program" --import "$exchange" --write "$page"
