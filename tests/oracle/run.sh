#!/bin/sh
# The outside oracle: JAX draws problems and computes them, oracle_check compares.
# Usage: run.sh VENV CHECKER WORK_DIR. The environment is set up on first use and kept.
set -eu
venv=$1
checker=$2
work=$3
here=$(cd "$(dirname "$0")" && pwd)

mkdir -p "$(dirname "$venv")" "$work"
exec 9>"$venv.lock"
flock 9
if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
    echo "setting up $venv"
    python3 -m venv --clear "$venv" || {
        echo "oracle: python3 -m venv failed; install python3-venv" >&2
        exit 1
    }
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --requirement "$here/requirements.txt" || {
        echo "oracle: cannot install JAX (see requirements.txt); is the package index reachable?" >&2
        exit 1
    }
    cp "$here/requirements.txt" "$venv/installed.txt"
fi
flock -u 9

JAX_PLATFORMS=cpu "$venv/bin/python" "$here/draw.py" "$work"
"$checker" "$work"
