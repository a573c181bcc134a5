#include "train_summary.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "engines.hpp"
#include "op_case.hpp"
#include "problem_string.hpp"
#include "table.hpp"
#include "terminal.hpp"

namespace convgrad::cli {
namespace {

bool classifies(const train::settings &chosen) {
    return chosen.model == train::model_kind::classifier;
}

/// Multiply-adds count two, as in bench.
double flops_of(const train::op_time &t, data_type type) {
    op_case c;
    c.problem = std::make_shared<problem_string>(parse_problem(t.problem, is_transposed(t.kind)));
    c.kind = t.kind;
    c.type = type;
    c.weights = weights_formats_of(t.kind)[0];
    return 2 * conv::macs(make_call(c, false).problem) * static_cast<double>(t.calls);
}

std::string shares_text(const train::trainer &trainer) {
    const std::vector<time_share> shares = time_shares(trainer);
    const bool copied =
        std::ranges::any_of(shares, [](const time_share &s) { return s.bytes > 0; });
    table t;
    t.column("time");
    for (const char *title : {"calls", "seconds", "share", "GFLOP/s"})
        t.column(title, align::right);
    if (copied) t.column("GB/s", align::right);
    const auto rate = [](double amount, double seconds) {
        return amount > 0 && seconds > 0 ? fmt::format("{:.1f}", amount / seconds * 1e-9) : "";
    };
    const double total = training_seconds(trainer);
    for (const time_share &s : shares) {
        std::vector<std::string> cells = {s.name, s.calls > 0 ? std::to_string(s.calls) : "",
            fmt::format("{:.2f}", s.seconds), fmt::format("{:.0f} %", 100 * s.seconds / total),
            rate(s.flops, s.seconds)};
        if (copied) cells.push_back(rate(s.bytes, s.seconds));
        t.row(std::move(cells));
    }
    return t.text()
           + (copied ? "Ops by the device's own clock, everything else by the host's.\n" : "");
}

}  // namespace

double training_seconds(const train::trainer &trainer) {
    const auto &history = trainer.history();
    double total = 0;
    for (std::size_t i = history.size() - trainer.trained_epochs(); i < history.size(); ++i)
        total += history[i].seconds;
    return total;
}

std::vector<time_share> time_shares(const train::trainer &trainer) {
    std::vector<time_share> shares;
    double rest = training_seconds(trainer);
    const auto add = [&](time_share s) {
        rest -= s.seconds;
        shares.push_back(std::move(s));
    };
    const std::vector<train::op_time> times = trainer.op_times();
    for (op_kind kind : all_op_kinds) {
        time_share sum{std::string(to_string(kind)), "convolutions"};
        for (const train::op_time &one : times) {
            if (one.kind != kind || one.calls == 0) continue;
            sum.calls += one.calls;
            sum.seconds += one.seconds;
            sum.flops += flops_of(one, trainer.chosen().type);
        }
        if (sum.calls > 0) add(std::move(sum));
    }
    const train::transfer_time device = trainer.transfers();
    if (device.bytes > 0) {
        add({"copies", "tensors to the device and back", 0, device.copies, 0, device.bytes});
        add({"queuing and waiting", "calls of convolutions while the device did not compute", 0,
            device.waiting});
    }
    shares.push_back(
        {"everything else", "normalisation, activation, loss, optimiser, conversions", 0, rest});
    return shares;
}

std::string introduction(
    const train::settings &chosen, const train::dataset &data, const engine &on) {
    return fmt::format("{}: {} training and {} test images of {}×{} pixels\n"
                       "{}, {}, batches of {}, seed {}; {}\n",
        data.name, data.training.size(), data.test.size(), data.training.height,
        data.training.width, to_string(chosen.model), to_string(chosen.type), chosen.batch,
        chosen.seed, engine_label(on));
}

std::string epoch_title(const train::settings &chosen) {
    return classifies(chosen) ? "epoch     loss  accuracy  test loss  test accuracy  images/s"
                              : "epoch      loss  test loss  images/s";
}

std::string epoch_line(const train::settings &chosen, int epoch, const train::epoch_record &r) {
    const std::string note =
        r.skipped_steps > 0
            ? fmt::format("  ({} steps skipped, loss scale {:.0f})", r.skipped_steps, r.loss_scale)
            : "";
    if (!classifies(chosen))
        return fmt::format("{:5}  {:8.5f}  {:9.5f}  {:8.0f}{}", epoch, r.training.loss, r.test.loss,
            r.images_per_second, note);
    return fmt::format("{:5}  {:7.4f}  {:6.2f} %  {:9.4f}  {:11.2f} %  {:8.0f}{}", epoch,
        r.training.loss, r.training.accuracy * 100, r.test.loss, r.test.accuracy * 100,
        r.images_per_second, note);
}

std::string closing(const train::trainer &trainer, bool brief) {
    const train::score &test = trainer.history().back().test;
    std::string text =
        classifies(trainer.chosen())
            ? fmt::format("test accuracy {} ({} of {})\n",
                paint(fmt::format("{:.2f} %", test.accuracy * 100), colour::bold), test.correct,
                test.count)
            : fmt::format("test error {} (mean square of pixel differences; the mean "
                          "image has {:.5f})\n",
                paint(fmt::format("{:.5f}", test.loss), colour::bold), trainer.mean_image_error());
    text += fmt::format("weights {:016x}\n", trainer.weights_fingerprint());
    long steps = 0;
    for (const train::op_time &t : trainer.op_times()) steps = std::max(steps, t.calls);
    if (brief || steps == 0) return text;
    return fmt::format("\n{}\n{} training steps in {:.1f} s:\n{}", text, steps,
        training_seconds(trainer), shares_text(trainer));
}

}  // namespace convgrad::cli
