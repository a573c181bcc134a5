#include "onednn/verbose.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "onednn/guard.hpp"

namespace convgrad::onednn {

bool is_verbose() {
    static const bool wanted = [] {
        const char *value = std::getenv("CONVGRAD_VERBOSE");
        return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
    }();
    return wanted;
}

void trace(const char *event, const std::string &text, double milliseconds) {
    std::printf("convgrad_verbose,%s,cpu,%s,%g\n", event, text.c_str(), milliseconds);
    std::fflush(stdout);
}

void trace_error(const char *call, const char *message) {
    if (!is_verbose()) return;
    std::printf("convgrad_verbose,error,%s,%s\n", call, message);
    std::fflush(stdout);
}

status to_status(error_code code) {
    switch (code) {
    case error_code::invalid_op:
        return status::invalid_graph_op;
    case error_code::invalid_graph:
        return status::invalid_graph;
    case error_code::invalid_shape:
        return status::invalid_shape;
    case error_code::invalid_argument:
        return status::invalid_arguments;
    case error_code::unsupported:
        return status::unimplemented;
    case error_code::out_of_memory:
        return status::out_of_memory;
    case error_code::device_failure:
        break;
    }
    return status::runtime_error;
}

}  // namespace convgrad::onednn
