// Colours and the progress bar: both only where somebody looks at a terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace convgrad::cli {

enum class colour { red, green, yellow, bold };

/// `text` in a colour if stdout is a terminal and NO_COLOR is not set, else `text`.
std::string paint(std::string_view text, colour c);

/// Columns of the terminal behind stderr; 80 if it does not tell.
std::size_t terminal_width();
/// Whether somebody sees a line on stderr that changes in place.
bool progress_visible();

/// A bar on stderr with count, time left and what is being done. Silent in a pipe.
class progress {
public:
    progress(std::size_t total, bool quiet);
    ~progress();
    progress(const progress &) = delete;
    progress &operator=(const progress &) = delete;

    /// `done` of the total are done; `label` is next.
    void show(std::size_t done, std::string_view label);
    /// Takes the bar away, so that a line can be printed; the next show() brings it back.
    void clear();

private:
    using clock = std::chrono::steady_clock;
    std::size_t total_;
    bool enabled_, visible_ = false;
    clock::time_point start_ = clock::now(), next_ = clock::now();
};

}  // namespace convgrad::cli
