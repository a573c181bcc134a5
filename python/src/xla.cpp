// The custom calls of XLA, for JAX to register.
#include <nanobind/nanobind.h>

#include "bindings.hpp"
#include "xla_call.hpp"

namespace convgrad::python {

void bind_xla(nb::module_ &m) {
    m.def("xla_targets", [] {
        nb::dict made;
        for (const xla::target &t : xla::all_targets())
            made[t.name] = nb::capsule(reinterpret_cast<void *>(t.call), "xla._CUSTOM_CALL_TARGET");
        return made;
    });
}

}  // namespace convgrad::python
