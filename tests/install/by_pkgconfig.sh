#!/bin/sh
# Builds consumer/main.cpp with nothing but a compiler and pkg-config.
set -eu
export PKG_CONFIG_PATH="$PREFIX/$LIBDIR/pkgconfig"
test "$(pkg-config --modversion convgrad)" = "$VERSION"
# shellcheck disable=SC2046  # lists of words
"$CXX" -std=c++20 consumer/main.cpp $(pkg-config --cflags --libs convgrad) -o "$WORK/by_pkgconfig"
LD_LIBRARY_PATH="$PREFIX/$LIBDIR" "$WORK/by_pkgconfig" "$VERSION"
