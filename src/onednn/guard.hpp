// From exceptions to statuses.
//
// Everything of ours that can throw runs inside guarded(). A client's allocator runs outside of it:
// what it throws passes through to the client.
#pragma once

#include <new>
#include <utility>

#include <convgrad/error.hpp>

#include "onednn/abi.hpp"
#include "onednn/verbose.hpp"

namespace convgrad::onednn {

status to_status(error_code code);

/// The status that `work` returns, or the one that its exception stands for. `what` names the call
/// in the trace.
template <typename Work>
status guarded(const char *what, Work &&work) {
    try {
        return std::forward<Work>(work)();
    } catch (const error &e) {
        trace_error(what, e.what());
        return to_status(e.code());
    } catch (const std::bad_alloc &) {
        return status::out_of_memory;
    } catch (const std::exception &e) {
        trace_error(what, e.what());
        return status::runtime_error;
    }
}

/// True if any of the pointers is null.
template <typename... Pointers>
bool any_null(Pointers... pointers) {
    return ((pointers == nullptr) || ...);
}

}  // namespace convgrad::onednn
