// The extension module convgrad._core. Its functions take what the Python files of the package hand
// them, positionally; the public signatures are there.
#include "bindings.hpp"

NB_MODULE(_core, m) {
    using namespace convgrad::python;
    bind_errors(m);
    bind_arrays(m);
    bind_engine(m);
    bind_functions(m);
    bind_graph(m);
    bind_compile(m);
    bind_explain(m);
    bind_schema(m);
    bind_xla(m);
    bind_native(m);
}
