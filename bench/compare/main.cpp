// convgrad-compare: this library and an installed oneDNN on the same problems, in one process.
//
// For each case both compute the same data, results are compared, and then they take turns: a short
// round of ours, a short round of each way to use oneDNN, and again. The fastest execution counts.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "contest.hpp"
#include "conv/convert.hpp"
#include "engines.hpp"
#include "onednn.hpp"
#include "options.hpp"
#include "palette.hpp"
#include "ratios.hpp"
#include "runner.hpp"
#include "terminal.hpp"
#include "usage_error.hpp"

namespace convgrad::compare {
namespace {

struct options {
    cli::selection_options select;
    cli::output_options output;
    bool json = false, markdown = false, amx_palette = false, whole_reference = false;
    std::string resume;  // file with results; empty: none
    double seconds = 0.5;
    int rounds = 5;
};

/// Largest difference of two tensors, relative to the largest value of the first.
double difference(data_type type, dim count, const void *ours, const void *theirs) {
    const auto typed = [&]<typename T>() {
        const auto *a = static_cast<const T *>(ours), *b = static_cast<const T *>(theirs);
        double largest = 0, apart = 0;
        for (dim i = 0; i < count; ++i) {
            const double x = conv::to_float(a[i]), y = conv::to_float(b[i]);
            largest = std::max(largest, std::abs(x));
            if (!(std::abs(x - y) <= apart)) apart = std::abs(x - y);  // NaN is taken over
        }
        return largest > 0 ? apart / largest : apart;
    };
    if (type == data_type::f32) return typed.template operator()<float>();
    if (type == data_type::bf16) return typed.template operator()<bf16>();
    return typed.template operator()<f16>();
}

/// What two correct results may differ by: one rounding to the type each, and for f32 the order of
/// the sum.
double tolerance(data_type type) {
    if (type == data_type::f32) return 1e-4;
    return type == data_type::bf16 ? 0x1p-7 : 0x1p-9;
}

/// A way to use oneDNN, on the whole problem or on its first image.
struct peer {
    usage how = usage::plain;
    cli::op_case what;
    cli::op_call call;
    std::unique_ptr<onednn_primitive> run;
    double scale = 1;  // of its time, to that of the whole problem
    double apart = 0;  // from our result
};

const void *output_of(const cli::op_call &call, const conv::buffers &data) {
    const void *const slots[] = {data.src, data.weights, data.dst};
    return slots[static_cast<std::size_t>(call.output)];
}

class comparison {
public:
    comparison(const options &o, const std::vector<cli::op_case> &cases)
        : options_(o), cases_(cases), bar_(cases.size(), o.output.quiet) {
        if (!o.resume.empty()) read_known();
        if (o.amx_palette) palette_ = std::make_unique<shown_palette>();
    }

    int run() {
        for (std::size_t i = 0; i < cases_.size(); ++i) {
            const cli::op_case &c = cases_[i];
            bar_.show(i, fmt::format("{} {} {} {}", to_string(c.kind), to_string(c.type),
                             to_string(c.data), cli::to_text(*c.problem)));
            try {
                results_.push_back(known_or_measured(c));
            } catch (const cli::usage_error &) {
                throw;
            } catch (const std::exception &e) {
                bar_.clear();
                failed_ = true;
                fmt::print(stderr, "convgrad-compare: {} {} {}: {}\n", to_string(c.kind),
                    to_string(c.type), cli::to_text(*c.problem), e.what());
            }
        }
        bar_.clear();
        if (!results_.empty() && !options_.json)
            fmt::print("{}", options_.markdown ? markdown_tables(results_) : tables());
        const bool disagree =
            std::any_of(results_.begin(), results_.end(), [](const ratio &r) { return !r.agrees; });
        if (disagree) fmt::print(stderr, "convgrad-compare: some results differ\n");
        return failed_ || disagree ? 1 : 0;
    }

private:
    [[nodiscard]] std::string tables() const {
        std::string text = terminal_tables(results_);
        if (options_.output.quiet) return text;
        return text
               + fmt::format("\n{}, {}{}\n", onednn_version(), onednn_isa(),
                   palette_ ? ", AMX palette told" : "");
    }

    void read_known() {
        std::ifstream in(options_.resume);
        for (std::string line; std::getline(in, line);)
            if (auto r = from_json(line)) known_.push_back(*r);
    }

    ratio known_or_measured(const cli::op_case &c) {
        const engine &on = engines_.get(c.on);
        ratio r = describe(c, on);
        const auto at = std::find_if(
            known_.begin(), known_.end(), [&](const ratio &k) { return k.same_case(r); });
        if (at != known_.end()) return *at;
        measure(r, c, on);
        const std::string line = json_line(r) + "\n";
        if (!options_.resume.empty()) std::ofstream(options_.resume, std::ios::app) << line;
        if (options_.json) {
            bar_.clear();
            fmt::print("{}", line);
            std::fflush(stdout);
        }
        return r;
    }

    static ratio describe(const cli::op_case &c, const engine &on) {
        const cli::problem_string &p = *c.problem;
        ratio r;
        r.op = to_string(c.kind);
        r.dtype = to_string(c.type);
        r.data_format = to_string(c.data);
        r.weights_format = to_string(c.weights);
        r.problem = cli::to_text(p, false);
        r.name = p.name;
        r.threads = on.threads();
        r.peer = onednn_version();
        r.dense = p.groups == 1 && p.ic >= 16 && p.oc >= 16;
        return r;
    }

    void measure(ratio &r, const cli::op_case &c, const engine &on) {
        const cli::op_call call = cli::make_call(c, false);
        const conv::buffers data =
            cli::fill_tensors(call, store_, {cli::filling::kind::reals, 1, 1});
        const cli::runner ours(call, data, on);
        const auto plan = cli::plan_of(call, on);
        r.algorithm = plan->algorithm();
        r.isa = to_string(plan->instruction_set());
        set_onednn_threads(on.threads());
        std::vector<peer> peers = make_peers(c, call, data);
        for (peer &p : peers) check(p, data, on);

        std::vector<contestant> all = {{[&] { ours.execute(); }}};
        for (peer &p : peers) all.push_back({[&p] { p.run->execute(); }});
        play(all, peers);
        r.min_ms = all[0].best * 1e3;
        r.gflops = 2 * conv::macs(call.problem) / all[0].best * 1e-9;
        for (std::size_t i = 0; i < peers.size(); ++i) {
            const double ms = all[i + 1].best * peers[i].scale * 1e3;
            r.agrees = r.agrees && peers[i].apart <= tolerance(c.type);
            r.difference = std::max(r.difference, peers[i].apart);
            if (i > 0 && ms >= r.peer_ms) continue;
            r.peer_ms = ms;
            r.peer_usage = to_string(peers[i].how);
            r.peer_implementation = peers[i].run->implementation();
            r.peer_scaled = peers[i].scale > 1;
        }
    }

    /// All ways that oneDNN offers; its reference loops only where there is nothing else.
    std::vector<peer> make_peers(
        const cli::op_case &c, const cli::op_call &call, const conv::buffers &data) const {
        std::vector<peer> peers;
        for (usage how : {usage::free_weights, usage::reordered, usage::plain})
            if (auto run = make_onednn(c, call, data, how))
                peers.push_back({how, c, call, std::move(run)});
        const auto reference = [](const peer &p) { return p.run->is_reference(); };
        if (!std::all_of(peers.begin(), peers.end(), reference)) {
            std::erase_if(peers, reference);
            return peers;
        }
        if (peers.size() > 1) peers.erase(peers.begin() + 1, peers.end());
        if (!peers.empty() && !options_.whole_reference && c.problem->mb > 1) {
            peer &p = peers[0];
            auto image = std::make_shared<cli::problem_string>(*c.problem);
            p.scale = static_cast<double>(image->mb);
            image->mb = 1;
            p.what.problem = image;
            p.call = cli::make_call(p.what, false);
            p.run = make_onednn(p.what, p.call, data, p.how);  // the batch is outermost
        }
        return peers;
    }

    static void check(peer &p, const conv::buffers &data, const engine &on) {
        cli::runner(p.call, data, on).execute();
        p.run->execute();
        p.apart = difference(p.call.problem.type, p.call.elements_of(p.call.output),
            output_of(p.call, data), p.run->result());
    }

    void play(std::vector<contestant> &all, const std::vector<peer> &peers) const {
        const double slice = options_.seconds / options_.rounds / static_cast<double>(all.size());
        for (int round = 0; round < options_.rounds; ++round) {
            play_round(all, slice, 10 * options_.seconds);
            // Ways that are clearly not oneDNN's best, or take too long, have had their turn.
            double best = std::numeric_limits<double>::max();
            for (std::size_t i = 1; i < all.size(); ++i) best = std::min(best, all[i].best);
            for (std::size_t i = 1; i < all.size(); ++i)
                if (all[i].best > 1.5 * best
                    || (peers[i - 1].run->is_reference() && all[i].best > options_.seconds))
                    all[i].active = false;
        }
    }

    const options &options_;
    const std::vector<cli::op_case> &cases_;
    cli::progress bar_;
    cli::engine_cache engines_;
    cli::tensor_store store_;
    std::unique_ptr<shown_palette> palette_;
    std::vector<ratio> known_, results_;
    bool failed_ = false;
};

constexpr const char *footer = R"(Examples:
  convgrad-compare --batch shapes.txt --dtype all --data-format all --threads 2 --resume results.jsonl
  convgrad-compare mb16ic64ih56oc64kh3ph1 --dtype bf16 --json

Ratios are times of oneDNN / ours: above 1 we are faster. Exit status: 0; 1 if a case could not be
run or results differ; 2 for bad arguments.)";

void add_options(CLI::App &app, options &o) {
    cli::add_selection_options(app, o.select);
    constexpr const char *how = "How to compare";
    app.add_option("--seconds", o.seconds, "Time for each case, about; default: 0.5")
        ->check(CLI::Range(0.0, 3600.0))
        ->option_text("S")
        ->group(how);
    app.add_option("--rounds", o.rounds, "Turns that each one gets; default: 5")
        ->check(CLI::Range(1, 1000))
        ->option_text("N")
        ->group(how);
    app.add_flag("--whole-reference", o.whole_reference,
           "Where oneDNN has only its reference loop, run the whole batch; default: one image, and "
           "its time times the batch")
        ->group(how);
    app.add_flag("--amx-palette", o.amx_palette,
           "Tell oneDNN the architectural AMX palette where a hypervisor hides it")
        ->group(how);
    app.add_flag("--json", o.json, "One JSON object per line instead of tables")->group(how);
    app.add_flag("--markdown", o.markdown, "Tables in Markdown")->group(how);
    app.add_option("--resume", o.resume,
           "Append results to this file, and do not measure again what it has already")
        ->option_text("FILE")
        ->group(how);
    cli::add_output_options(app, o.output);
}

int run(int argc, char **argv) {
    CLI::App app("convgrad beside an installed oneDNN", "convgrad-compare");
    options o;
    add_options(app, o);
    app.footer(footer);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &e) {
        return app.exit(e) == 0 ? 0 : 2;
    }
    const cli::selection selected = cli::expand(o.select, cli::embedded_set::bench);
    cli::print_notes(selected.notes, o.output);
    if (palette_hidden() && !o.amx_palette && !o.output.quiet)
        fmt::print(stderr, "note: the AMX palette is hidden here, so oneDNN does without AMX; "
                           "--amx-palette tells it\n");
    return comparison(o, selected.cases).run();
}

}  // namespace
}  // namespace convgrad::compare

int main(int argc, char **argv) {
    try {
        return convgrad::compare::run(argc, argv);
    } catch (const std::exception &e) {
        fmt::print(stderr, "convgrad-compare: {}\n", e.what());
    }
    return 2;
}
