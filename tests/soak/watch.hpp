// What a process holds: pages, heap, file descriptors, threads.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace convgrad::soak {

struct holdings {
    double seconds = 0;
    double rss = 0;   // resident bytes
    double heap = 0;  // bytes that malloc has given out, mappings included
    std::size_t files = 0, threads = 0;
};
/// Of this process, now.
holdings look(double seconds);

/// Later samples against earlier ones.
class trend {
public:
    /// `most`: how many samples will come; memory for them is taken now.
    explicit trend(std::size_t most) { samples_.reserve(most); }
    void add(const holdings &now) { samples_.push_back(now); }
    [[nodiscard]] const holdings &last() const { return samples_.back(); }
    /// One line per finding that is not flat; empty if all is well. Warm-up, the first sixth, does
    /// not count; then means of the first and the last quarter are compared.
    [[nodiscard]] std::vector<std::string> complaints(double tolerance) const;
    /// The figures that complaints() compares, for the report.
    [[nodiscard]] std::string summary() const;

private:
    struct window {
        holdings first, last, most;
    };
    [[nodiscard]] window compared() const;

    std::vector<holdings> samples_;
};

}  // namespace convgrad::soak
