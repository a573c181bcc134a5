#!/bin/sh
# The list of functions is that of the headers, and the library exports them and nothing that it has
# no business to. Usage: symbols.sh LIBRARY HEADERS
set -eu
library=$1
headers=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

grep -oh 'dnnl_graph_[a-z0-9_]*(' "$headers/oneapi/dnnl/dnnl_graph.h" | tr -d '(' |
    sort -u >"$work/declared"
diff "$work/declared" "$here/functions.txt" || {
    echo "symbols: functions.txt is not what dnnl_graph.h declares" >&2
    exit 1
}
[ "$(wc -l <"$work/declared")" -eq 62 ]

# Engines and streams, for programs without oneDNN; SYCL's part of the graph interface, so that it is
# taken over as a whole.
sort - "$here/functions.txt" >"$work/expected" <<'END'
dnnl_engine_create
dnnl_engine_destroy
dnnl_engine_get_count
dnnl_engine_get_kind
dnnl_get_default_fpmath_mode
dnnl_graph_sycl_interop_allocator_create
dnnl_graph_sycl_interop_compiled_partition_execute
dnnl_graph_sycl_interop_compiled_partition_execute_v2
dnnl_graph_sycl_interop_make_engine_with_allocator
dnnl_set_default_fpmath_mode
dnnl_set_verbose
dnnl_stream_create
dnnl_stream_destroy
dnnl_stream_get_engine
dnnl_stream_wait
dnnl_version
END
nm -D --defined-only "$library" | awk '{print $3}' | sort >"$work/exported"
diff "$work/expected" "$work/exported" || {
    echo "symbols: $library exports something else than it should" >&2
    exit 1
}
