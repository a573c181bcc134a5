#include "bench_engines.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "table.hpp"

namespace convgrad::cli {
namespace {

/// All that a case is but for its engine.
std::string case_key(const op_case &c) {
    return fmt::format("{} {} {} {} {}", to_string(c.kind), to_string(c.type), to_string(c.data),
        weights_text(c), to_text(*c.problem));
}

/// "cuda:0 is the fastest in 5 of 6 cases, by a factor of 12.3 in the geometric mean".
std::string wins_text(const engine_comparison &c, std::size_t engine) {
    double logs = 0;
    std::size_t wins = 0;
    for (const engine_row &row : c.rows) {
        if (row.fastest() != engine) continue;
        ++wins;
        logs += std::log(row.lead());
    }
    std::string text =
        fmt::format("{} is the fastest in {} of {} cases", c.names[engine], wins, c.rows.size());
    if (wins > 0)
        text += fmt::format(", by a factor of {:.3g} in the geometric mean",
            std::exp(logs / static_cast<double>(wins)));
    return text;
}

}  // namespace

std::size_t engine_row::fastest() const {
    std::size_t best = 0;
    for (std::size_t i = 1; i < seconds.size(); ++i)
        if (seconds[i] > 0 && (seconds[best] <= 0 || seconds[i] < seconds[best])) best = i;
    return best;
}

double engine_row::lead() const {
    const std::size_t best = fastest();
    double next = 0;
    for (std::size_t i = 0; i < seconds.size(); ++i)
        if (i != best && seconds[i] > 0 && (next <= 0 || seconds[i] < next)) next = seconds[i];
    return next / seconds[best];
}

std::vector<std::string> short_engine_names(
    const std::vector<bench_result> &results, engine_cache &engines) {
    std::map<std::string, std::set<engine_choice>> choices;  // by short name
    for (const bench_result &r : results) choices[engine_name(r.what.on)].insert(r.what.on);
    std::vector<std::string> names;
    for (const bench_result &r : results) {
        const std::string name = engine_name(r.what.on);
        names.push_back(choices[name].size() == 1
                            ? name
                            : fmt::format("{} ({})", name, engine_label(engines.get(r.what.on))));
    }
    return names;
}

engine_comparison compare_engines(const std::vector<bench_result> &results, engine_cache &engines) {
    engine_comparison c;
    const std::vector<std::string> names = short_engine_names(results, engines);
    for (const std::string &name : names)
        if (std::find(c.names.begin(), c.names.end(), name) == c.names.end())
            c.names.push_back(name);
    std::map<std::string, std::size_t> place;  // of a case among the rows
    for (std::size_t i = 0; i < results.size(); ++i) {
        const auto [at, fresh] = place.try_emplace(case_key(results[i].what), c.rows.size());
        if (fresh) c.rows.push_back({&results[i], std::vector<double>(c.names.size())});
        const auto column = std::find(c.names.begin(), c.names.end(), names[i]) - c.names.begin();
        c.rows[at->second].seconds[static_cast<std::size_t>(column)] = results[i].min_seconds;
    }
    std::erase_if(c.rows, [](const engine_row &row) { return row.lead() == 0; });
    return c;
}

std::string comparison_text(const engine_comparison &c) {
    if (c.rows.empty()) return {};
    table t;
    t.column("op").column("dtype").column("layout").column("problem");
    for (const std::string &name : c.names) t.column(name + " ms", align::right);
    t.column("fastest").column("times", align::right);
    for (const engine_row &row : c.rows) {
        const op_case &what = row.first->what;
        std::vector<std::string> cells = {std::string(to_string(what.kind)),
            std::string(to_string(what.type)),
            fmt::format("{} {}", to_string(what.data), weights_text(what)),
            what.problem->name.empty() ? to_text(*what.problem) : what.problem->name};
        for (const double s : row.seconds)
            cells.push_back(s > 0 ? fmt::format("{:.4f}", s * 1e3) : "");
        cells.push_back(c.names[row.fastest()]);
        cells.push_back(fmt::format("{:.3g}", row.lead()));
        t.row(std::move(cells));
    }
    std::string text =
        "\nEngines side by side, each with its tensors in its own memory (nothing is copied):\n"
        + t.text();
    for (std::size_t i = 0; i < c.names.size(); ++i) text += wins_text(c, i) + "\n";
    return text;
}

}  // namespace convgrad::cli
