// Engines, instruction sets and what belongs to the process.
#include <algorithm>
#include <string>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <convgrad/engine.hpp>
#include <convgrad/error.hpp>
#include <convgrad/version.hpp>

#include "bindings.hpp"

namespace convgrad::python {
namespace {

/// The value of an enumeration whose to_string() is `text`.
template <typename Enum, std::size_t Count>
Enum from_text(std::string_view what, std::string_view text, const Enum (&all)[Count]) {
    std::string known;
    for (Enum value : all) {
        if (to_string(value) == text) return value;
        known += (known.empty() ? "" : ", ") + std::string(to_string(value));
    }
    throw error(error_code::invalid_argument, "invalid argument: " + std::string(what) + " is \""
                                                  + std::string(text) + "\"; it must be one of "
                                                  + known);
}

void make_engine(engine *self, int threads, std::optional<std::string_view> max_isa,
    std::string_view math, std::optional<std::size_t> workspace_limit, bool own_threads) {
    static constexpr math_mode modes[] = {math_mode::strict, math_mode::accurate, math_mode::fast};
    engine_options options;
    options.threads = threads;
    options.own_threads = own_threads;
    if (max_isa) options.max_isa = from_text("max_isa", *max_isa, all_isas);
    options.math = from_text("math", math, modes);
    if (workspace_limit) options.workspace_limit = *workspace_limit;
    new (self) engine(options);
}

}  // namespace

void bind_engine(nb::module_ &m) {
    using namespace nb::literals;
    nb::class_<engine>(m, "Engine")
        .def("__init__", &make_engine, nb::kw_only(), "threads"_a = 0, "max_isa"_a = nb::none(),
            "math"_a = "accurate", "workspace_limit"_a = nb::none(), "own_threads"_a = false)
        .def_prop_ro("threads", &engine::threads)
        .def_prop_ro("shares_threads", &engine::shares_threads)
        .def_prop_ro(
            "instruction_set", [](const engine &e) { return to_string(e.instruction_set()); })
        .def_prop_ro("math", [](const engine &e) { return to_string(e.math()); })
        .def_prop_ro("workspace_limit", &engine::workspace_limit)
        .def("__repr__", [](const engine &e) {
            return "Engine(threads=" + std::to_string(e.threads()) + ", instruction_set='"
                   + std::string(to_string(e.instruction_set())) + "', math='"
                   + std::string(to_string(e.math())) + "')";
        });
    m.def("default_engine", [] { return default_engine(); });
    m.def("detected_isa", [] { return to_string(detected_isa()); });
    m.def("release_scratch", &release_scratch);
    m.attr("__version__") = CONVGRAD_VERSION_STRING;
}

}  // namespace convgrad::python
