#include <convgrad/error.hpp>

#include "op/guard.hpp"

namespace convgrad {
inline namespace CONVGRAD_ABI {
namespace {

// Made while there is memory: copying it allocates nothing. Never destroyed, because objects with
// static lifetime may still compute while the program ends.
const error *const spare = new error(error_code::out_of_memory, "an allocation failed");

}  // namespace

std::string_view to_string(error_code code) noexcept {
    switch (code) {
    case error_code::invalid_op:
        return "invalid_op";
    case error_code::invalid_graph:
        return "invalid_graph";
    case error_code::invalid_shape:
        return "invalid_shape";
    case error_code::invalid_argument:
        return "invalid_argument";
    case error_code::unsupported:
        return "unsupported";
    case error_code::out_of_memory:
        return "out_of_memory";
    case error_code::device_failure:
        return "device_failure";
    }
    return "unknown error code";
}

error::error(error_code code, const std::string &message)
    : std::runtime_error(message), code_(code) {}

// Out of line, so that the type has one home and can be caught across libraries.
error::~error() = default;

}  // namespace CONVGRAD_ABI

void throw_out_of_memory(const char *where, const char *why) {
    try {
        throw error(error_code::out_of_memory, std::string(where) + ": " + why);
    } catch (const std::bad_alloc &) {
        throw error(*spare);
    }
}

}  // namespace convgrad
