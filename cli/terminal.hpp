// Colours and lines that change in place: both only where somebody looks at a terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace convgrad::cli {

enum class colour { red, green, yellow, bold };

/// `text` in a colour if stdout is a terminal and NO_COLOR is not set, else `text`.
std::string paint(std::string_view text, colour c);

/// Ctrl-C, a closed terminal and `kill` still end the process by their signal, but leave no
/// unfinished line on the terminal and no half-written file.
void end_cleanly_on_signals();

/// A line on stderr that changes in place, ten times a second at most. Silent in a pipe.
class status_line {
public:
    explicit status_line(bool enabled);
    ~status_line();
    status_line(const status_line &) = delete;
    status_line &operator=(const status_line &) = delete;

    /// Whether show() would show anything now.
    [[nodiscard]] bool is_due() const;
    /// Columns that a text may have.
    [[nodiscard]] static std::size_t width();
    void show(std::string_view text);
    /// Takes the line away, so that others can be printed; the next show() brings it back.
    void clear();

private:
    using clock = std::chrono::steady_clock;
    bool enabled_;
    clock::time_point next_ = clock::now();
};

/// A bar with count, time left and what is being done.
class progress {
public:
    progress(std::size_t total, bool quiet);

    /// `done` of the total are done; `label` is next.
    void show(std::size_t done, std::string_view label);
    void clear() { line_.clear(); }

private:
    using clock = std::chrono::steady_clock;
    std::size_t total_;
    status_line line_;
    clock::time_point start_ = clock::now();
};

}  // namespace convgrad::cli
