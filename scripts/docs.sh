#!/bin/sh
# Builds the site of the documents into build/site, with the generator in build/docs-venv, which is set up
# on first use and kept. Any warning (a link or an anchor that leads nowhere) is a failure.
set -eu
cd "$(dirname "$0")/.."
venv=build/docs-venv
site=docs/site
mkdir -p build
if ! cmp -s "$site/pins.txt" "$venv/installed.txt"; then
    echo "setting up $venv"
    python3 -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --requirement "$site/requirements.txt" --constraint "$site/pins.txt" || {
        echo "cannot install what $site/requirements.txt asks for; is the package index reachable?" >&2
        exit 1
    }
    cp "$site/pins.txt" "$venv/installed.txt"
fi
python3 scripts/site.py build/site-pages
# Not --quiet: warnings would not count then.
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --strict --config-file build/mkdocs.yml
echo "The site is in build/site; python3 -m http.server -d build/site shows it, with search."
