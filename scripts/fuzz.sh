#!/bin/sh
# Builds the fuzzers (Clang, address and undefined-behaviour sanitizers) and runs them, JOBS at a
# time, each for FUZZ_SECONDS; one line each at the end. Inputs that broke something are kept in
# build/fuzz/finds, and make the exit status 1.
# Environment: FUZZ_SECONDS, FUZZ_TARGETS (list of words), JOBS. FUZZ_MERGE=1: afterwards, put what
# covers more than the corpus in the tree into it.
set -eu
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-3600}
targets=${FUZZ_TARGETS:-graph eager text onednn files differential python}
jobs=${JOBS:-$(nproc)}
build=$PWD/build/fuzz

command -v clang++ >/dev/null || {
    echo "fuzzing needs clang++, please install it (Debian: clang)" >&2
    exit 1
}
mkdir -p "$build/finds" "$build/logs" "$build/tmp"
export TMPDIR="$build/tmp"
export ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=0
export UBSAN_OPTIONS=print_stacktrace=1

# The Python package around the same objects; its fuzzer brings libFuzzer along.
prepare_python() {
    venv=$build/venv
    requirements=tests/fuzz/python/requirements.txt
    if ! cmp -s "$requirements" "$venv/installed.txt"; then
        python3 -m venv --clear "$venv"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
        cp "$requirements" "$venv/installed.txt"
    fi
    CC=clang CXX=clang++ "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --no-build-isolation --no-deps --force-reinstall \
        --config-settings=build-dir="$build/python" \
        --config-settings=cmake.build-type=RelWithDebInfo \
        --config-settings=cmake.define.CONVGRAD_SANITIZE=address,undefined,fuzzer-no-link \
        --config-settings=cmake.define.CONVGRAD_OBJECT_LIST="$build/tests/fuzz/objects.txt" .
    clang -shared -fPIC -o "$build/lib/types_stub.so" tests/fuzz/python/types_stub.c
}

# start TARGET LIBFUZZER_OPTION...
start() {
    name=$1
    shift
    if [ "$name" = python ]; then
        site=$("$build/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        # Python itself leaks, and its threads outlive it.
        LD_PRELOAD="$site/asan_with_fuzzer.so $build/lib/types_stub.so" PYTHONMALLOC=malloc \
            ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" \
            "$build/venv/bin/python" tests/fuzz/python/fuzz.py "$@"
    else
        "$build/bin/fuzz_$name" "$@"
    fi
}

# Runs one target to the end. After a find the rest of the time is spent with the next seed.
run_target() {
    target=$1
    log=$build/logs/$target.log
    mkdir -p "$build/corpus/$target"
    kept=$build/kept/$target
    rm -rf "$kept"
    scripts/corpus.sh unpack "$target" "$kept"
    : >"$log"
    end=$(($(date +%s) + seconds))
    seed=1
    while left=$((end - $(date +%s))) && [ "$left" -gt 0 ]; do
        dictionary=tests/fuzz/$target.dict
        [ -f "$dictionary" ] && set -- "-dict=$dictionary" || set --
        start "$target" -max_total_time="$left" -seed="$seed" -timeout=600 -rss_limit_mb=2560 \
            -report_slow_units=600 -max_len=1024 -len_control=20 -print_final_stats=1 \
            -artifact_prefix="$build/finds/$target-" "$@" \
            "$build/corpus/$target" "$kept" >>"$log" 2>&1 || true
        seed=$((seed + 1))
        sleep 1
    done
    executions=$(awk '/stat::number_of_executed_units/ {n += $2} END {print n + 0}' "$log")
    coverage=$(grep -o 'cov: [0-9]*' "$log" | tail -1)
    features=$(grep -o 'ft: [0-9]*' "$log" | tail -1)
    finds=$(find "$build/finds" -name "$target-*" | wc -l)
    printf '%-12s %6d s  %10d executions  edges %s  features %s  finds %d\n' "$target" "$seconds" \
        "$executions" "${coverage#cov: }" "${features#ft: }" "$finds"
    [ -n "${FUZZ_MERGE:-}" ] || return 0
    start "$target" -merge=1 -max_len=1024 -timeout=60 "$kept" "$build/corpus/$target" >>"$log" 2>&1
    scripts/corpus.sh pack "$target" "$kept"
}

if [ $# -eq 2 ] && [ "$1" = --target ]; then
    run_target "$2"
    exit 0
fi
cmake --preset fuzz -Wno-dev >/dev/null
cmake --build --preset fuzz --target fuzzers -j "$jobs"
case " $targets " in *" python "*) prepare_python ;; esac
echo "fuzzing for $seconds seconds each: $targets"
# shellcheck disable=SC2086  # a list of words
printf '%s\n' $targets | xargs -P "$jobs" -I{} "$0" --target {}
rm -rf "$build/tmp"
finds=$(find "$build/finds" -type f | wc -l)
[ "$finds" -eq 0 ] || {
    echo "$finds finds in $build/finds; build/fuzz/bin/fuzz_<target>_replay FILE repeats one" >&2
    exit 1
}
