#include "pattern.hpp"

#include <cctype>

#include <fmt/format.h>

#include "pattern_parser.hpp"

namespace convgrad::cli {
namespace {

using action = pattern::action;

/// From the tree to states, in the order of the expression.
class builder {
public:
    builder(const pattern_tree &tree, std::vector<pattern::state> &states)
        : tree_(tree), states_(states) {}

    void run() {
        emit(tree_.nodes.size() - 1);
        add({action::found});
    }

private:
    std::size_t add(pattern::state made) {
        if (states_.size() == pattern::most_states)
            throw pattern_error(
                fmt::format("its repetitions make more than {} states", pattern::most_states));
        states_.push_back(made);
        return states_.size() - 1;
    }

    void emit(std::size_t index) {
        const pattern_node &n = tree_.nodes[index];
        switch (n.what) {
        case pattern_node::kind::take:
            add({action::take, n.set});
            break;
        case pattern_node::kind::assertion:
            add({n.assertion});
            break;
        case pattern_node::kind::sequence:
            for (const std::size_t part : n.parts) emit(part);
            break;
        case pattern_node::kind::either:
            emit_either(n);
            break;
        case pattern_node::kind::repeat:
            emit_repeat(n);
            break;
        }
    }

    /// Each way but the last: a fork to it and to the next way; behind it a jump to the end.
    void emit_either(const pattern_node &n) {
        std::vector<std::size_t> jumps;
        for (std::size_t i = 0; i + 1 < n.parts.size(); ++i) {
            const std::size_t fork = add({action::split});
            emit(n.parts[i]);
            jumps.push_back(add({action::split}));
            states_[fork] = {action::split, fork + 1, states_.size()};
        }
        emit(n.parts.back());
        for (const std::size_t jump : jumps)
            states_[jump] = {action::split, states_.size(), states_.size()};
    }

    void emit_repeat(const pattern_node &n) {
        for (std::size_t i = 0; i < n.least; ++i) {
            const std::size_t before = states_.size();
            emit(n.parts[0]);
            if (states_.size() == before) return;  // nothing, however often
        }
        if (!n.most) {
            const std::size_t fork = add({action::split});
            emit(n.parts[0]);
            add({action::split, fork, fork});
            states_[fork] = {action::split, fork + 1, states_.size()};
            return;
        }
        std::vector<std::size_t> forks;
        for (std::size_t i = n.least; i < *n.most; ++i) {
            forks.push_back(add({action::split}));
            emit(n.parts[0]);
        }
        for (const std::size_t fork : forks)
            states_[fork] = {action::split, fork + 1, states_.size()};
    }

    const pattern_tree &tree_;
    std::vector<pattern::state> &states_;
};

bool is_word(std::string_view text, std::size_t at) {
    if (at >= text.size()) return false;
    const auto c = static_cast<unsigned char>(text[at]);
    return c < 128 && (std::isalnum(c) != 0 || c == '_');
}

bool holds(action what, std::string_view text, std::size_t at) {
    const bool edge = is_word(text, at) != (at > 0 && is_word(text, at - 1));
    switch (what) {
    case action::begin:
        return at == 0;
    case action::end:
        return at == text.size();
    case action::word_edge:
        return edge;
    default:
        return !edge;
    }
}

}  // namespace

pattern::pattern(std::string_view expression) {
    pattern_tree tree = parse_pattern(expression);
    builder(tree, states_).run();
    sets_ = std::move(tree.sets);
}

void pattern::follow(std::size_t from, std::string_view text, std::size_t at,
    std::vector<std::size_t> &reached, std::vector<bool> &is_reached) const {
    std::vector<std::size_t> open = {from};
    while (!open.empty()) {
        const std::size_t index = open.back();
        open.pop_back();
        if (is_reached[index]) continue;
        is_reached[index] = true;
        const state &s = states_[index];
        if (s.what == action::take || s.what == action::found) {
            reached.push_back(index);
        } else if (s.what == action::split) {
            open.push_back(s.second);
            open.push_back(s.first);
        } else if (holds(s.what, text, at)) {
            open.push_back(index + 1);
        }
    }
}

bool pattern::is_found_in(std::string_view text) const {
    std::vector<std::size_t> now, next;
    std::vector<bool> is_reached(states_.size());
    for (std::size_t at = 0; at <= text.size(); ++at) {
        follow(0, text, at, now, is_reached);  // a match may begin anywhere
        is_reached.assign(states_.size(), false);
        for (const std::size_t index : now) {
            const state &s = states_[index];
            if (s.what == action::found) return true;
            if (at < text.size() && sets_[s.first][static_cast<unsigned char>(text[at])])
                follow(index + 1, text, at + 1, next, is_reached);
        }
        now.swap(next);
        next.clear();
    }
    return false;
}

}  // namespace convgrad::cli
