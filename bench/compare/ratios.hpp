// Results of a comparison, and the tables made of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace convgrad::compare {

/// One case, ours and theirs.
struct ratio {
    std::string op, dtype, data_format, weights_format, problem, name;
    int threads = 0;
    std::string isa, algorithm;  // ours
    double min_ms = 0, gflops = 0;
    std::string peer, peer_usage, peer_implementation;
    double peer_ms = 0;
    bool peer_scaled = false;  // measured on one image, times the batch
    double difference = 0;     // largest difference of results, relative to the largest result
    bool agrees = true;
    bool dense = false;  // one group, at least 16 channels on each side

    /// Whether the peer does this at all.
    [[nodiscard]] bool comparable() const { return peer_ms > 0; }
    /// Above 1: we are faster.
    [[nodiscard]] double value() const { return peer_ms / min_ms; }
    /// Whether both are results of the same case.
    [[nodiscard]] bool same_case(const ratio &other) const;
};

/// One line of JSON, without newline.
std::string json_line(const ratio &r);
/// Reads what json_line() wrote; nothing for a line that is no such object.
std::optional<ratio> from_json(const std::string &line);

/// All results as a list, then geometric mean and worst case by type, layout and pass.
std::string terminal_tables(const std::vector<ratio> &all);
/// The same in Markdown, one row per problem.
std::string markdown_tables(const std::vector<ratio> &all);

}  // namespace convgrad::compare
