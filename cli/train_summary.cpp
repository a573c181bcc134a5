#include "train_summary.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "op_case.hpp"
#include "problem_string.hpp"
#include "table.hpp"
#include "terminal.hpp"

namespace convgrad::cli {
namespace {

bool classifies(const train::settings &chosen) {
    return chosen.model == train::model_kind::classifier;
}

struct op_total {
    long calls = 0;
    double seconds = 0, flops = 0;
};

/// Multiply-adds count two, as in bench.
double flops_of(const train::op_time &t, data_type type) {
    op_case c;
    c.problem = std::make_shared<problem_string>(parse_problem(t.problem, is_transposed(t.kind)));
    c.kind = t.kind;
    c.type = type;
    c.weights = weights_formats_of(t.kind)[0];
    return 2 * conv::macs(make_call(c, false).problem) * static_cast<double>(t.calls);
}

std::string time_by_op(const train::trainer &trainer, double total) {
    table t;
    t.column("op");
    for (const char *title : {"calls", "seconds", "share", "GFLOP/s"})
        t.column(title, align::right);
    const std::vector<train::op_time> times = trainer.op_times();
    double rest = total;
    for (op_kind kind : all_op_kinds) {
        op_total sum;
        for (const train::op_time &one : times) {
            if (one.kind != kind || one.calls == 0) continue;
            sum.calls += one.calls;
            sum.seconds += one.seconds;
            sum.flops += flops_of(one, trainer.chosen().type);
        }
        if (sum.calls == 0) continue;
        rest -= sum.seconds;
        t.row({std::string(to_string(kind)), std::to_string(sum.calls),
            fmt::format("{:.2f}", sum.seconds), fmt::format("{:.0f} %", 100 * sum.seconds / total),
            fmt::format("{:.1f}", sum.flops / sum.seconds * 1e-9)});
    }
    t.row({"everything else", "", fmt::format("{:.2f}", rest),
        fmt::format("{:.0f} %", 100 * rest / total), ""});
    return t.text();
}

}  // namespace

std::string introduction(
    const train::settings &chosen, const train::dataset &data, const engine &on) {
    return fmt::format("{}: {} training and {} test images of {}×{} pixels\n"
                       "{}, {}, batches of {}, seed {}; {}, {} {}\n",
        data.name, data.training.size(), data.test.size(), data.training.height,
        data.training.width, to_string(chosen.model), to_string(chosen.type), chosen.batch,
        chosen.seed, to_string(on.instruction_set()), on.threads(),
        on.threads() == 1 ? "thread" : "threads");
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
    double total = 0;
    long steps = 0;
    for (const train::op_time &t : trainer.op_times()) steps = std::max(steps, t.calls);
    const std::size_t epochs = trainer.trained_epochs();
    for (std::size_t i = trainer.history().size() - epochs; i < trainer.history().size(); ++i)
        total += trainer.history()[i].seconds;
    if (brief || steps == 0) return text;
    return fmt::format(
        "\n{}\n{} training steps in {:.1f} s:\n{}", text, steps, total, time_by_op(trainer, total));
}

}  // namespace convgrad::cli
