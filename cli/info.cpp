#include "info.hpp"

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
    for (const char *name : {"CONVGRAD_MAX_ISA", "CONVGRAD_NUM_THREADS"})
        if (const char *value = std::getenv(name)) set.push_back(fmt::format("{}={}", name, value));
    return set.empty() ? "CONVGRAD_MAX_ISA, CONVGRAD_NUM_THREADS not set"
                       : fmt::format("{}", fmt::join(set, " "));
}

/// A row for each GPU, or why there is none.
std::vector<std::pair<std::string, std::string>> cuda_facts() {
    std::vector<std::pair<std::string, std::string>> rows;
    try {
        for (const std::string &device : cuda::describe_devices())
            rows.emplace_back(fmt::format("engine cuda:{}", rows.size()), device);
    } catch (const error &e) {
        rows.emplace_back("engine cuda", fmt::format("none: {}", e.what()));
    }
    if (rows.empty()) rows.emplace_back("engine cuda", "none: there is no NVIDIA GPU");
    return rows;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> environment_facts(const engine &on) {
    const cpu::caches &c = cpu::cache_sizes();
    const auto size = [](std::size_t bytes) { return bytes_text(static_cast<double>(bytes)); };
    return {
        {"version", CONVGRAD_VERSION_STRING},
        {"processor", cpu_name()},
        {"instruction sets found", sets_in(cpu::detected())},
        {"instruction set used", std::string(to_string(on.instruction_set()))},
        {"math mode", std::string(to_string(on.math()))},
        {"cores", std::to_string(cpu::available_cores())},
        {"threads", std::to_string(on.threads())},
        {"caches", fmt::format("L1d {}, L2 {}, L3 {}", size(c.l1d), size(c.l2), size(c.l3))},
        {"algorithms", fmt::format("{}", fmt::join(cpu::algorithm_names(), ", "))},
        {"environment", environment()},
    };
}

int run_info() {
    table t;
    t.column("").column("");
    for (const auto &[name, value] : environment_facts(default_engine())) t.row({name, value});
    for (const auto &[name, value] : cuda_facts()) t.row({name, value});
    put("{}", t.text());
    return 0;
}

}  // namespace convgrad::cli
