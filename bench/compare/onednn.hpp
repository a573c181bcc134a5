// oneDNN beside us: the same problem on the same memory, as a primitive of an installed oneDNN 3.x.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "conv/problem.hpp"
#include "op_case.hpp"

namespace convgrad::compare {

/// How oneDNN is used. src and dst come and go in plain layouts, whatever happens between.
enum class usage : std::uint8_t {
    free_weights,  // weights in the layout it likes best; their reorder is not counted
    reordered,     // everything in the layout it likes best; all reorders are counted
    plain,         // everything plain
};
std::string_view to_string(usage how);

/// One primitive, ready to run again and again.
class onednn_primitive {
public:
    virtual ~onednn_primitive() = default;
    virtual void execute() = 0;
    /// The output of the last execution in its plain layout.
    virtual const void *result() = 0;
    /// oneDNN's own name of what runs, e.g. "brgconv:avx512_core".
    [[nodiscard]] virtual std::string implementation() const = 0;
    /// Whether that is oneDNN's plain loop, meant for comparing results.
    [[nodiscard]] bool is_reference() const;
};

/// Null if oneDNN does not do this. `data` must outlive the primitive; its output is not written.
std::unique_ptr<onednn_primitive> make_onednn(
    const cli::op_case &what, const cli::op_call &call, const conv::buffers &data, usage how);

/// Makes oneDNN use that many threads from now on. Throws usage_error if it cannot.
void set_onednn_threads(int threads);

/// "oneDNN 3.14.0 (commit)"
std::string onednn_version();
/// The instruction set that oneDNN found or was limited to, by its own name.
std::string onednn_isa();

}  // namespace convgrad::compare
