#include "problem_string.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "output.hpp"

namespace convgrad::cli {
namespace {

__extension__ using wide = __int128;
constexpr std::size_t whole = std::string_view::npos;
constexpr std::array<char, 3> axis_letters = {'d', 'h', 'w'};

/// The values of one axis as written; nothing is known yet of what was left out.
struct written_axis {
    std::optional<dim> in, out, kernel, stride, dilation, pad;

    /// benchdnn's notion of an axis that the problem does not have: no part was given, or only with
    /// the value that means the same as leaving it out.
    [[nodiscard]] bool absent() const {
        return in.value_or(0) == 0 && out.value_or(0) == 0 && kernel.value_or(0) == 0
               && dilation.value_or(0) == 0 && stride.value_or(1) == 1 && pad.value_or(0) == 0;
    }
};

struct written {
    std::optional<dim> groups, mb, ic, oc;
    std::array<written_axis, 3> x;
    std::string_view name;
};

/// The place where the part `key` (two letters, or "g") is stored; null if there is none.
std::optional<dim> *place(written &w, std::string_view key) {
    if (key == "g") return &w.groups;
    if (key == "mb") return &w.mb;
    if (key == "ic") return &w.ic;
    if (key == "oc") return &w.oc;
    if (key.size() != 2) return nullptr;
    const auto letter = std::find(axis_letters.begin(), axis_letters.end(), key[1]);
    if (letter == axis_letters.end()) return nullptr;
    written_axis &a = w.x[static_cast<std::size_t>(letter - axis_letters.begin())];
    switch (key[0]) {
    case 'i':
        return &a.in;
    case 'o':
        return &a.out;
    case 'k':
        return &a.kernel;
    case 's':
        return &a.stride;
    case 'd':
        return &a.dilation;
    case 'p':
        return &a.pad;
    default:
        return nullptr;
    }
}

/// Reads the number at `at` and moves `at` behind it.
dim read_number(std::string_view text, std::size_t &at, std::string_view key) {
    const std::size_t start = at;
    if (at < text.size() && text[at] == '+') ++at;
    dim value = 0;
    const char *first = text.data() + at, *last = text.data() + text.size();
    const auto [end, status] = std::from_chars(first, last, value);
    if (status == std::errc::result_out_of_range)
        throw problem_error(fmt::format("the value of {} does not fit 64 bits", key), start);
    if (status != std::errc{})
        throw problem_error(fmt::format("expected a number after {}", key), start);
    if (value < 0) throw problem_error(fmt::format("{} is {}, but must be ≥ 0", key, value), start);
    at = static_cast<std::size_t>(end - text.data());
    return value;
}

written read_parts(std::string_view text) {
    written w;
    std::size_t at = 0;
    while (at < text.size()) {
        if (text[at] == '_') {
            ++at;
            continue;
        }
        if (text[at] == 'n') {  // the name is the rest
            w.name = text.substr(at + 1);
            break;
        }
        const std::string_view key = text.substr(at, text[at] == 'g' ? 1 : 2);
        std::optional<dim> *slot = place(w, key);
        if (slot == nullptr)
            throw problem_error(
                fmt::format("unknown part '{}'; expected g, mb, ic, oc, one of i, o, k, s, d, p "
                            "followed by an axis d, h or w, or n\"name\"",
                    key),
                at);
        at += key.size();
        *slot = read_number(text, at, key);
    }
    return w;
}

dim narrow(wide value, std::string_view what) {
    constexpr wide low = std::numeric_limits<dim>::min(), high = std::numeric_limits<dim>::max();
    if (value < low || value > high)
        throw problem_error(fmt::format("{} does not fit 64 bits", what), whole);
    return static_cast<dim>(value);
}

/// E = (dilation + 1)·(kernel − 1) + 1. Three factors below 2^63 would not fit 128 bits, so the
/// extent is brought back to 64 bits before it is used further.
wide extent(const spatial &a) {
    return narrow(wide{a.kernel - 1} * (wide{a.dilation} + 1) + 1, "the dilated kernel's extent");
}

/// (longer side, shorter side): a transposed convolution maps the other way.
struct sides {
    dim longer, shorter;
};
sides sides_of(const spatial &a, bool deconv) {
    return deconv ? sides{a.out, a.in} : sides{a.in, a.out};
}

/// Begin pad plus end pad.
wide total_pad(const spatial &a, bool deconv) {
    const auto [longer, shorter] = sides_of(a, deconv);
    return wide{shorter - 1} * a.stride - longer + extent(a);
}

dim required(std::optional<dim> value, char part, char letter) {
    if (value.value_or(0) == 0)
        throw problem_error(fmt::format("{}{} is missing or 0", part, letter), whole);
    return *value;
}

/// Works out an axis the way benchdnn does: output size from the other values, or, where that is
/// given and the pad is not, the pad that centres the kernel.
spatial complete(const written_axis &w, char letter, bool deconv) {
    spatial a;
    a.in = required(w.in, 'i', letter);
    a.kernel = required(w.kernel, 'k', letter);
    a.stride = required(w.stride.value_or(1), 's', letter);
    a.dilation = w.dilation.value_or(0);
    narrow(wide{a.dilation} + 1, fmt::format("d{} + 1", letter));
    if (w.out.value_or(0) != 0) {
        a.out = *w.out;
        a.pad = w.pad ? *w.pad : narrow(total_pad(a, deconv) / 2, fmt::format("p{}", letter));
        return a;
    }
    a.pad = w.pad.value_or(0);
    const wide twice = wide{a.pad} * 2;
    // Division towards zero, as benchdnn does: a kernel too large by less than a stride gets one
    // output, and an end pad that makes it fit.
    const wide spare = wide{a.in} + twice - extent(a);
    const wide out = deconv ? wide{a.in - 1} * a.stride + extent(a) - twice : spare / a.stride + 1;
    a.out = narrow(out, fmt::format("o{}", letter));
    if (a.out < 1)
        throw problem_error(
            fmt::format("o{} was left out, and the other values make it {}", letter, a.out), whole);
    return a;
}

/// An axis w with only some of its values takes the others from h (benchdnn: an error).
written_axis fill_from(const written_axis &w, const written_axis &h) {
    written_axis a = w;
    if (a.in.value_or(0) == 0) a.in = h.in;
    if (a.kernel.value_or(0) == 0) a.kernel = h.kernel;
    if (!a.stride) a.stride = h.stride;
    if (!a.dilation) a.dilation = h.dilation;
    if (!a.pad) a.pad = h.pad;
    const bool same_input = a.in == h.in && a.kernel == h.kernel && a.stride == h.stride
                            && a.dilation == h.dilation && a.pad == h.pad;
    if (!a.out && same_input) a.out = h.out;
    return a;
}

void complete_axes(problem_string &p, const written &w) {
    const bool has_d = !w.x[0].absent(), has_h = !w.x[1].absent(), has_w = !w.x[2].absent();
    if (!has_d && !has_h && !has_w)
        throw problem_error("no spatial axis; expected at least iw and kw (1-D), ih and kh (2-D), "
                            "or id and kd (3-D)",
            whole);
    if (has_d && has_h != has_w)
        throw problem_error(
            "a 3-D problem gives either the axis d alone (a cube) or all of d, h and w", whole);
    p.rank = has_d ? 3 : has_h ? 2 : 1;
    if (has_d) p.x[0] = complete(w.x[0], 'd', p.deconv);
    if (has_h)
        p.x[1] = complete(w.x[1], 'h', p.deconv);
    else if (has_d)
        p.x[1] = p.x[0];
    if (!has_w) {
        p.x[2] = p.x[1];
        return;
    }
    const bool partial = w.x[2].in.value_or(0) == 0 || w.x[2].kernel.value_or(0) == 0;
    p.x[2] = complete(partial && p.rank == 2 ? fill_from(w.x[2], w.x[1]) : w.x[2], 'w', p.deconv);
}

/// Takes the quotes off and splits `name*N`. Control characters would act on the terminal that
/// shows the name.
void set_name(problem_string &p, std::string_view text) {
    std::string name;
    for (const char c : text)
        if (c != '"') name += is_control(c) ? '?' : c;
    const std::size_t star = name.rfind('*');
    if (star != std::string::npos) {
        const char *first = name.data() + star + 1, *last = name.data() + name.size();
        dim n = 0;
        const auto [end, status] = std::from_chars(first, last, n);
        if (status == std::errc{} && end == last && n > 0) p.count = n;
    }
    p.name = std::move(name);
}

void check_axis(const spatial &a, char letter, bool deconv) {
    if (a.pad < 0)
        throw problem_error(
            fmt::format("p{0} was left out, and o{0} {1} is too small for i{0} {2}: the pad would "
                        "be {3}",
                letter, a.out, a.in, a.pad),
            whole);
    const dim end = end_pad(a, deconv);
    if (!deconv && end <= -a.stride)
        throw problem_error(
            fmt::format(
                "o{0} is {1}, but i{0} {2}, k{0} {3}, s{0} {4}, d{0} {5} and p{0} {6} give at "
                "least {7}",
                letter, a.out, a.in, a.kernel, a.stride, a.dilation, a.pad,
                static_cast<dim>((wide{a.in} + a.pad - extent(a)) / a.stride + 1)),
            whole);
    const dim limit = std::max(a.stride, a.dilation + 1);
    if (deconv && -end >= limit)
        throw problem_error(
            fmt::format(
                "o{0} is {1}, larger than i{0} {2}, k{0} {3}, s{0} {4}, d{0} {5} and p{0} {6} "
                "give by {7}; the excess (output_padding) must be less than {8}",
                letter, a.out, a.in, a.kernel, a.stride, a.dilation, a.pad, -end, limit),
            whole);
}

/// Bytes of a tensor must fit 64 bits, in the widest type.
void check_size(std::initializer_list<dim> extents, std::string_view what) {
    wide elements = 1;
    for (dim d : extents)
        if (d == 0) return;
    for (dim d : extents) {
        elements *= d;
        if (elements > std::numeric_limits<dim>::max() / wide{sizeof(float)})
            throw problem_error(
                fmt::format("the size of {} in bytes does not fit 64 bits", what), whole);
    }
}

void check(const problem_string &p) {
    if (p.groups < 1) throw problem_error("g must be ≥ 1", whole);
    for (auto [value, key] : {std::pair{p.ic, "ic"}, std::pair{p.oc, "oc"}})
        if (value % p.groups != 0)
            throw problem_error(
                fmt::format("g {} does not divide {} {}", p.groups, key, value), whole);
    const auto &[d, h, w] = p.x;
    for (std::size_t i = 0; i < 3; ++i) check_axis(p.x[i], axis_letters[i], p.deconv);
    check_size({p.mb, p.ic, d.in, h.in, w.in}, "src");
    check_size({p.mb, p.oc, d.out, h.out, w.out}, "dst");
    check_size({p.ic, p.oc / p.groups, d.kernel, h.kernel, w.kernel}, "weights");
}

/// Appends e.g. "kh3kw5": the axes that `axes` selects, in order.
template <typename Value>
void append(std::string &out, char part, const problem_string &p, const std::array<bool, 3> &axes,
    Value value) {
    for (std::size_t i = 0; i < 3; ++i)
        if (axes[i]) out += fmt::format("{}{}{}", part, axis_letters[i], value(p.x[i]));
}

}  // namespace

dim end_pad(const spatial &a, bool deconv) {
    return narrow(total_pad(a, deconv) - a.pad, "the end pad");
}

problem_string parse_problem(std::string_view text, bool deconv) {
    const written w = read_parts(text);
    problem_string p;
    p.deconv = deconv;
    p.groups = w.groups.value_or(1);
    p.mb = w.mb.value_or(2);
    if (!w.ic) throw problem_error("ic is missing", whole);
    if (!w.oc) throw problem_error("oc is missing", whole);
    p.ic = *w.ic;
    p.oc = *w.oc;
    complete_axes(p, w);
    set_name(p, w.name);
    check(p);
    return p;
}

std::string to_text(const problem_string &p, bool with_name) {
    const bool square = p.x[1] == p.x[2], cube = square && p.x[0] == p.x[1];
    const std::array<bool, 3> axes = {p.rank == 3, p.rank == 2 || (p.rank == 3 && !cube),
        p.rank == 1 || (p.rank == 2 && !square) || (p.rank == 3 && !cube)};
    const auto any = [&](auto test) { return std::any_of(p.x.begin(), p.x.end(), test); };

    std::string out;
    if (p.groups != 1) out += fmt::format("g{}", p.groups);
    out += fmt::format("mb{}ic{}", p.mb, p.ic);
    append(out, 'i', p, axes, [](const spatial &a) { return a.in; });
    out += fmt::format("oc{}", p.oc);
    append(out, 'o', p, axes, [](const spatial &a) { return a.out; });
    append(out, 'k', p, axes, [](const spatial &a) { return a.kernel; });
    if (any([](const spatial &a) { return a.stride != 1; }))
        append(out, 's', p, axes, [](const spatial &a) { return a.stride; });
    if (any([](const spatial &a) { return a.dilation != 0; }))
        append(out, 'd', p, axes, [](const spatial &a) { return a.dilation; });
    // A pad that is left out is worked out from the output size, which need not give 0.
    if (any([&](const spatial &a) { return a.pad != 0 || total_pad(a, p.deconv) / 2 != 0; }))
        append(out, 'p', p, axes, [](const spatial &a) { return a.pad; });
    if (with_name && !p.name.empty()) out += fmt::format("n\"{}\"", p.name);
    return out;
}

std::string describe(const problem_error &error, std::string_view text) {
    if (error.position == whole) return fmt::format("problem '{}': {}", text, error.what());
    return fmt::format("problem '{}': position {}: {}\n  {}\n  {:>{}}", text, error.position + 1,
        error.what(), text, "^", error.position + 1);
}

}  // namespace convgrad::cli
