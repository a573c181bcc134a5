// Error messages: cat() glues values together, fail() throws them in the one form that all messages
// share: `ConvolutionBackwardData "name": invalid shape: what was seen; the rule`.
#pragma once

#include <concepts>
#include <span>
#include <string>
#include <string_view>

#include <convgrad/error.hpp>
#include <convgrad/op_kind.hpp>
#include <convgrad/types.hpp>

namespace convgrad::ops {

/// A user's string in quotes, shortened and with control characters replaced.
struct quoted {
    std::string_view text;
};

void append(std::string &out, std::string_view text);
void append(std::string &out, quoted text);
/// "[1, ?, 3]"; very long lists are shortened.
void append(std::string &out, std::span<const dim> list);
void append(std::string &out, data_type type);
/// A number; "?" for unknown_dim.
void append_number(std::string &out, dim value);

inline void append(std::string &out, const char *text) {
    append(out, std::string_view(text));
}
inline void append(std::string &out, const std::string &text) {
    append(out, std::string_view(text));
}
inline void append(std::string &out, const dims &list) {
    append(out, std::span<const dim>(list));
}
template <std::integral T>
void append(std::string &out, T value) {
    append_number(out, static_cast<dim>(value));
}

template <typename... Parts>
[[nodiscard]] std::string cat(const Parts &...parts) {
    std::string out;
    (append(out, parts), ...);
    return out;
}

/// Throws error(code, `Kind "op_name": code in words: text`).
[[noreturn]] void fail(
    error_code code, op_kind kind, std::string_view op_name, std::string_view text);

/// Calls `work`, which hands something to an engine: what that refuses names the op that met it.
template <typename Work>
decltype(auto) naming(op_kind kind, std::string_view op_name, Work &&work) {
    try {
        return work();
    } catch (const error &e) {
        fail(e.code(), kind, op_name, e.what());
    }
}

}  // namespace convgrad::ops
