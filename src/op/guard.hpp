// The library's promise about exceptions: only convgrad::error leaves it.
#pragma once

#include <new>
#include <stdexcept>

#include <convgrad/error.hpp>

namespace convgrad {

/// Throws error(out_of_memory), also when there is no memory left for its message.
[[noreturn]] void throw_out_of_memory(const char *where, const char *why);

/// Calls `work`; turns a failed allocation into error(out_of_memory).
template <typename Work>
decltype(auto) guarded(const char *where, Work &&work) {
    try {
        return work();
    } catch (const std::bad_alloc &) {
        throw_out_of_memory(where, "an allocation failed");
    } catch (const std::length_error &) {
        throw_out_of_memory(where, "a list is too long");
    }
}

}  // namespace convgrad
