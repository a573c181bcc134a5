// convgrad bench --scan: looks for cliffs. A point is flagged if its share of the roofline is more
// than three times below the median share of its neighbours.
#include <algorithm>
#include <cstdio>
#include <map>

#include <fmt/format.h>

#include "bench.hpp"
#include "bench_scan_points.hpp"
#include "output.hpp"
#include "table.hpp"
#include "terminal.hpp"

namespace convgrad::cli {
namespace {

constexpr double cliff = 3;
constexpr std::size_t neighbours = 9;
constexpr double first_seconds = 0.003, again_seconds = 0.02;

struct scan_point {
    bench_result result;
    scan_position at;
    double around = 0;  // median share of the neighbours
    [[nodiscard]] bool flagged() const { return result.roofline() * cliff < around; }
};

std::string scan_json(const scan_point &p) {
    std::string line = json_line(p.result);
    line.pop_back();
    return fmt::format(R"({}, "neighbours": {:.4g}, "flagged": {}}})", line, p.around, p.flagged());
}

class scan {
public:
    scan(const bench_options &options, const std::vector<op_case> &cases)
        : options_(options), bar_(cases.size(), options.output.quiet) {
        for (std::size_t i = 0; i < cases.size(); ++i) {
            const op_case &c = cases[i];
            bar_.show(i, fmt::format("{} {}", to_string(c.kind), to_text(*c.problem)));
            points_.push_back({timer_.measure(c, first_seconds, options_.cold), position_of(c), 0});
        }
        bar_.clear();
    }

    int run() {
        std::map<op_kind, std::vector<scan_point *>> by_op;
        for (scan_point &p : points_) by_op[p.result.what.kind].push_back(&p);
        for (const auto &[kind, list] : by_op)
            for (scan_point *p : list) p->around = median_around(*p, list);
        confirm();
        if (options_.json)
            for (const scan_point &p : points_) put("{}\n", scan_json(p));
        else
            print();
        return 0;
    }

private:
    static double median_around(const scan_point &p, const std::vector<scan_point *> &list) {
        std::vector<std::pair<double, double>> others;  // distance, share
        for (const scan_point *o : list)
            if (o != &p)
                others.emplace_back(
                    distance(p.result.what, p.at, o->result.what, o->at), o->result.roofline());
        const std::size_t count = std::min(neighbours, others.size());
        if (count == 0) return 0;
        std::partial_sort(
            others.begin(), others.begin() + static_cast<std::ptrdiff_t>(count), others.end());
        std::vector<double> shares;
        for (std::size_t i = 0; i < count; ++i) shares.push_back(others[i].second);
        std::sort(shares.begin(), shares.end());
        return shares[count / 2];
    }

    /// Flagged points are measured again, longer: a disturbance is no cliff.
    void confirm() {
        for (scan_point &p : points_) {
            if (!p.flagged()) continue;
            const bench_result again = timer_.measure(p.result.what, again_seconds, options_.cold);
            if (again.min_seconds < p.result.min_seconds) p.result = again;
        }
    }

    void print() const {
        put("{}", shares());
        std::vector<const scan_point *> flagged;
        for (const scan_point &p : points_)
            if (p.flagged()) flagged.push_back(&p);
        std::sort(flagged.begin(), flagged.end(), [](const scan_point *a, const scan_point *b) {
            return a->result.roofline() / a->around < b->result.roofline() / b->around;
        });
        if (!flagged.empty()) put("\n{}", flags(flagged));
        put("\n{} points, {} flagged (more than {} times below their neighbours)\n", points_.size(),
            flagged.size(), cliff);
    }

    static std::string flags(const std::vector<const scan_point *> &flagged) {
        table t;
        for (const char *title : {"share", "neighbours", "ms"}) t.column(title, align::right);
        t.column("algorithm").column("case");
        for (const scan_point *p : flagged)
            t.row({fmt::format("{:.1f} %", p->result.roofline() * 100),
                fmt::format("{:.1f} %", p->around * 100),
                fmt::format("{:.3f}", p->result.min_seconds * 1e3), p->result.algorithm,
                selecting_options(p->result.what, p->result.threads)});
        return t.text();
    }

    /// How the shares are spread, so that a slow region shows even where all neighbours are slow.
    [[nodiscard]] std::string shares() const {
        std::map<std::array<std::string, 4>, std::vector<double>> groups;
        for (const scan_point &p : points_) {
            const op_case &c = p.result.what;
            groups[{std::string(to_string(c.kind)), std::string(to_string(c.type)),
                       std::string(to_string(c.data)), p.result.algorithm}]
                .push_back(p.result.roofline());
        }
        table t;
        t.column("op").column("dtype").column("layout").column("algorithm");
        for (const char *title : {"points", "lowest", "10 %", "median"})
            t.column(title, align::right);
        for (auto &[key, shares] : groups) {
            auto &list = shares;  // Clang 14 does not capture a binding
            std::sort(list.begin(), list.end());
            const auto share = [&](std::size_t i) {
                return fmt::format("{:.1f} %", list[i] * 100);
            };
            t.row({key[0], key[1], key[2], key[3], std::to_string(list.size()), share(0),
                share(list.size() / 10), share(list.size() / 2)});
        }
        return t.text();
    }

    const bench_options &options_;
    progress bar_;
    case_timer timer_;
    std::vector<scan_point> points_;
};

}  // namespace

int run_bench_scan(const bench_options &options, const std::vector<op_case> &points) {
    return scan(options, points).run();
}

}  // namespace convgrad::cli
