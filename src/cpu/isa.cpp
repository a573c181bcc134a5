#include "cpu/isa.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include <convgrad/error.hpp>

#include "cpu/machine/machine.hpp"

namespace convgrad::cpu {
namespace {

std::optional<std::string> environment(const char *name) {
    const char *text = std::getenv(name);
    if (text == nullptr || *text == '\0') return std::nullopt;
    return text;
}

}  // namespace

isa name_of(capabilities has) {
    isa best = isa::portable;
    for (const isa set : all_isas)
        if (has.include(set)) best = set;
    return best;
}

capabilities detected() {
    if (forced_isa_for_testing != nullptr)
        if (const int forced = forced_isa_for_testing(); forced >= 0)
            return static_cast<isa>(forced);
    static const capabilities found = ask_processor();
    return found;
}

capabilities allowed() {
    static const std::optional<std::string> limit = environment("CONVGRAD_MAX_ISA");
    if (!limit) return detected();
    std::string valid;
    for (const isa set : all_isas) {
        if (*limit == to_string(set)) return detected() & set;
        valid += (valid.empty() ? "" : ", ") + std::string(to_string(set));
    }
    throw error(error_code::invalid_argument,
        "environment variable CONVGRAD_MAX_ISA is \"" + *limit + "\"; it must be one of " + valid);
}

const caches &cache_sizes() {
    static const caches sizes = [] {
        caches found = ask_caches();
        // Hypervisors may hide any of them: then what the smallest processors in use have.
        if (found.l1d < (8U << 10)) found.l1d = 32U << 10;
        if (found.l2 < found.l1d) found.l2 = 512U << 10;
        if (found.l3 < found.l2) found.l3 = std::max<std::size_t>(found.l2, 4U << 20);
        return found;
    }();
    return sizes;
}

}  // namespace convgrad::cpu
