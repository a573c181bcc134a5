#include "ratios.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <string_view>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "table.hpp"

namespace convgrad::compare {
namespace {

/// "fwd", "dat" or "wei", as the user sees the op.
std::string pass_of(const ratio &r) {
    if (r.op.ends_with("BackwardData")) return "dat";
    return r.op.ends_with("BackwardWeights") ? "wei" : "fwd";
}

/// "bf16 NXC"; weights format and threads only where they are not what all others have.
std::string column_of(const ratio &r, bool several_threads) {
    std::string text = fmt::format("{} {}", r.dtype, r.data_format);
    if (r.weights_format == "OIX" || r.weights_format == "IOX") text += " " + r.weights_format;
    if (several_threads) text += fmt::format(" {} threads", r.threads);
    return text;
}

bool several_threads(const std::vector<ratio> &all) {
    return std::any_of(
        all.begin(), all.end(), [&](const ratio &r) { return r.threads != all[0].threads; });
}

std::string title_of(const ratio &r) {
    return r.name.empty() ? r.problem : r.name;
}

std::string ratio_text(double v) {
    return v < 10 ? fmt::format("{:.2f}", v) : fmt::format("{:.0f}", v);
}

/// Types, layouts and passes in their usual order.
auto rank_of(const ratio &r) {
    const auto index = [](const std::string &word, std::initializer_list<std::string_view> list) {
        return std::find(list.begin(), list.end(), word) - list.begin();
    };
    return std::make_tuple(index(r.dtype, {"f32", "bf16", "f16"}),
        index(r.data_format, {"NXC", "NCX"}),
        r.weights_format == "OIX" || r.weights_format == "IOX", r.threads,
        index(pass_of(r), {"fwd", "dat", "wei"}));
}

/// The results by rank, in which those of one rank stay in order.
std::vector<const ratio *> ranked(const std::vector<ratio> &all) {
    std::vector<const ratio *> list;
    for (const ratio &r : all) list.push_back(&r);
    std::stable_sort(list.begin(), list.end(),
        [](const ratio *a, const ratio *b) { return rank_of(*a) < rank_of(*b); });
    return list;
}

struct summary_row {
    std::string column, pass;
    std::size_t count = 0;
    double log_sum = 0, worst = 0;
    std::string worst_problem;
    void add(const ratio &r) {
        const double v = r.value();
        if (count == 0 || v < worst) {
            worst = v;
            worst_problem = title_of(r);
        }
        ++count;
        log_sum += std::log(v);
    }
    [[nodiscard]] double mean() const { return std::exp(log_sum / static_cast<double>(count)); }
};

std::vector<summary_row> summarise(const std::vector<ratio> &all, bool dense_only) {
    std::vector<summary_row> rows;
    const bool threads = several_threads(all);
    for (const ratio *r : ranked(all)) {
        if (!r->comparable() || (dense_only && !r->dense)) continue;
        const std::string column = column_of(*r, threads), pass = pass_of(*r);
        if (rows.empty() || rows.back().column != column || rows.back().pass != pass)
            rows.push_back({column, pass, 0, 0, 0, {}});
        rows.back().add(*r);
    }
    return rows;
}

std::string terminal_summary(const std::vector<ratio> &all, bool dense_only, const char *title) {
    const std::vector<summary_row> rows = summarise(all, dense_only);
    if (rows.empty()) return {};
    cli::table t;
    t.column("type, layout").column("pass").column("problems", cli::align::right);
    t.column("geometric mean", cli::align::right).column("worst", cli::align::right).column("of");
    for (const summary_row &s : rows)
        t.row({s.column, s.pass, std::to_string(s.count), ratio_text(s.mean()), ratio_text(s.worst),
            s.worst_problem});
    return fmt::format("\n{}\n{}", title, t.text());
}

constexpr const char *none = "–";
constexpr const char *all_title = "All problems, time of oneDNN / ours:";
constexpr const char *dense_title =
    "Dense problems (one group, at least 16 channels on each side), time of oneDNN / ours:";

std::string markdown_row(const std::vector<std::string> &cells) {
    return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

std::string markdown_summary(const std::vector<ratio> &all, bool dense_only, const char *title) {
    const std::vector<summary_row> rows = summarise(all, dense_only);
    if (rows.empty()) return {};
    std::string text = fmt::format("\n{}\n\n", title);
    text += markdown_row({"type, layout", "pass", "problems", "geometric mean", "worst", "of"});
    text += markdown_row({"---", "---", "---:", "---:", "---:", "---"});
    for (const summary_row &s : rows)
        text += markdown_row({s.column, s.pass, std::to_string(s.count), ratio_text(s.mean()),
            ratio_text(s.worst), s.worst_problem});
    return text;
}

}  // namespace

bool ratio::same_case(const ratio &o) const {
    return op == o.op && dtype == o.dtype && data_format == o.data_format
           && weights_format == o.weights_format && problem == o.problem && threads == o.threads;
}

std::string json_line(const ratio &r) {
    nlohmann::ordered_json j;
    j["op"] = r.op;
    j["dtype"] = r.dtype;
    j["data_format"] = r.data_format;
    j["weights_format"] = r.weights_format;
    j["problem"] = r.problem;
    j["name"] = r.name;
    j["isa"] = r.isa;
    j["algorithm"] = r.algorithm;
    j["threads"] = r.threads;
    j["min_ms"] = r.min_ms;
    j["gflops"] = r.gflops;
    j["peer"] = r.peer;
    j["peer_usage"] = r.peer_usage;
    j["peer_implementation"] = r.peer_implementation;
    j["peer_ms"] = r.peer_ms;
    j["peer_scaled"] = r.peer_scaled;
    j["ratio"] = r.comparable() ? nlohmann::ordered_json(r.value()) : nullptr;
    j["difference"] = r.difference;
    j["agrees"] = r.agrees;
    j["dense"] = r.dense;
    return j.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::optional<ratio> from_json(const std::string &line) {
    const auto j = nlohmann::json::parse(line, nullptr, false);
    if (!j.is_object()) return std::nullopt;
    try {
        ratio r;
        j.at("op").get_to(r.op);
        j.at("dtype").get_to(r.dtype);
        j.at("data_format").get_to(r.data_format);
        j.at("weights_format").get_to(r.weights_format);
        j.at("problem").get_to(r.problem);
        j.at("name").get_to(r.name);
        j.at("isa").get_to(r.isa);
        j.at("algorithm").get_to(r.algorithm);
        j.at("threads").get_to(r.threads);
        j.at("min_ms").get_to(r.min_ms);
        j.at("gflops").get_to(r.gflops);
        j.at("peer").get_to(r.peer);
        j.at("peer_usage").get_to(r.peer_usage);
        j.at("peer_implementation").get_to(r.peer_implementation);
        j.at("peer_ms").get_to(r.peer_ms);
        j.at("peer_scaled").get_to(r.peer_scaled);
        j.at("difference").get_to(r.difference);
        j.at("agrees").get_to(r.agrees);
        j.at("dense").get_to(r.dense);
        return r;
    } catch (const nlohmann::json::exception &) {
        return std::nullopt;
    }
}

std::string terminal_tables(const std::vector<ratio> &all) {
    using cli::align;
    cli::table t;
    t.column("op").column("dtype").column("layout").column("problem");
    for (const char *title : {"threads", "ours ms", "GFLOP/s", "oneDNN ms", "ratio", "difference"})
        t.column(title, align::right);
    t.column("oneDNN: how, with what");
    for (const ratio &r : all)
        t.row({r.op, r.dtype, fmt::format("{} {}", r.data_format, r.weights_format), title_of(r),
            std::to_string(r.threads), fmt::format("{:.3f}", r.min_ms),
            fmt::format("{:.1f}", r.gflops),
            !r.comparable() ? none : fmt::format("{}{:.3f}", r.peer_scaled ? "~" : "", r.peer_ms),
            !r.comparable() ? none : ratio_text(r.value()),
            !r.comparable() ? none : fmt::format("{:.1e}{}", r.difference, r.agrees ? "" : " !"),
            !r.comparable() ? "does not do this"
                            : fmt::format("{}, {}", r.peer_usage, r.peer_implementation)});
    return t.text() + terminal_summary(all, false, all_title)
           + terminal_summary(all, true, dense_title);
}

std::string markdown_tables(const std::vector<ratio> &all) {
    std::vector<std::string> rows, columns;
    std::map<std::pair<std::string, std::string>, const ratio *> cells;
    const bool threads = several_threads(all);
    const auto add = [](std::vector<std::string> &names, const std::string &name) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    };
    for (const ratio &r : all) add(rows, title_of(r));
    for (const ratio *r : ranked(all)) {
        const std::string column = column_of(*r, threads) + " " + pass_of(*r);
        add(columns, column);
        cells[{title_of(*r), column}] = r;
    }
    std::vector<std::string> titles = {"problem"}, rule = {"---"};
    for (const std::string &column : columns) {
        titles.push_back(column);
        rule.emplace_back("---:");
    }
    std::string text = markdown_row(titles) + markdown_row(rule);
    for (const std::string &row : rows) {
        std::vector<std::string> line = {row};
        for (const std::string &column : columns) {
            const auto at = cells.find({row, column});
            const bool empty = at == cells.end() || !at->second->comparable();
            line.push_back(empty ? none : ratio_text(at->second->value()));
        }
        text += markdown_row(line);
    }
    return text + markdown_summary(all, false, all_title)
           + markdown_summary(all, true, dense_title);
}

}  // namespace convgrad::compare
