#!/bin/sh
# Builds the wheel that can be handed on, in build/wheel: tagged with the oldest system that it runs on,
# and tried in a fresh environment that sees no compiler. Usage: wheel.sh [DIR]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
out=$(realpath -m "${1:-$root/build/wheel}")
tools=$root/build/wheel-tools
requirements=$root/python/tests/requirements-wheel.txt

if ! cmp -s "$requirements" "$tools/installed.txt"; then
    python3 -m venv --clear "$tools"
    "$tools/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$requirements"
    cp "$requirements" "$tools/installed.txt"
fi

rm -rf "$out"
mkdir -p "$out/raw"
cd "$root"
"$tools/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$out/raw" .
PATH="$tools/bin:$PATH" "$tools/bin/auditwheel" repair --wheel-dir "$out" "$out"/raw/*.whl
rm -r "$out/raw"

# A fresh environment whose PATH has nothing but Python: what pip cannot install as it is, fails.
clean=$root/build/wheel-clean
python3 -m venv --clear "$clean"
bare() { env -i PATH="$clean/bin" HOME="$clean" "$@"; }
for wheel in "$out"/*.whl; do
    bare "$clean/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "$wheel[bf16]"
    for isa in portable avx2 avx512 avx512_bf16 amx_bf16; do
        bare CONVGRAD_MAX_ISA=$isa "$clean/bin/python" "$root/python/tests/smoke.py" "$clean"
    done
    for i in 1 2 3 4 5; do
        bare "$clean/bin/python" -X importtime -c 'import convgrad' 2>&1 | tail -n 1
    done | sort -t'|' -k2 -n | head -n 1 | awk -F'|' '{printf "import convgrad: %.0f ms\n", $2 / 1000}'
    echo "$wheel: $(($(wc -c <"$wheel") / 1024)) KiB"
done
