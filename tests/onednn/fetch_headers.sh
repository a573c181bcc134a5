#!/bin/sh
# Puts oneDNN's public headers into DIR/include, from the Python package that carries them. Done once
# and kept. Usage: fetch_headers.sh DIR
set -eu
dir=$1
package=onednn-devel==2026.1.0

mkdir -p "$(dirname "$dir")"
exec 9>"$dir.lock"
flock 9
[ "$(cat "$dir/package.txt" 2>/dev/null)" = "$package" ] && exit 0
rm -rf "$dir"
python3 -m venv "$dir/venv" || {
    echo "onednn: python3 -m venv failed; install python3-venv" >&2
    exit 1
}
"$dir/venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps \
    --dest "$dir/wheel" "$package" || {
    echo "onednn: cannot download $package; is the package index reachable?" >&2
    exit 1
}
python3 -m zipfile -e "$dir"/wheel/*.whl "$dir/content"
mv "$dir"/content/*.data/data/include "$dir/include"
rm -rf "$dir/venv" "$dir/wheel" "$dir/content"
echo "$package" >"$dir/package.txt"
