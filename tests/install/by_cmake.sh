#!/bin/sh
# Builds consumer/ with find_package(convgrad), from a moved copy of the installed tree: no path of
# the build may be baked in.
set -eu
rm -rf "$WORK/moved" "$WORK/by_cmake"
cp -a "$PREFIX" "$WORK/moved"
"$CMAKE" -S consumer -B "$WORK/by_cmake" -DCMAKE_CXX_COMPILER="$CXX" \
    -DCMAKE_PREFIX_PATH="$WORK/moved" -DCMAKE_BUILD_TYPE=Release
"$CMAKE" --build "$WORK/by_cmake"
"$WORK/by_cmake/consumer" "$VERSION"
"$WORK/moved/bin/convgrad" --version
