#include "report/page.hpp"

#include <ctime>
#include <fstream>

#include <fmt/format.h>

#include "bench_engines.hpp"
#include "cpu/isa.hpp"
#include "engine/engine.hpp"
#include "info.hpp"
#include "output.hpp"
#include "report/embedded.hpp"
#include "train/whole_file.hpp"

namespace convgrad::cli {
namespace {

std::string text_of(std::span<const std::uint8_t> bytes) {
    return {bytes.begin(), bytes.end()};
}

void replace(std::string &text, std::string_view mark, std::string_view by) {
    const std::size_t at = text.find(mark);
    if (at != std::string::npos) text.replace(at, mark.size(), by);
}

std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '<')
            out += "&lt;";
        else if (c == '&')
            out += "&amp;";
        else
            out += c;
    }
    return out;
}

/// Inside a script element nothing may look like a tag; JSON's own escapes avoid that.
std::string json_for_script(const nlohmann::json &data) {
    const std::string json = data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    std::string out;
    for (const char c : json) {
        if (c == '<')
            out += "\\u003c";
        else
            out += c;
    }
    return out;
}

/// Four digits are more than the clock gives.
double rounded(double x) {
    return std::stod(fmt::format("{:.5g}", x));
}

nlohmann::json engine_json(const engine &on, const std::string &name, machine_peaks &peaks) {
    nlohmann::json e = {
        {"label", engine_label(on)}, {"name", name}, {"peaks", nlohmann::json::array()}};
    if (on.kind() == engine_kind::cuda) {
        const cuda::device_peaks &p = peaks.of_device(on);
        e["peaks"] = {{{"label", "f32 FMA"}, {"gflops", rounded(p.fma * 1e-9)}},
            {{"label", "tensor cores"}, {"gflops", rounded(p.tensor * 1e-9)}}};
        e["bandwidths"] = {{{"label", "memory"}, {"gbs", rounded(p.memory * 1e-9)}},
            {{"label", "L2"}, {"gbs", rounded(p.l2 * 1e-9)}}};
        return e;
    }
    const std::pair<cpu::peak_unit, const char *> units[] = {{cpu::peak_unit::fma, "f32 vectors"},
        {cpu::peak_unit::dot2, "bf16 vectors"}, {cpu::peak_unit::matrix, "matrix engine"}};
    for (const auto &[unit, label] : units)
        if (const double v = peaks.flops(unit, on); v > 0)
            e["peaks"].push_back({{"label", label}, {"gflops", rounded(v * 1e-9)}});
    const double in_cache =
        0.5 * static_cast<double>(cpu::cache_sizes().l2) * static_cast<double>(on.threads());
    e["bandwidths"] = {{{"label", "memory"}, {"gbs", rounded(peaks.bandwidth(1e12, on) * 1e-9)}},
        {{"label", "L2"}, {"gbs", rounded(peaks.bandwidth(in_cache, on) * 1e-9)}}};
    return e;
}

nlohmann::json result_json(
    const bench_result &r, const engine &on, const std::string &engine_short) {
    const op_case &c = r.what;
    const std::string problem = to_text(*c.problem, false);
    const double limit = r.bound.flops / r.bound.seconds() * 1e-9;
    return {{"name", c.problem->name.empty() ? problem : c.problem->name}, {"problem", problem},
        {"op", to_string(c.kind)}, {"dtype", to_string(c.type)},
        {"layout", fmt::format("{} {}", to_string(c.data), weights_text(c))},
        {"algorithm", r.algorithm}, {"isa", r.uses}, {"threads", r.threads},
        {"engine", engine_label(on)}, {"on", engine_short},
        {"min_ms", rounded(r.min_seconds * 1e3)}, {"median_ms", rounded(r.median_seconds * 1e3)},
        {"gflops", rounded(r.gflops())}, {"gbs", rounded(r.gigabytes())},
        {"intensity", rounded(r.bound.flops / r.bound.bytes)}, {"share", rounded(r.roofline())},
        {"limit_gflops", rounded(limit)},
        {"limit", r.bound.compute_bound() ? fmt::format("compute ({})", r.bound.unit) : "memory"}};
}

/// The command line that was typed, with the program's name instead of its path.
std::string command_line() {
    std::ifstream file("/proc/self/cmdline");
    std::string line = "convgrad", word;
    std::getline(file, word, '\0');
    while (std::getline(file, word, '\0')) line += " " + word;
    return line;
}

std::string now_text() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char text[64];
    const std::size_t length = std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S %z", &local);
    return {text, length};
}

}  // namespace

std::string page_with(const nlohmann::json &data) {
    std::string page = text_of(report_page());
    const std::string title = escaped(data.at("title").get<std::string>());
    replace(page, "{{title}}", title);
    replace(page, "{{title}}", title);
    replace(page, "{{style}}", text_of(report_style()));
    replace(page, "{{script}}",
        text_of(report_core()) + text_of(report_charts()) + text_of(report_script()));
    replace(page, "{{data}}", json_for_script(data));  // last: it may contain anything
    return page;
}

void add_results(nlohmann::json &data, const std::vector<bench_result> &results,
    engine_cache &engines, machine_peaks &peaks) {
    data["results"] = nlohmann::json::array();
    data["engines"] = nlohmann::json::array();
    const std::vector<std::string> names = short_engine_names(results, engines);
    std::vector<std::string> seen;
    std::vector<engine> used;
    for (std::size_t i = 0; i < results.size(); ++i) {
        const bench_result &r = results[i];
        if (r.bound.flops <= 0 || r.bound.bytes <= 0) continue;  // nothing to plot
        const engine &on = engines.get(r.what.on);
        data["results"].push_back(result_json(r, on, names[i]));
        if (std::find(seen.begin(), seen.end(), engine_label(on)) != seen.end()) continue;
        seen.push_back(engine_label(on));
        used.push_back(on);
        data["engines"].push_back(engine_json(on, names[i], peaks));
    }
    auto facts = nlohmann::json::array({{"command", command_line()}, {"date", now_text()}});
    for (const auto &[name, value] : environment_facts(used))
        facts.push_back(nlohmann::json::array({name, value}));
    data["environment"] = std::move(facts);
}

void write_page(const std::string &path, const nlohmann::json &data) {
    const std::string page = page_with(data);
    const std::vector<std::uint8_t> bytes(page.begin(), page.end());
    flush_results();  // the page may go to stdout too, behind them
    train::replace_file(path, bytes);
}

}  // namespace convgrad::cli
