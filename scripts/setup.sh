#!/bin/sh
# Checks for what the build needs. Missing Debian packages are installed when that is permitted (as
# root or with sudo that asks for no password); otherwise they are named in one line. With the
# argument aarch64 also what `make test-aarch64` needs.
set -eu
also=${1:-}

missing=""
need() { # need PACKAGE PROBE...: PACKAGE is missing if PROBE fails
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
header() { printf '#include <%s>\n' "$1" | g++ -std=c++20 -E -x c++ - ; }

find_missing() {
    missing=""
    need g++ g++ --version
    need clang clang++ --version
    need clang-format clang-format --version
    need cmake cmake --version
    need ninja-build ninja --version
    need pkg-config pkg-config --version
    need python3-venv python3 -c 'import ensurepip, venv'
    need libgtest-dev header gtest/gtest.h
    need libcli11-dev header CLI/CLI.hpp
    need libfmt-dev header fmt/format.h
    need nlohmann-json3-dev header nlohmann/json.hpp
    if [ "$also" = aarch64 ]; then
        need g++-aarch64-linux-gnu aarch64-linux-gnu-g++ --version
        need qemu-user qemu-aarch64 --version
        need googletest test -f /usr/src/googletest/CMakeLists.txt
    fi
}

find_missing
[ -z "$missing" ] && exit 0

as_root=""
if [ "$(id -u)" -ne 0 ]; then
    as_root="sudo -n"
    sudo -n true 2>/dev/null || as_root="no"
fi
if command -v apt-get >/dev/null && [ "$as_root" != no ]; then
    echo "Installing:$missing"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086  # lists of words
    { $as_root apt-get update -qq && $as_root apt-get install -y -qq $missing; } >/dev/null 2>&1 || true
    find_missing
fi
if [ -n "$missing" ]; then
    echo "convgrad needs these packages, please install them:$missing" >&2
    exit 1
fi
