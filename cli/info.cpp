#include "info.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <convgrad/engine.hpp>
#include <convgrad/error.hpp>
#include <convgrad/version.hpp>

#include "cpu/isa.hpp"
#include "cpu/plan.hpp"
#include "cpu/pool.hpp"
#include "cuda/load.hpp"
#include "options.hpp"
#include "output.hpp"
#include "table.hpp"

namespace convgrad::cli {
namespace {

std::string cpu_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        const std::size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos)
            return line.substr(colon + 2);
    }
    return "unknown";
}

std::string sets_in(cpu::capabilities has) {
    std::vector<std::string_view> names;
    for (isa set : all_isas)
        if (has.include(set)) names.push_back(to_string(set));
    return fmt::format("{}", fmt::join(names, ", "));
}

std::string environment() {
    std::vector<std::string> set;
    for (const char *name : {"CONVGRAD_MAX_ISA", "CONVGRAD_NUM_THREADS", "CONVGRAD_CUDNN"})
        if (const char *value = std::getenv(name)) set.push_back(fmt::format("{}={}", name, value));
    return set.empty() ? "CONVGRAD_MAX_ISA, CONVGRAD_NUM_THREADS, CONVGRAD_CUDNN not set"
                       : fmt::format("{}", fmt::join(set, " "));
}

/// A row for each GPU, or why there is none.
std::vector<fact> cuda_facts() {
    std::vector<fact> rows;
    try {
        for (const std::string &device : cuda::describe_devices())
            rows.emplace_back(fmt::format("engine cuda:{}", rows.size()), device);
    } catch (const error &e) {
        rows.emplace_back("engine cuda", fmt::format("none: {}", e.what()));
    }
    if (rows.empty()) rows.emplace_back("engine cuda", "none: there is no NVIDIA GPU");
    return rows;
}

/// What is particular to engines on the CPU; values that differ are listed.
void add_cpu_facts(std::vector<fact> &facts, std::span<const engine> used) {
    const auto add = [&](const char *name, auto value_of) {
        std::vector<std::string> values;
        for (const engine &on : used) {
            const std::string value = value_of(on);
            if (std::find(values.begin(), values.end(), value) == values.end())
                values.push_back(value);
        }
        facts.emplace_back(name, fmt::format("{}", fmt::join(values, ", ")));
    };
    add("instruction set used",
        [](const engine &on) { return std::string(to_string(on.instruction_set())); });
    add("math mode", [](const engine &on) { return std::string(to_string(on.math())); });
    add("threads", [](const engine &on) { return std::to_string(on.threads()); });
}

}  // namespace

std::vector<fact> environment_facts(std::span<const engine> used) {
    std::vector<engine> cpus;
    bool any_gpu = false;
    for (const engine &on : used)
        if (on.kind() == engine_kind::cpu)
            cpus.push_back(on);
        else
            any_gpu = true;
    if (used.empty()) cpus.push_back(default_engine());
    const cpu::caches &c = cpu::cache_sizes();
    const auto size = [](std::size_t bytes) { return bytes_text(static_cast<double>(bytes)); };
    std::vector<fact> facts = {
        {"version", CONVGRAD_VERSION_STRING},
        {"processor", cpu_name()},
        {"instruction sets found", sets_in(cpu::detected())},
        {"cores", std::to_string(cpu::available_cores())},
        {"caches", fmt::format("L1d {}, L2 {}, L3 {}", size(c.l1d), size(c.l2), size(c.l3))},
    };
    if (!cpus.empty()) {
        add_cpu_facts(facts, cpus);
        facts.emplace_back(
            "algorithms", fmt::format("{}", fmt::join(cpu::algorithm_names(), ", ")));
    }
    facts.emplace_back("environment", environment());
    if (any_gpu)
        for (fact &row : cuda_facts()) facts.push_back(std::move(row));
    return facts;
}

int run_info() {
    table t;
    t.column("").column("");
    for (const auto &[name, value] : environment_facts({})) t.row({name, value});
    for (const auto &[name, value] : cuda_facts()) t.row({name, value});
    put("{}", t.text());
    return 0;
}

}  // namespace convgrad::cli
