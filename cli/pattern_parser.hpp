// From the text of a regular expression to a tree.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "pattern.hpp"

namespace convgrad::cli {

/// A part of an expression; its parts stand before it in the list.
struct pattern_node {
    enum class kind : std::uint8_t { take, assertion, sequence, either, repeat };
    kind what = kind::sequence;
    std::size_t set = 0;  // take
    pattern::action assertion = pattern::action::begin;
    std::vector<std::size_t> parts{};                // sequence, either; the one of repeat
    std::size_t least = 0;                           // repeat
    std::optional<std::size_t> most = std::nullopt;  // repeat; none: any number
};

struct pattern_tree {
    std::vector<pattern::char_set> sets;
    std::vector<pattern_node> nodes;  // the last one is the whole
};

/// Throws pattern_error.
pattern_tree parse_pattern(std::string_view expression);

}  // namespace convgrad::cli
