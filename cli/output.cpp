#include "output.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <unistd.h>

namespace convgrad::cli {
namespace {

[[noreturn]] void fail(int reason) {
    std::string text = "cannot write to stdout";
    if (reason != 0) text += std::string(": ") + std::strerror(reason);
    throw output_error(text + "; results are lost");
}

/// The reason of the first failure: later calls on the stream only tell that there was one.
int first_reason = 0;

void check(bool fine) {
    if (fine && std::ferror(stdout) == 0) return;
    if (first_reason == 0) first_reason = errno;
    fail(first_reason);
}

}  // namespace

void occupy_standard_streams() {
    for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
        // The direction in which the stream is not used: using it fails, as if it were closed.
        const int id = open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        if (id >= 0 && id != stream) {
            dup2(id, stream);
            close(id);
        }
    }
}

void put_result(std::string_view text) {
    errno = 0;
    check(std::fwrite(text.data(), 1, text.size(), stdout) == text.size());
}

void flush_results() {
    errno = 0;
    check(std::fflush(stdout) == 0);
}

void close_results() {
    flush_results();
    // A file on another machine may refuse what it had taken when it is closed. The stream itself
    // stays open for whoever still writes to it while the process ends.
    errno = 0;
    const int again = dup(STDOUT_FILENO);
    if (again >= 0) check(close(again) == 0);
}

std::string without_controls(std::string text) {
    const auto acts = [](char c) { return c != '\n' && is_control(c); };
    std::replace_if(text.begin(), text.end(), acts, '?');
    return text;
}

void put_message(std::string_view text) noexcept {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
}

}  // namespace convgrad::cli
