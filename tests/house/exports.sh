#!/bin/sh
# The shared library exports the public API and nothing else: names of namespace convgrad that a
# public header declares.
set -u
library=$1 headers=$2
exported=$(nm -DC --defined-only "$library" | cut -d' ' -f3- | sed 's/^[A-Za-z] //')
[ -n "$exported" ] || { echo "nothing is exported"; exit 1; }
failed=0
# The inline namespace is that of the binary interface: v0_1, v1.
strange=$(echo "$exported" | grep -vE '^((typeinfo|typeinfo name|vtable) for )?convgrad::v[0-9_]+::')
if [ -n "$strange" ]; then
    echo "$strange"
    echo "exported, but none of our binary interface"
    failed=1
fi
# convgrad::engine::kind() const → kind; convgrad::op::op(…) → op; convgrad::error::~error() → error
for name in $(echo "$exported" | grep '^convgrad::' | sed -e 's/\[abi:[a-z0-9]*\]//' -e 's/(.*//' -e 's/.*:://' \
    -e 's/^operator=.*//' -e 's/^~//' | sort -u); do
    grep -qrw "$name" "$headers" && continue
    echo "$name is exported, but no public header declares it"
    failed=1
done
inner=$(echo "$exported" | grep -E 'convgrad::(ops|conv|cpu|engines|onednn)::|::impl::')
if [ -n "$inner" ]; then
    echo "$inner"
    echo "exported, but internal"
    failed=1
fi
[ "$failed" -eq 0 ] && echo "$(echo "$exported" | wc -l) names, all public"
exit "$failed"
