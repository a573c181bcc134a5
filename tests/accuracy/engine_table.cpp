#include "accuracy/engine_table.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <stdexcept>
#include <tuple>

#include "accuracy/engine_runs.hpp"
#include "accuracy/table_text.hpp"

namespace convgrad::accuracy {
namespace {

using conv::pass;

constexpr std::uint64_t seeds = 2;
constexpr std::string_view plain_sum = "*plain f32 sum*";
constexpr std::string_view head =
    "type,layers,pass,output,method,data,largest_sum,largest_ulp,rms_sum,elements,wrong";
constexpr data_type all_types[] = {data_type::f32, data_type::bf16, data_type::f16};
constexpr pass all_passes[] = {
    pass::forward, pass::backward_data, pass::backward_weights, pass::backward_bias};

std::string_view name_of(pass what) {
    return what == pass::forward            ? "forward"
           : what == pass::backward_data    ? "data gradient"
           : what == pass::backward_weights ? "weights gradient"
                                            : "bias gradient";
}

std::string chosen_in(math_mode math) {
    return "*chosen*, " + std::string(convgrad::to_string(math));
}

/// One line of the file.
struct line_key {
    data_type type;
    pass what;
    row_key row;
    flavour data;
};

/// What a file holds: the device, and lines in order.
struct measurement {
    std::string device;
    std::vector<std::pair<line_key, errors>> lines;

    errors &at(const line_key &key) {
        for (auto &[k, e] : lines)
            if (k.type == key.type && k.what == key.what && k.row == key.row && k.data == key.data)
                return e;
        return lines.emplace_back(key, errors{}).second;
    }
    /// All lines that `takes` accepts together.
    template <typename Takes>
    errors sum(Takes &&takes) const {
        errors all;
        for (const auto &[key, e] : lines)
            if (takes(key)) all.merge(e);
        return all;
    }
};

/// "cuda.wgmma" of "cuda.wgmma, fast".
std::string algorithm_of(std::string_view method) {
    return std::string(method.substr(0, method.find(',')));
}

measurement measure(engine_runs &on) {
    measurement m{on.name(), {}};
    for (const data_type type : all_types)
        for (const family f : engine_families)
            for_each_subject(
                engine_problems_of(f, type), seeds, [&](const named_problem &n, subject &s) {
                    const auto at = [&](std::string method) -> errors & {
                        return m.at({type, n.p.what,
                            {f, n.p.out_type != n.p.type, std::move(method)}, s.data()});
                    };
                    at(std::string(plain_sum)).merge(s.plain());
                    for (const engine_method &one : on.methods_for(n.p))
                        at(one.name).merge(on.run(s, *one.plan));
                    for (const math_mode math : modes_of(type))
                        at(chosen_in(math)).merge(on.run(s, *on.chosen(n.p, math)));
                });
    return m;
}

/// Some algorithms alone, on the problems that they take.
measurement measure(engine_runs &on, const std::vector<std::string> &only) {
    measurement m{on.name(), {}};
    const auto wanted = [&](const conv::problem &p) {
        std::vector<engine_method> methods = on.methods_for(p);
        std::erase_if(methods, [&](const engine_method &one) {
            return std::ranges::find(only, algorithm_of(one.name)) == only.end();
        });
        return methods;
    };
    for (const data_type type : all_types)
        for (const family f : engine_families) {
            std::vector<named_problem> problems = engine_problems_of(f, type);
            std::erase_if(problems, [&](const named_problem &n) { return wanted(n.p).empty(); });
            for_each_subject(problems, seeds, [&](const named_problem &n, subject &s) {
                for (const engine_method &one : wanted(n.p))
                    m.at({type, n.p.what, {f, n.p.out_type != n.p.type, one.name}, s.data()})
                        .merge(on.run(s, *one.plan));
            });
        }
    return m;
}

/// Fields in quotation marks where they hold commas.
std::string field_text(std::string_view text) {
    return text.find(',') == std::string_view::npos ? std::string(text)
                                                    : '"' + std::string(text) + '"';
}

std::vector<std::string> fields_of(const std::string &line) {
    std::vector<std::string> fields(1);
    bool inside = false;
    for (const char c : line) {
        if (c == '"')
            inside = !inside;
        else if (c == ',' && !inside)
            fields.emplace_back();
        else
            fields.back() += c;
    }
    return fields;
}

template <typename T, std::size_t N, typename Name>
T by_name(const T (&all)[N], const std::string &text, Name &&name) {
    for (const T one : all)
        if (text == name(one)) return one;
    throw std::runtime_error("\"" + text + "\" is nothing that is measured");
}

double value_of(const std::string &text) {
    double value = 0;
    const char *const last = text.data() + text.size();
    const auto [end, status] = std::from_chars(text.data(), last, value);
    if (status != std::errc{} || end != last)
        throw std::runtime_error("\"" + text + "\" is no number");
    return value;
}

measurement read(const std::string &path) {
    std::ifstream in(path);
    measurement m;
    std::string line;
    if (!std::getline(in, line) || !line.starts_with("# "))
        throw std::runtime_error(path + " holds no measurement");
    m.device = line.substr(2);
    if (!std::getline(in, line) || line != head)
        throw std::runtime_error(path + " has other columns than are written today");
    while (std::getline(in, line)) {
        const std::vector<std::string> f = fields_of(line);
        if (f.size() != 11) throw std::runtime_error(path + ": a line is cut off: " + line);
        line_key key{by_name(all_types, f[0], [](data_type t) { return convgrad::to_string(t); }),
            by_name(all_passes, f[2], &name_of), {}, {}};
        key.row.f = by_name(engine_families, f[1], [](family x) { return to_string(x); });
        key.row.master = f[3] != f[0];
        key.row.method = f[4];
        key.data = by_name(all_flavours, f[5], [](flavour x) { return to_string(x); });
        errors e;
        e.sum = value_of(f[6]);
        e.ulp = value_of(f[7]);
        e.elements = static_cast<dim>(value_of(f[9]));
        e.squares = value_of(f[8]) * value_of(f[8]) * static_cast<double>(e.elements);
        e.unlike = static_cast<dim>(value_of(f[10]));
        m.lines.emplace_back(std::move(key), e);
    }
    return m;
}

void write(const std::string &path, const measurement &m) {
    std::ofstream out(path);
    out << "# " << m.device << '\n' << head << '\n' << std::setprecision(5);
    for (const auto &[key, e] : m.lines)
        out << convgrad::to_string(key.type) << ',' << to_string(key.row.f) << ','
            << name_of(key.what) << ','
            << convgrad::to_string(key.row.master ? data_type::f32 : key.type) << ','
            << field_text(key.row.method) << ',' << to_string(key.data) << ',' << e.sum << ','
            << e.ulp << ',' << e.rms() << ',' << e.elements << ',' << e.unlike << '\n';
    out.flush();
    if (!out) throw std::runtime_error("cannot write " + path);
}

/// Root mean square errors of what each mode chooses, in terms of the plain sum's, by pass.
void print_classes(std::ostream &out, const measurement &m) {
    constexpr flavour shown[] = {flavour::random, flavour::positive, flavour::scaled};
    out << "| type | pass | mode |";
    for (const flavour f : shown) out << ' ' << to_string(f) << ": rms | largest |";
    out << "\n| --- | --- | --- |";
    for (std::size_t i = 0; i < std::size(shown); ++i) out << " ---: | ---: |";
    out << '\n';
    for (const data_type type : all_types)
        for (const pass what : all_passes) {
            if (what == pass::backward_bias) continue;  // one algorithm, plain sums
            for (const math_mode math : modes_of(type)) {
                // Of 16-bit weights gradients those in f32: 16 bits would hide the sum's error.
                const bool master = type != data_type::f32 && what == pass::backward_weights;
                const auto of = [&](std::string_view method, flavour data) {
                    return m.sum([&](const line_key &k) {
                        return k.type == type && k.what == what && k.row.master == master
                               && k.row.method == method && k.data == data;
                    });
                };
                out << "| " << convgrad::to_string(type) << " | " << name_of(what)
                    << (master ? ", f32 diff_weights" : "") << " | " << convgrad::to_string(math)
                    << " |";
                for (const flavour data : shown) {
                    const errors ours = of(chosen_in(math), data), plain = of(plain_sum, data);
                    const double rms = plain.rms() > 0 ? ours.rms() / plain.rms() : 0;
                    out << ' ' << number(rms) << " | " << number(ours.sum) << " |";
                }
                out << '\n';
            }
        }
    out << '\n';
}

/// By kind of layers; there the plain sum first and what is chosen last.
void sort_rows(type_table &t) {
    std::ranges::stable_sort(t.rows, {}, [](const auto &entry) {
        const row_key &key = entry.first;
        const int place = key.method == plain_sum ? 0 : key.method.starts_with("*chosen*") ? 2 : 1;
        return std::tuple(key.f, key.master, place, place == 1 ? key.method : std::string());
    });
}

engine_options options_of(std::string text) {
    constexpr std::string_view cudnn = "+cudnn";
    engine_options options;
    if (text == "cpu") return options;
    options.kind = engine_kind::cuda;
    options.cudnn = text.ends_with(cudnn);
    if (options.cudnn) text.resize(text.size() - cudnn.size());
    if (text == "cuda") return options;
    if (!text.starts_with("cuda:"))
        throw std::runtime_error("--engine is cpu, cuda or cuda:N, with cuDNN cuda+cudnn");
    options.device = static_cast<int>(value_of(text.substr(5)));
    return options;
}

}  // namespace

int measure_engine(
    const std::string &engine, const std::string &path, const std::vector<std::string> &only) {
    engine_runs on(options_of(engine));
    measurement m;
    if (only.empty()) {
        m = measure(on);
    } else {
        m = read(path);
        // With cuDNN its version stands behind the device's name.
        const std::string here = on.name();
        if (!here.starts_with(m.device) && !m.device.starts_with(here))
            throw std::runtime_error(path + " is of " + m.device + ", not of " + here);
        if (here.size() > m.device.size()) m.device = here;
        std::erase_if(m.lines, [&](const auto &line) {
            return std::ranges::find(only, algorithm_of(line.first.row.method)) != only.end();
        });
        measurement more = measure(on, only);
        if (more.lines.empty())
            throw std::runtime_error("no problem is computed by these algorithms");
        std::ranges::move(more.lines, std::back_inserter(m.lines));
    }
    write(path, m);
    return 0;
}

std::string engine_tables(const std::string &path) {
    const measurement m = read(path);
    std::ostringstream out;
    out << "Measured on " << m.device << ".\n\n";
    out << "What each mode chooses: root mean square error in terms of the plain f32 sum's, and "
           "the largest error in u·Σ|terms|.\n\n";
    print_classes(out, m);
    for (const data_type type : all_types) {
        type_table t;
        for (const auto &[key, e] : m.lines)
            if (key.type == type) t.at(key.row)[static_cast<std::size_t>(key.data)].merge(e);
        sort_rows(t);
        out << "### CUDA, " << convgrad::to_string(type) << ", largest error in u·Σ|terms|\n\n";
        print(out, t, [](const errors &e) { return e.sum; });
        out << "### CUDA, " << convgrad::to_string(type)
            << ", largest error in ulp of the result\n\n";
        print(out, t, [](const errors &e) { return e.ulp; });
    }
    return out.str();
}

}  // namespace convgrad::accuracy
