#include "verify.hpp"

#include <array>
#include <map>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "check.hpp"
#include "engines.hpp"
#include "output.hpp"
#include "table.hpp"
#include "terminal.hpp"

namespace convgrad::cli {
namespace {

struct tally {
    std::array<std::size_t, 3> count{};  // by outcome

    std::size_t &operator[](outcome what) { return count[static_cast<std::size_t>(what)]; }
    std::size_t operator[](outcome what) const { return count[static_cast<std::size_t>(what)]; }
};

/// The same case but for the number of threads.
bool same_but_threads(const op_case &a, const op_case &b) {
    return a.problem == b.problem && a.kind == b.kind && a.type == b.type && a.data == b.data
           && a.weights == b.weights && a.on.max_isa == b.on.max_isa && a.on.math == b.on.math
           && a.on.kind == b.on.kind && a.on.device == b.on.device;
}

std::string headline(const op_case &c) {
    return fmt::format("{} {} {} {} {}", to_string(c.kind), to_string(c.type), to_string(c.data),
        weights_text(c), to_text(*c.problem));
}

class verification {
public:
    verification(const verify_options &options, const std::vector<op_case> &cases)
        : options_(options), cases_(cases), bar_(cases.size(), options.output.quiet) {
        check_.seed = options.seed;
        check_.exhaustive = options.exhaustive;
    }

    int run() {
        for (std::size_t i = 0; i < cases_.size(); ++i) {
            bar_.show(i, headline(cases_[i]));
            check(i);
        }
        bar_.clear();
        print_table();
        std::string closing =
            fmt::format("{} passed, {} failed", total_[outcome::passed], total_[outcome::failed]);
        if (total_[outcome::skipped] > 0)
            closing += fmt::format(", {} skipped", total_[outcome::skipped]);
        put("{}\n", closing);
        if (total_[outcome::failed] > 0) return 1;
        if (cases_.empty()) return nothing_selected(options_.select, "checked");
        if (total_[outcome::passed] > 0 || options_.select.allow_empty) return 0;
        message("convgrad: nothing was checked: all was skipped (--allow-empty accepts that)\n");
        return 1;
    }

private:
    void check(std::size_t i) {
        const op_case &c = cases_[i];
        const engine &on = engines_.get(c.on);
        // Cases that differ in nothing but threads stand next to each other.
        const bool before = i > 0 && same_but_threads(cases_[i - 1], c);
        const bool after = i + 1 < cases_.size() && same_but_threads(cases_[i + 1], c);
        check_.want_bits = before || after;
        check_result r = check_case(c, on, store_, check_);
        if (before && r.what == outcome::passed && last_.what == outcome::passed
            && r.bits != last_.bits) {
            r.what = outcome::failed;
            r.detail = fmt::format("real data: {} threads give other bits than {}", on.threads(),
                engines_.get(cases_[i - 1].on).threads());
        }
        ++total_[r.what];
        ++by_op_[{c.kind, c.type}][r.what];
        if (r.what != outcome::passed) report(c, r, on, before ? &cases_[i - 1] : nullptr);
        last_ = std::move(r);
    }

    void report(const op_case &c, const check_result &r, const engine &on, const op_case *before) {
        bar_.clear();
        const bool failed = r.what == outcome::failed;
        put("{} {}\n  {}\n", failed ? paint("FAIL", colour::red) : paint("SKIP", colour::yellow),
            headline(c), r.detail);
        if (!failed) return;
        std::string again = "convgrad verify ";
        if (options_.seed != 1) again += fmt::format("--seed {} ", options_.seed);
        if (options_.exhaustive) again += "--exhaustive ";
        std::string which = selecting_options(c, on.threads());
        if (before != nullptr
            && r.bits != 0) {  // other bits: both thread counts are needed to see it
            const std::string one = fmt::format("--threads {} ", on.threads());
            const std::string both =
                fmt::format("--threads {},{} ", engines_.get(before->on).threads(), on.threads());
            which.replace(which.find(one), one.size(), both);
        }
        put("  repeat: {}{}\n", again, which);
        flush_results();
    }

    void print_table() const {
        if (options_.output.quiet || cases_.empty()) return;
        table t;
        t.column("op")
            .column("dtype")
            .column("passed", align::right)
            .column("failed", align::right);
        const bool skipped = total_[outcome::skipped] > 0;
        if (skipped) t.column("skipped", align::right);
        for (const auto &[key, n] : by_op_) {
            const std::string failed = std::to_string(n[outcome::failed]);
            std::vector<std::string> row = {std::string(to_string(key.first)),
                std::string(to_string(key.second)),
                paint(std::to_string(n[outcome::passed]), colour::green),
                n[outcome::failed] > 0 ? paint(failed, colour::red) : failed};
            if (skipped) row.push_back(std::to_string(n[outcome::skipped]));
            t.row(std::move(row));
        }
        put("{}\n", t.text());
    }

    const verify_options &options_;
    const std::vector<op_case> &cases_;
    progress bar_;
    check_options check_;
    engine_cache engines_;
    tensor_store store_;
    tally total_;
    std::map<std::pair<op_kind, data_type>, tally> by_op_;
    check_result last_;
};

}  // namespace

void add_verify_options(CLI::App &app, verify_options &options) {
    add_selection_options(app, options.select);
    constexpr const char *how = "How to check";
    app.add_flag("--exhaustive", options.exhaustive,
           "Check every output element, not a sample of large outputs")
        ->group(how);
    app.add_option("--seed", options.seed, "Seed of the data and of the sample; default: 1")
        ->transform(seed_number())
        ->option_text("N")
        ->group(how);
    add_output_options(app, options.output);
}

int run_verify(const verify_options &options) {
    const selection selected = expand(options.select, embedded_set::verify);
    print_notes(selected.notes, options.output);
    return verification(options, selected.cases).run();
}

}  // namespace convgrad::cli
