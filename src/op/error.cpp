#include <convgrad/error.hpp>

namespace convgrad {

std::string_view to_string(error_code code) {
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
    }
    return "unknown error code";
}

error::error(error_code code, const std::string &message)
    : std::runtime_error(message), code_(code) {}

// Out of line, so that the type has one home and can be caught across libraries.
error::~error() = default;

}  // namespace convgrad
