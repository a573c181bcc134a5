#!/bin/sh
# The fuzzers' corpora: one archive per target in tests/fuzz/corpus, and beside it, loose in
# corpus/<target>, the finds that have a name.
#   corpus.sh unpack TARGET DIRECTORY   archive and finds, into a directory of its own
#   corpus.sh pack TARGET DIRECTORY     what is there becomes the archive, finds left out
set -eu
cd "$(dirname "$0")/.."
corpus=tests/fuzz/corpus
target=$2
directory=$3
archive=$corpus/$target.tar.gz

case $1 in
unpack)
    mkdir -p "$directory"
    [ ! -f "$archive" ] || tar -xzf "$archive" -C "$directory"
    [ ! -d "$corpus/$target" ] || cp "$corpus/$target"/* "$directory"
    ;;
pack)
    names=$(cd "$directory" && find . -maxdepth 1 -type f | sed 's,^\./,,' | LC_ALL=C sort |
        while read -r name; do [ -e "$OLDPWD/$corpus/$target/$name" ] || echo "$name"; done)
    # The same inputs give the same bytes.
    echo "$names" | tar --format=ustar --owner=0 --group=0 --numeric-owner --mtime=@0 --mode=644 \
        -C "$directory" -T - -cf - | gzip -9n >"$archive"
    ;;
*)
    echo "usage: corpus.sh unpack|pack TARGET DIRECTORY" >&2
    exit 2
    ;;
esac
