#!/usr/bin/env bash
# Finds or installs a Chromium, then checks the reports in it: run.sh CONVGRAD DIRECTORY
# Exit status 77 (skipped) where there is none and none can be installed.
set -eu
here=$(dirname "$(readlink -f "$0")")
find_browser() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
if ! find_browser >/dev/null; then
    as_root=""
    [ "$(id -u)" -eq 0 ] || as_root="sudo -n"
    export DEBIAN_FRONTEND=noninteractive
    { $as_root apt-get update -qq && $as_root apt-get install -y -qq chromium; } >/dev/null 2>&1 || true
fi
if ! browser=$(find_browser); then
    echo "no Chromium here, and it cannot be installed: skipped" >&2
    exit 77
fi
exec python3 "$here/report_test.py" "$1" "$browser" "$2"
