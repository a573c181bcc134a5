// The library's functions as custom calls of XLA.
#pragma once

#include <span>

#include "xla_abi.hpp"

namespace convgrad::xla {

/// A name under which XLA finds a function, and the function.
///
/// Buffers are the function's tensors in the order of its arguments, dense, last dimension
/// innermost; a third input of a forward op is the bias, the last output of a weights gradient may
/// be the bias gradient. Attributes have the specification's names; `rank` is that of the data
/// tensors. Buffers of higher rank have leading dimensions over which the call is mapped: those of
/// the results, or 1 for what all share. Runs on XLA's threads, reads and writes where XLA's
/// buffers lie. Failures become XLA's errors; then nothing was written.
struct target {
    const char *name;
    handler *call;
};

std::span<const target> all_targets();

}  // namespace convgrad::xla
