#include "support/workbench.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include <unistd.h>

#include "conv/convert.hpp"
#include "cpu/isa.hpp"
#include "cpu/kernels/kernels.hpp"
#include "support/amx_emulator.hpp"
#include "tools/reference.hpp"

namespace convgrad::test {
namespace {

using conv::pass;

constexpr std::byte poison{0xff};  // NaN in every type

/// The problem that runs now, for whoever reads about a crash.
const conv::problem *running = nullptr;
isa running_isa = isa::portable;

void report_crash(int signal_number) {
    // Formatting is not signal-safe, but the process is lost anyway.
    if (running != nullptr) {
        const std::string text =
            "crash in isa " + std::string(to_string(running_isa)) + ": " + to_text(*running) + '\n';
        [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
    }
    std::signal(signal_number, SIG_DFL);
    std::raise(signal_number);
}

double read_as(data_type type, const std::byte *data, dim offset) {
    switch (type) {
    case data_type::bf16: {
        bf16 v{};
        std::memcpy(&v, data + offset * 2, 2);
        return conv::to_float(v);
    }
    case data_type::f16: {
        f16 v{};
        std::memcpy(&v, data + offset * 2, 2);
        return conv::to_float(v);
    }
    default: {
        float v = 0;
        std::memcpy(&v, data + offset * 4, 4);
        return v;
    }
    }
}

void write_as(data_type type, std::byte *data, dim offset, double value) {
    switch (type) {
    case data_type::bf16: {
        const bf16 v = conv::round_to<bf16>(value);
        std::memcpy(data + offset * 2, &v, 2);
        break;
    }
    case data_type::f16: {
        const f16 v = conv::round_to<f16>(value);
        std::memcpy(data + offset * 2, &v, 2);
        break;
    }
    default: {
        const auto v = static_cast<float>(value);
        std::memcpy(data + offset * 4, &v, 4);
        break;
    }
    }
}

void *&output_pointer(conv::buffers &data, role r) {
    switch (r) {
    case role::src:
        return data.src;
    case role::dst:
        return data.dst;
    case role::bias:
        return data.bias;
    default:
        return data.weights;
    }
}

dim element_bytes(data_type type) {
    return type == data_type::f32 ? 4 : 2;
}

double most_terms(const conv::problem &p) {
    double space = 1, taps = 1, src = 1;
    for (const conv::axis &a : p.x) {
        space *= static_cast<double>(a.dst);
        src *= static_cast<double>(a.src);
        taps *= static_cast<double>(a.kernel);
    }
    switch (p.what) {
    case pass::forward:
        return taps * static_cast<double>(p.ic);
    case pass::backward_data:
        return taps * static_cast<double>(p.oc);
    case pass::backward_weights:
    case pass::backward_bias:
        break;
    }
    const double positions = p.diff_bias == conv::bias_gradient::from_src ? src : 0;
    return std::max(space, positions) * static_cast<double>(p.mb);
}

/// Whole numbers up to `bound`, zero except for a share `density` of them, so that no sum of
/// products of two such numbers passes 2^23 (and no sum with bias and so on 2^24).
struct integer_range {
    std::int64_t bound = 1;
    double density = 1;
};

integer_range integers_for(const conv::problem &p) {
    const double terms = std::max(1.0, most_terms(p));
    const double cap = p.type == data_type::f32 ? 1000 : p.type == data_type::bf16 ? 15 : 30;
    const double bound = std::clamp(std::floor(std::sqrt(0x1p23 / terms)), 1.0, cap);
    return {static_cast<std::int64_t>(bound), std::min(1.0, 0x1p22 / terms)};
}

/// Whether the sum may pass the end of f32's range on its way, or its rounding that of the output.
bool may_overflow(data_type type, double got, const conv::reference_value &exact, double bound) {
    if (!std::isfinite(exact.value)) return false;
    if (exact.magnitude > 0.99 * static_cast<double>(std::numeric_limits<float>::max()))
        return true;
    const double most = type == data_type::f16 ? 65504.0 : 0x1.fep127;
    return std::isinf(got) && std::fabs(exact.value) + bound >= most;
}

double random_real(rng &random) {
    const double v = 2 * random.unit() - 1;
    return std::ldexp(v, -static_cast<int>(random.between(0, 6)));
}

}  // namespace

namespace {

/// See cpu::forced_isa_for_testing(). Engines that exist already keep what they saw.
std::atomic<int> forced_isa{-1};

struct isa_offer {
    std::vector<isa> sets;
    bool emulated;
};

const isa_offer &offered_isas() {
    static const isa_offer offer = [] {
        isa_offer made{{}, cpu::name_of(cpu::detected()) == isa::avx512_bf16};
        if (made.emulated) {
            testing::amx_emulator::install();
            forced_isa = static_cast<int>(isa::amx_bf16);
        }
        for (const isa set : all_isas)
            if (cpu::detected().include(set)) made.sets.push_back(set);
        return made;
    }();
    return offer;
}

}  // namespace

std::span<const isa> usable_isas() {
    return offered_isas().sets;
}

std::span<const isa> usable_fma_isas() {
    static const std::vector<isa> sets = [] {
        std::vector<isa> found;
        for (const isa set : usable_isas())
            for (const cpu::kernel_line &line : cpu::kernel_lines)
                if (line.set == set && line.format == cpu::operand_format::fma)
                    found.push_back(set);
        return found;
    }();
    return sets;
}

std::vector<named> rows_of(const conv::problem &p, std::string_view fma, std::string_view dot2) {
    std::vector<named> all;
    for (const isa set : usable_fma_isas()) all.push_back({fma, set});
    if (p.type == data_type::bf16
        && std::ranges::find(usable_isas(), isa::avx512_bf16) != usable_isas().end())
        all.push_back({dot2, isa::avx512_bf16});
    return all;
}

namespace {

/// Cases are numbered in the order of nested loops, so any divisor of a loop's length would tie an
/// instruction set to one format. Scattered numbers do not.
std::uint64_t scattered(std::uint64_t number) {
    return rng(number ^ 0x5bd1e995U).next();
}

guarded_memory::side side_in_turn(std::uint64_t number) {
    return scattered(number) % 2 ? guarded_memory::side::begin : guarded_memory::side::end;
}

}  // namespace

std::span<const isa> affordable_isas(std::uint64_t number, std::uint64_t share) {
    const std::span<const isa> all = usable_isas();
    const bool turn = !offered_isas().emulated || scattered(number) % share == 0;
    return turn ? all : all.first(all.size() - 1);
}

isa affordable_isa(std::uint64_t number) {
    constexpr std::uint64_t share = 64;
    const std::span<const isa> sets = affordable_isas(number, share);
    if (offered_isas().emulated && sets.size() == usable_isas().size()) return sets.back();
    return sets[scattered(number) / share % sets.size()];
}

double error_bound(data_type out, double value, double magnitude, dim terms) {
    const double half_ulp = out == data_type::f32    ? 0x1p-24
                            : out == data_type::bf16 ? 0x1p-8
                                                     : 0x1p-11;
    const double subnormal = out == data_type::f16 ? 0x1p-25 : 0x1p-134;
    const double of_sum = static_cast<double>(terms + 4) * 0x1p-24 * magnitude
                          + static_cast<double>(terms) * 0x1p-126;
    return of_sum + half_ulp * (std::fabs(value) + of_sum) + subnormal;
}

workbench::workbench() {
    std::signal(SIGSEGV, report_crash);
    std::signal(SIGBUS, report_crash);
    std::signal(SIGFPE, report_crash);
}

namespace {

const conv::data_strides &output_strides(const conv::problem &p) {
    return p.what == pass::forward ? p.dst : p.src;
}

}  // namespace

bool workbench::is_output(role r) const {
    return r == output_of(problem_) || (r == role::bias && problem_.what == pass::backward_weights);
}

void workbench::load(const conv::problem &p, fill how, std::uint64_t seed,
    std::optional<guarded_memory::side> side) {
    problem_ = p;
    forget_exact_values();
    rng random(seed);
    ++loads_;
    for (const role r : all_roles) {
        tensor_memory &t = of(r);
        t.bytes = static_cast<std::size_t>(span_of(p, r) * element_bytes(type_of(p, r)));
        t.data = t.memory.place(
            t.bytes, side.value_or(side_in_turn(loads_ * 8 + static_cast<std::uint64_t>(r))));
        std::fill_n(t.data, t.bytes, poison);
        if (!is_output(r) || p.accumulate) fill_tensor(r, how, random);
        if (is_output(r)) t.initial.assign(t.data, t.data + t.bytes);
    }
    // Empty tensors have no memory: nothing may be read through their pointers.
    const auto pointer = [&](role r) { return of(r).bytes == 0 ? nullptr : of(r).data; };
    data_ = {pointer(role::src), pointer(role::weights), pointer(role::dst), pointer(role::bias),
        pointer(role::add)};
    in_place_ = false;
    if (p.add && p.add_strides == output_strides(p) && scattered(seed) % 2 == 0) add_in_place();
}

void workbench::add_in_place() {
    tensor_memory &out = of(output_of(problem_));
    if (out.bytes == 0) return;
    forget_exact_values();
    out.initial.assign(of(role::add).data, of(role::add).data + of(role::add).bytes);
    data_.add = out.data;
    in_place_ = true;
}

void workbench::fill_gaps(std::byte with) {
    for (const role r : all_roles) {
        tensor_memory &t = of(r);
        if (is_output(r) || t.bytes == 0) continue;
        const auto bytes = static_cast<std::size_t>(element_bytes(type_of(problem_, r)));
        std::vector<std::byte> filled(t.bytes, with);
        for_each_element(extents_of(problem_, r), [&](const auto &, dim offset) {
            const std::size_t at = static_cast<std::size_t>(offset) * bytes;
            std::memcpy(&filled[at], t.data + at, bytes);
        });
        std::memcpy(t.data, filled.data(), t.bytes);
    }
}

void workbench::fill_tensor(role r, fill how, rng &random) {
    const data_type type = type_of(problem_, r);
    const integer_range range = integers_for(problem_);
    std::byte *data = of(r).data;
    for_each_element(extents_of(problem_, r), [&](const auto &, dim offset) {
        double v = 0;
        if (how == fill::reals)
            v = random_real(random);
        else if (range.density == 1 || random.chance(range.density))
            v = static_cast<double>(random.between(-range.bound, range.bound));
        write_as(type, data, offset, v);
    });
}

double workbench::read(role r, dim offset) const {
    return read_as(type_of(problem_, r), of(r).data, offset);
}

void workbench::write(role r, dim offset, double value) {
    forget_exact_values();
    if (r == role::add && in_place_) write_initial(output_of(problem_), offset, value);
    write_as(type_of(problem_, r), of(r).data, offset, value);
}

double workbench::read_expected(role r, dim offset) const {
    return read_as(type_of(problem_, r), of(r).expected.data(), offset);
}

void workbench::write_initial(role r, dim offset, double value) {
    forget_exact_values();
    write_as(type_of(problem_, r), of(r).initial.data(), offset, value);
}

void workbench::run_reference() {
    conv::buffers data = data_;
    for (const role r : all_roles) {
        if (!is_output(r)) continue;
        tensor_memory &t = of(r);
        t.expected = t.initial;
        output_pointer(data, r) = t.expected.data();
        if (in_place_ && r == output_of(problem_)) data.add = t.expected.data();
    }
    conv::reference(problem_, data);
}

void workbench::restore_outputs() {
    for (const role r : all_roles) {
        tensor_memory &t = of(r);
        if (is_output(r)) std::copy(t.initial.begin(), t.initial.end(), t.data);
    }
}

run_report workbench::run(const run_options &how) {
    running = &problem_;
    running_isa = how.max_isa;
    conv::problem asked = problem_;
    asked.constant_weights = how.constant_weights;
    const auto plan = cpu::make_plan(asked, {.max_isa = how.max_isa,
                                                .threads = how.threads,
                                                .workspace = how.workspace_limit,
                                                .only_algorithm = how.algorithm,
                                                .random_estimates = how.random_estimates});
    restore_outputs();
    // Aligned to 64 bytes, so up to 63 bytes remain before the guard page: canaries.
    const std::size_t bytes = plan->workspace(), room = (bytes + 63) / 64 * 64;
    std::byte *workspace = workspace_.place(room, side_in_turn(++runs_));
    std::fill_n(workspace, room, poison);
    const cpu::executor threads(how.pool, how.threads);
    conv::buffers data = data_;
    const auto prepared = plan->prepare_weights(data, workspace, threads);
    if ((prepared != nullptr) != (plan->facts().prepared != 0))
        throw std::logic_error("prepared, or not, against its word: " + to_text(problem_));
    data.prepared = prepared.get();
    if (prepared != nullptr) std::fill_n(workspace, room, poison);
    plan->run(data, workspace, threads);
    for (std::size_t i = bytes; i < room; ++i)
        if (workspace[i] != poison)
            throw std::logic_error("written past the workspace: " + to_text(problem_));
    running = nullptr;
    return {std::string(plan->algorithm()), plan->instruction_set(), bytes, plan->facts().kept,
        plan->facts().prepared};
}

std::string workbench::compare_exact() const {
    for (const role r : all_roles)
        if (std::string text = compare(r, nullptr); !text.empty()) return text;
    return {};
}

std::string workbench::compare_bounded(const leniency &allowed) const {
    for (const role r : all_roles)
        if (std::string text = compare(r, &allowed); !text.empty()) return text;
    return {};
}

std::string workbench::compare(role r, const leniency *allowed) const {
    const tensor_memory &t = of(r);
    if (!is_output(r) || t.bytes == 0) return {};
    if (std::memcmp(t.data, t.expected.data(), t.bytes) == 0) return {};
    return compare_elements(r, allowed);
}

conv::reference_value workbench::exact_value(role r, const std::array<dim, 6> &at) const {
    conv::buffers data = data_;
    auto *initial = const_cast<std::byte *>(of(r).initial.data());
    output_pointer(data, r) = initial;
    if (in_place_ && r == output_of(problem_)) data.add = initial;
    if (r == role::bias) return conv::reference_bias_at(problem_, data, at[0]);
    if (r == role::weights)
        return conv::reference_at(
            problem_, data, {at[0] * problem_.oc + at[1], at[2], {at[3], at[4], at[5]}});
    return conv::reference_at(problem_, data, {at[0], at[1], {at[2], at[3], at[4]}});
}

const conv::reference_value &workbench::exact_value(
    role r, const std::array<dim, 6> &at, dim offset) const {
    auto &known = of(r).exact;
    if (known.empty()) known.resize(static_cast<std::size_t>(span_of(problem_, r)));
    auto &found = known[static_cast<std::size_t>(offset)];
    if (!found) found = exact_value(r, at);
    return *found;
}

void workbench::forget_exact_values() {
    for (const role r : all_roles) of(r).exact.clear();
}

std::string workbench::compare_elements(role r, const leniency *allowed) const {
    const tensor_memory &t = of(r);
    const data_type type = type_of(problem_, r);
    const auto bytes = static_cast<std::size_t>(element_bytes(type));
    std::vector<bool> is_gap(t.bytes / bytes, true);
    std::string text;
    for_each_element(extents_of(problem_, r), [&](const auto &at, dim offset) {
        is_gap[static_cast<std::size_t>(offset)] = false;
        const std::size_t start = static_cast<std::size_t>(offset) * bytes;
        if (!text.empty() || std::memcmp(&t.data[start], &t.expected[start], bytes) == 0) return;
        const double got = read_as(type, t.data, offset);
        const double expected = read_as(type, t.expected.data(), offset);
        if (allowed != nullptr && std::isnan(got) && std::isnan(expected)) return;
        const conv::reference_value *exact = nullptr;
        double bound = 0;
        if (allowed != nullptr) {
            exact = &exact_value(r, at, offset);
            bound = error_bound(type, exact->value, exact->magnitude, exact->terms)
                    + allowed->product_error * exact->magnitude + allowed->absolute;
            if (std::fabs(got - exact->value) <= bound) return;
            if (allowed->overflow && may_overflow(type, got, *exact, bound)) return;
        }
        std::ostringstream out;
        out.precision(12);
        out << "role " << static_cast<int>(r) << " at (" << at[0] << ' ' << at[1] << ' ' << at[2]
            << ' ' << at[3] << ' ' << at[4] << ' ' << at[5] << "): got " << got << ", expected "
            << expected;
        if (exact != nullptr) out << " (exactly " << exact->value << "), bound " << bound;
        text = out.str();
    });
    for (std::size_t i = 0; i < is_gap.size() && text.empty(); ++i)
        if (is_gap[i] && std::memcmp(&t.data[i * bytes], &t.initial[i * bytes], bytes) != 0)
            text = "role " + std::to_string(static_cast<int>(r)) + ": wrote into the gap at offset "
                   + std::to_string(i);
    return text.empty() ? text : text + "\n  in " + to_text(problem_);
}

std::vector<std::byte> workbench::output_bytes() const {
    std::vector<std::byte> all;
    for (const role r : all_roles)
        if (is_output(r)) all.insert(all.end(), of(r).data, of(r).data + of(r).bytes);
    return all;
}

}  // namespace convgrad::test

int convgrad::cpu::forced_isa_for_testing() {
    return convgrad::test::forced_isa;
}
