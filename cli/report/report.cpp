#include "report/report.hpp"

#include <fmt/format.h>

#include "problem_string.hpp"
#include "report/page.hpp"
#include "runner.hpp"
#include "train_summary.hpp"

namespace convgrad::cli {
namespace {

using nlohmann::json;

/// Values between 0 and 1 need no more than three digits in a picture.
json pixels(const std::vector<float> &values) {
    json list = json::array();
    for (float v : values) list.push_back(std::round(static_cast<double>(v) * 1000) / 1000);
    return list;
}

json samples_json(train::trainer &trainer, const train::dataset &data) {
    constexpr std::size_t most = 20, most_mistakes = 10;
    std::vector<std::size_t> chosen;
    if (trainer.chosen().model == train::model_kind::classifier) chosen = trainer.mistakes();
    chosen.resize(std::min(chosen.size(), most_mistakes));
    for (std::size_t i = 0; i < data.test.size() && chosen.size() < most; ++i)
        if (std::find(chosen.begin(), chosen.end(), i) == chosen.end()) chosen.push_back(i);
    json list = json::array();
    for (const train::sample &s : trainer.run_samples(chosen))
        list.push_back({{"image", pixels(s.image)}, {"output", pixels(s.output)},
            {"label", s.label}, {"prediction", s.prediction}});
    return list;
}

json shares_json(const train::trainer &trainer) {
    json list = json::array();
    for (const time_share &s : time_shares(trainer))
        list.push_back(
            {{"op", s.name}, {"what", s.what}, {"seconds", s.seconds}, {"calls", s.calls}});
    return list;
}

json training_json(train::trainer &trainer, const train::dataset &data) {
    const auto &history = trainer.history();
    json epochs = json::array();
    double images = 0;
    for (std::size_t i = 0; i < history.size(); ++i) {
        const train::epoch_record &r = history[i];
        epochs.push_back(
            {{"training_loss", r.training.loss}, {"training_accuracy", r.training.accuracy},
                {"test_loss", r.test.loss}, {"test_accuracy", r.test.accuracy}});
        if (i + trainer.trained_epochs() < history.size()) continue;
        images += static_cast<double>(r.training.count);
    }
    const double seconds = training_seconds(trainer);
    long steps = 0;
    for (const train::op_time &t : trainer.op_times()) steps = std::max(steps, t.calls);
    return {{"model", to_string(trainer.chosen().model)}, {"epochs", epochs},
        {"step_losses", trainer.step_losses()}, {"seconds", seconds}, {"steps", steps},
        {"images_per_second", seconds > 0 ? images / seconds : 0},
        {"test_images", data.test.size()}, {"mean_image_error", trainer.mean_image_error()},
        {"width", data.test.width}, {"height", data.test.height}, {"shares", shares_json(trainer)},
        {"samples", samples_json(trainer, data)}};
}

}  // namespace

std::vector<bench_result> layer_results(const train::trainer &trainer, const engine_choice &on,
    const engine &used, machine_peaks &peaks) {
    std::vector<bench_result> results;
    for (const train::op_time &t : trainer.op_times()) {
        if (t.calls == 0) continue;
        bench_result r;
        r.what.problem =
            std::make_shared<problem_string>(parse_problem(t.problem, is_transposed(t.kind)));
        r.what.kind = t.kind;
        r.what.type = trainer.chosen().type;
        r.what.weights = weights_formats_of(t.kind)[0];
        r.what.on = on;
        const op_call call = make_call(r.what, false);
        const auto plan = any_plan_of(call, used);
        r.algorithm = plan->algorithm();
        r.uses = plan->facts().uses;
        r.threads = used.kind() == engine_kind::cpu ? used.threads() : 0;
        r.min_seconds = t.fastest;
        r.median_seconds = t.seconds / static_cast<double>(t.calls);
        r.bound = peaks.limit_of(call, used);
        results.push_back(std::move(r));
    }
    return results;
}

void write_bench_report(const std::string &path, const std::vector<bench_result> &results,
    engine_cache &engines, machine_peaks &peaks) {
    json data = {{"title", "convgrad bench"},
        {"subtitle", "How fast each problem ran, and how fast this machine could be."}};
    add_results(data, results, engines, peaks);
    write_page(path, data);
}

void write_train_report(const std::string &path, train::trainer &trainer,
    const train::dataset &data, const engine_choice &on) {
    const train::settings &chosen = trainer.chosen();
    engine_cache engines;
    machine_peaks peaks;
    json page = {{"title", "convgrad train"},
        {"subtitle", fmt::format("{} in {} on {}, batches of {}, seed {}", to_string(chosen.model),
                         to_string(chosen.type), data.name, chosen.batch, chosen.seed)}};
    page["training"] = training_json(trainer, data);
    add_results(page, layer_results(trainer, on, engines.get(on), peaks), engines, peaks);
    write_page(path, page);
}

}  // namespace convgrad::cli
