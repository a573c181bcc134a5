// What the command says: results on stdout, where none may be lost, and messages on stderr.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace convgrad::cli {

/// Results could not be written to stdout.
struct output_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// To be called before any file is opened: a standard stream that the caller has closed is
/// occupied, so that no file gets its number, and with it what was meant for the stream.
void occupy_standard_streams();

/// To stdout. Throws output_error.
void put_result(std::string_view text);
/// Results so far reach whoever reads them. Throws output_error, also for what was lost before.
void flush_results();
/// As flush_results(), and nothing can follow: what shows only when a file is closed shows here.
void close_results();

/// To stderr. What cannot be written is lost: there is nobody left to tell.
void put_message(std::string_view text) noexcept;
/// Whether a character acts on a terminal. (char is signed on some processors.)
constexpr bool is_control(char c) noexcept {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
}
/// The text with '?' for every control character but the end of a line: names of files and
/// arguments are quoted in messages, and must not act on the terminal.
std::string without_controls(std::string text);

template <typename... T>
void put(fmt::format_string<T...> format, T &&...arguments) {
    put_result(fmt::format(format, std::forward<T>(arguments)...));
}

template <typename... T>
void message(fmt::format_string<T...> format, T &&...arguments) {
    put_message(without_controls(fmt::format(format, std::forward<T>(arguments)...)));
}

}  // namespace convgrad::cli
