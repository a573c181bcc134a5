// The library's promise about exceptions: only convgrad::error leaves it.
#pragma once

#include <new>
#include <stdexcept>

#include <convgrad/error.hpp>

namespace convgrad {

/// Calls `work`; turns a failed allocation into error(out_of_memory).
template <typename Work>
decltype(auto) guarded(const char *where, Work &&work) {
    try {
        return work();
    } catch (const std::bad_alloc &) {
        throw error(error_code::out_of_memory, std::string(where) + ": an allocation failed");
    } catch (const std::length_error &) {
        throw error(error_code::out_of_memory, std::string(where) + ": a list is too long");
    }
}

}  // namespace convgrad
