#!/bin/sh
# Installs the package into a Python environment, which is set up on first use and kept, and runs its
# tests. Usage: run.sh VENV REQUIREMENTS OBJECT_LIST TESTS...
# OBJECT_LIST names a file with the library's object files, so that they are not compiled again; an
# empty word: `pip install .` as users do it.
# CONVGRAD_REQUIRE_GPU=1: the package has the CUDA engine, and tests that need a GPU fail without one.
# CONVGRAD_KEEP_VENV=1: VENV has been set up by somebody else, and gets nothing but the package.
set -eu
venv=$(realpath -m "$1")
requirements=$(realpath "$2")
objects=$3
shift 3
root=$(cd "$(dirname "$0")/../.." && pwd)
# Named either way: the build folder is kept, and remembers.
cuda=AUTO
[ -z "${CONVGRAD_REQUIRE_GPU:-}" ] || cuda=ON

mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock 9
if [ -z "${CONVGRAD_KEEP_VENV:-}" ] && ! cmp -s "$requirements" "$venv/installed.txt"; then
    echo "setting up $venv"
    python3 -m venv --clear "$venv" || {
        echo "python3 -m venv failed; install python3-venv" >&2
        exit 1
    }
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --requirement "$requirements" || {
        echo "cannot install $requirements; is the package index reachable?" >&2
        exit 1
    }
    cp "$requirements" "$venv/installed.txt"
fi

cd "$root"
rm -rf "$venv/wheel"
"$venv/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
    --wheel-dir "$venv/wheel" --config-settings=build-dir="$venv/build" \
    --config-settings=cmake.define.CONVGRAD_OBJECT_LIST="$objects" \
    --config-settings=cmake.define.CONVGRAD_CUDA="$cuda" .
CONVGRAD_WHEEL=$(echo "$venv"/wheel/*.whl)
export CONVGRAD_WHEEL
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall \
    "$CONVGRAD_WHEEL"
"$venv/bin/python" -m pytest "$@"
