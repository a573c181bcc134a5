#include "bench_scan_points.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

namespace convgrad::cli {
namespace {

/// The largest problems: about a millisecond at 100 GFLOP/s, or from memory.
constexpr double most_flops = 1e8, most_elements = 3e6;
/// Smaller ones would show the cost of a call.
constexpr double least_flops = 5e6, least_elements = 1e5;

class draw {
public:
    explicit draw(std::uint64_t seed) : random_(seed) {}
    /// In [first, last]. Not std::uniform_int_distribution, which differs between libraries.
    dim between(dim first, dim last) {
        return first + static_cast<dim>(random_() % static_cast<std::uint64_t>(last - first + 1));
    }
    template <typename T, std::size_t N>
    T one_of(const T (&list)[N]) {
        return list[static_cast<std::size_t>(between(0, N - 1))];
    }
    double real() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

private:
    std::mt19937_64 random_;
};

std::size_t first_axis(const problem_string &p) {
    return static_cast<std::size_t>(3 - p.rank);
}

dim extent(const spatial &a) {
    return (a.kernel - 1) * (a.dilation + 1) + 1;
}

/// Output sizes that follow from the others; false if there is no such problem.
bool complete(problem_string &p, draw &random) {
    for (std::size_t i = first_axis(p); i < 3; ++i) {
        spatial &a = p.x[i];
        if (p.deconv) {
            a.out = (a.in - 1) * a.stride + extent(a) - 2 * a.pad + random.between(0, a.stride - 1);
        } else {
            const dim span = a.in + 2 * a.pad - extent(a);
            if (span < 0) return false;
            a.out = span / a.stride + 1;
        }
        if (a.out < 1) return false;
    }
    return true;
}

dim changed_channels(dim channels, draw &random) {
    constexpr dim special[] = {1, 2, 3, 4, 8, 16, 17, 24, 35, 48, 64, 96, 255};
    switch (random.between(0, 3)) {
    case 0:
        return random.one_of(special);
    case 1:
        return std::max<dim>(1, channels + random.between(-3, 3));
    case 2:
        return channels * 2;
    default:
        return std::max<dim>(1, channels / 2);
    }
}

void change_groups(problem_string &p, draw &random) {
    constexpr dim counts[] = {1, 2, 3, 4, 8, 16, 32, 64};
    const dim wide = std::max(p.ic, p.oc);
    const bool depthwise = random.between(0, 3) == 0;
    const dim g = depthwise ? std::min<dim>(wide, 512) : random.one_of(counts);
    p.ic = std::max<dim>(1, p.ic / g) * g;
    p.oc = std::max<dim>(1, p.oc / g) * g;
    p.groups = g;
}

void change_channels(problem_string &p, bool input, draw &random) {
    const bool depthwise = p.ic == p.groups && p.oc == p.groups && p.groups > 1;
    if (depthwise && random.between(0, 2) > 0) {  // another number of groups
        const dim g = changed_channels(p.groups, random);
        p.ic = p.oc = p.groups = g;
        return;
    }
    dim &channels = input ? p.ic : p.oc;
    channels = changed_channels(channels / p.groups, random) * p.groups;
}

/// The same change on all axes, or on one.
template <typename Change>
void change_axes(problem_string &p, draw &random, const Change &change) {
    const std::size_t first = first_axis(p);
    const bool all = random.between(0, 3) > 0;
    const auto one = static_cast<std::size_t>(random.between(static_cast<dim>(first), 2));
    for (std::size_t i = first; i < 3; ++i)
        if (all || i == one) change(p.x[i]);
}

void change_once(problem_string &p, draw &random) {
    constexpr dim kernels[] = {1, 2, 3, 3, 4, 5, 7, 11}, strides[] = {1, 2, 2, 3, 4};
    constexpr dim dilations[] = {0, 1, 2, 5, 11}, batches[] = {1, 2, 3, 5, 8, 16, 32};
    const dim value = random.between(-3, 3);
    const bool same_pad = random.between(0, 2) > 0;
    switch (random.between(0, 8)) {
    case 0:
        return change_channels(p, true, random);
    case 1:
        return change_channels(p, false, random);
    case 2:
        return change_groups(p, random);
    case 3: {
        const dim k = random.one_of(kernels);
        return change_axes(p, random, [&](spatial &a) {
            a.kernel = k;
            a.pad = same_pad ? (extent(a) - 1) / 2 : 0;
        });
    }
    case 4: {
        const dim s = random.one_of(strides);
        return change_axes(p, random, [&](spatial &a) { a.stride = s; });
    }
    case 5: {
        const dim d = random.one_of(dilations);
        return change_axes(p, random, [&](spatial &a) {
            a.dilation = a.kernel > 1 ? d : 0;
            a.pad = same_pad ? (extent(a) - 1) / 2 : 0;
        });
    }
    case 6:
        return change_axes(p, random, [&](spatial &a) { a.in = std::max<dim>(1, a.in + value); });
    case 7:
        return change_axes(p, random,
            [&](spatial &a) { a.in = std::max<dim>(1, value > 0 ? a.in * 2 : a.in / 2); });
    default:
        p.mb = random.one_of(batches);
    }
}

double real(dim n) {
    return static_cast<double>(n);
}

double flops_of(const problem_string &p) {
    double v = 2 * real(p.mb) * real(p.oc / p.groups) * real(p.ic);
    for (const spatial &a : p.x) v *= real(p.deconv ? a.in : a.out) * real(a.kernel);
    return v;
}

double elements_of(const problem_string &p) {
    double src = real(p.mb) * real(p.ic), dst = real(p.mb) * real(p.oc),
           weights = real(p.ic / p.groups) * real(p.oc);
    for (const spatial &a : p.x) {
        src *= real(a.in);
        dst *= real(a.out);
        weights *= real(a.kernel);
    }
    return src + dst + weights;
}

/// Halves what there is most of: images, then space, then channels. False: nothing is left.
bool halve(problem_string &p) {
    if (p.mb > 1) {
        p.mb /= 2;
        return true;
    }
    auto longest = std::max_element(
        p.x.begin(), p.x.end(), [](const spatial &a, const spatial &b) { return a.in < b.in; });
    if (longest->in >= 8 && longest->in >= 2 * extent(*longest)) {
        longest->in /= 2;
        return true;
    }
    const bool depthwise = p.ic == p.groups || p.oc == p.groups;
    if (depthwise && p.groups > 1 && p.groups % 2 == 0) {
        p.groups /= 2;
        p.ic /= 2;
        p.oc /= 2;
        return true;
    }
    dim &channels = p.ic > p.oc ? p.ic : p.oc;
    const dim half = channels / p.groups / 2;
    if (half >= 1) channels = half * p.groups;
    return half >= 1;
}

/// The problem as small as the scan wants it; nothing if it cannot be.
std::optional<problem_string> fitted(problem_string p, draw &random) {
    const double flops = least_flops * std::pow(most_flops / least_flops, random.real());
    if (!complete(p, random)) return std::nullopt;
    while (flops_of(p) > flops || elements_of(p) > most_elements)
        if (!halve(p) || !complete(p, random)) return std::nullopt;
    while (flops_of(p) < least_flops || elements_of(p) < least_elements) {
        if (2 * elements_of(p) > most_elements || p.mb > 256 || p.mb == 0) return std::nullopt;
        p.mb *= 2;
    }
    p.name.clear();
    p.count = 1;
    try {
        return parse_problem(to_text(p), p.deconv);  // also finds what is not legal
    } catch (const problem_error &) {
        return std::nullopt;
    }
}

/// The cases of `centres` by problem.
std::vector<std::vector<const op_case *>> by_problem(const std::vector<op_case> &centres) {
    std::vector<std::vector<const op_case *>> list;
    for (const op_case &c : centres) {
        if (list.empty() || list.back().front()->problem != c.problem) list.emplace_back();
        list.back().push_back(&c);
    }
    return list;
}

/// One case for each op and type among `all`, the rest drawn.
void append_cases(std::vector<op_case> &points, const std::vector<const op_case *> &all,
    std::shared_ptr<const problem_string> problem, draw &random) {
    std::vector<std::pair<op_kind, data_type>> seen;
    for (const op_case *c : all) {
        const std::pair key(c->kind, c->type);
        if (std::find(seen.begin(), seen.end(), key) != seen.end()) continue;
        seen.push_back(key);
        std::vector<const op_case *> same;
        for (const op_case *o : all)
            if (o->kind == c->kind && o->type == c->type) same.push_back(o);
        op_case point =
            *same[static_cast<std::size_t>(random.between(0, static_cast<dim>(same.size()) - 1))];
        point.problem = problem;
        points.push_back(std::move(point));
    }
}

}  // namespace

std::vector<op_case> scan_points(
    const std::vector<op_case> &centres, std::size_t count, std::uint64_t seed) {
    draw random(seed);
    const auto groups = by_problem(centres);
    std::vector<op_case> points;
    constexpr int patience = 1000;  // for a centre that cannot be made to fit
    int refused = 0;
    for (std::size_t made = 0; !groups.empty() && made < count && refused < patience;) {
        const auto &cases = groups[static_cast<std::size_t>(
            random.between(0, static_cast<dim>(groups.size()) - 1))];
        problem_string p = *cases.front()->problem;
        for (dim changes = random.between(0, 3); changes > 0; --changes) change_once(p, random);
        const auto fits = fitted(std::move(p), random);
        if (!fits) {
            ++refused;
            continue;
        }
        refused = 0;
        ++made;
        append_cases(points, cases, std::make_shared<problem_string>(*fits), random);
    }
    return points;
}

scan_position position_of(const op_case &c) {
    const problem_string &p = *c.problem;
    const auto log = [](dim n) { return std::log2(real(n)); };
    scan_position at = {log(p.mb), log(p.groups), log(p.ic / p.groups), log(p.oc / p.groups), 0, 0,
        0, 0, 2.0 * p.rank};
    for (const spatial &a : p.x) {
        at[4] += log(p.deconv ? a.in : a.out);
        at[5] += log(a.kernel);
        at[6] += log(a.stride);
        at[7] += a.kernel > 1 ? log(a.dilation + 1) : 0;
    }
    return at;
}

double distance(
    const op_case &a, const scan_position &at_a, const op_case &b, const scan_position &at_b) {
    double sum = 0;
    for (std::size_t i = 0; i < at_a.size(); ++i) sum += std::abs(at_a[i] - at_b[i]);
    sum += a.type == b.type ? 0 : 0.5;
    sum += a.data == b.data ? 0 : 0.5;
    sum += a.weights == b.weights ? 0 : 0.5;
    return sum;
}

}  // namespace convgrad::cli
