#!/bin/sh
# Builds and installs everything twice, in places of different names, by different numbers of jobs, in
# different time zones and locales, and compares every byte. Usage: reproducible.sh [DIR]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=${1:-$root/build/reproducible}
rm -rf "$work"

build() { # build PLACE JOBS
    mkdir -p "$work/$1/source"
    (cd "$root" && git ls-files -z | tar --null --files-from=- -cf -) | tar -xf - -C "$work/$1/source"
    cmake -S "$work/$1/source" -B "$work/$1/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
        -DCONVGRAD_BUILD_TESTS=OFF -DCONVGRAD_BUILD_EXAMPLES=OFF -DCMAKE_INSTALL_PREFIX=/usr \
        -Wno-dev >/dev/null
    # A cache would hand out the first build's bytes.
    CCACHE_DISABLE=1 cmake --build "$work/$1/build" -j "$2" >"$work/$1/log" 2>&1 || {
        tail -n 30 "$work/$1/log"
        exit 1
    }
    DESTDIR="$work/$1/installed" cmake --install "$work/$1/build" >/dev/null
}
(export TZ=UTC LC_ALL=C && build one "$(nproc)")
(export TZ=Asia/Tokyo LC_ALL=C.UTF-8 && umask 077 && build a/longer/name 1)

diff -r "$work/one/installed" "$work/a/longer/name/installed" || {
    echo "reproducible: the two builds differ" >&2
    exit 1
}
cd "$work/one/installed"
echo "Two builds, the same bytes in $(find . -type f | wc -l) files:"
find . -type f \( -name '*.so.*' -o -path '*/bin/*' \) -exec sha256sum {} +
