#!/bin/sh
# Who may include whom: each layer knows those below it, through the seam between them.
set -u
cd "$1" || exit 1
failed=0
forbid() { # forbid LAYER PATTERN WHY
    found=$(grep -rnE "#include \"($2)/" "src/$1" --include='*.cpp' --include='*.hpp' --include='*.inl')
    [ -z "$found" ] && return
    echo "$found"
    echo "src/$1 must not include that: $3"
    failed=1
}
forbid op 'conv/reference|cpu|engine|graph|onednn' 'it says what is asked, not how it is computed'
forbid conv 'op|cpu|engine|graph|onednn' 'the canonical problem knows nobody'
forbid graph 'cpu|cuda|onednn' 'engines are reached through src/engine/backend.hpp'
forbid onednn 'cpu|cuda' 'engines are reached through src/engine/backend.hpp'
forbid cpu 'op|graph|onednn|cuda' 'a backend knows problems, not ops'
forbid cuda 'op|graph|onednn|cpu' 'a backend knows problems, not ops'
named=$(grep -rlE '#include "(cpu|cuda)/' src/engine | grep -v '^src/engine/backends.cpp$')
if [ -n "$named" ]; then
    echo "$named: only src/engine/backends.cpp names backends"
    failed=1
fi
[ "$failed" -eq 0 ] && echo "layers: as they should be"
exit "$failed"
