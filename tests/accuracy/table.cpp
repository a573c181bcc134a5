// convgrad_accuracy: the tables of docs/accuracy.md.
//
//   convgrad_accuracy                 prints them
//   convgrad_accuracy --write FILE    puts them between FILE's marks
//   convgrad_accuracy --winograd FILE only those of Winograd's tiles
//   convgrad_accuracy --engine cuda[:N][+cudnn] --measure FILE   errors on another engine, as a
//   file … --only ALGORITHM,…                                 of these alone, instead of their
//   lines there convgrad_accuracy --measured FILE [--write FILE]     the tables of such a file
//   convgrad_accuracy --export DIR    writes the problems for another library to compute
//   convgrad_accuracy --import DIR    reads its results and puts them beside ours (with --write)
#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "accuracy/engine_table.hpp"
#include "accuracy/exchange.hpp"
#include "accuracy/table_text.hpp"
#include "accuracy/winograd_layers.hpp"

namespace convgrad::accuracy {
namespace {

constexpr std::uint64_t seeds = 2;

type_table measure(data_type type, const imported *others) {
    type_table t;
    for (const family f : all_families)
        for_each_subject(f, type, seeds, [&](const named_problem &n, subject &s) {
            const auto column = static_cast<std::size_t>(s.data());
            const bool master = n.p.out_type != n.p.type;
            t.at({f, master, "*plain f32 sum*"})[column].merge(s.plain());
            for (const method &m : methods_for(f, n.p))
                t.at({f, master, to_string(m)})[column].merge(s.run(limits_of(m), m.math));
            const isa best = test::usable_isas().back();
            t.at({f, master, "*chosen* on " + std::string(convgrad::to_string(best))})[column]
                .merge(s.run({.max_isa = best}, math_mode::accurate));
            if (others != nullptr)
                if (const auto results = others->next())
                    t.at({f, master, others->name()})[column].merge(s.of(*results));
        });
    return t;
}

std::string tables(const imported *others) {
    std::ostringstream out;
    for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16}) {
        const type_table t = measure(type, others);
        out << "### " << convgrad::to_string(type) << ", largest error in u·Σ|terms|\n\n";
        print(out, t, [](const errors &e) { return e.sum; });
        out << "### " << convgrad::to_string(type) << ", largest error in ulp of the result\n\n";
        print(out, t, [](const errors &e) { return e.ulp; });
    }
    return out.str();
}

/// Tile × pass × length of the sum.
std::string winograd_tables() {
    std::ostringstream out;
    const isa widest = test::usable_fma_isas().back();
    const auto print_pass = [&](conv::pass what, const char *title) {
        const auto layers = winograd_layers(what);
        out << "| " << title << " |";
        for (const winograd_layer &l : layers) out << ' ' << l.length << " |";
        out << "\n| --- |";
        for (std::size_t i = 0; i < layers.size(); ++i) out << " --- |";
        out << '\n';
        for (const cpu::winograd_tile tile : cpu::all_winograd_tiles) {
            out << "| F(" << cpu::winograd_results(tile, 0, 3) << "×"
                << cpu::winograd_results(tile, 1, 3) << ") |";
            for (const winograd_layer &l : layers)
                out << ' ' << number(winograd_factor(l.p, tile, widest, flavour::normal)) << " / "
                    << number(winograd_factor(l.p, tile, widest, flavour::rectified)) << " |";
            out << '\n';
        }
        out << '\n';
    };
    print_pass(conv::pass::forward, "forward, channels");
    print_pass(conv::pass::backward_data, "data gradient, channels");
    print_pass(conv::pass::backward_weights, "weights gradient, positions");
    return out.str();
}

int write(const std::string &path, const std::string &name, const std::string &text) {
    const std::string begin = "<!-- " + name + ": written by convgrad_accuracy -->\n";
    const std::string end = "<!-- end of " + name + " -->\n";
    std::stringstream old;
    old << std::ifstream(path).rdbuf();
    const std::string page = old.str();
    const std::size_t from = page.find(begin), to = page.find(end);
    if (from == std::string::npos || to == std::string::npos) {
        std::cerr << path << " has no place for the tables\n";
        return 1;
    }
    std::ofstream(path) << page.substr(0, from) << begin << '\n' << text << page.substr(to);
    return 0;
}

int export_problems(const std::string &directory) {
    exporter out(directory);
    for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
        for (const family f : all_families)
            for_each_subject(
                f, type, seeds, [&](const named_problem &, subject &s) { out.add(s); });
    return 0;
}

/// What stands between commas.
std::vector<std::string> words_of(const std::string &text) {
    std::vector<std::string> words;
    std::istringstream in(text);
    for (std::string word; std::getline(in, word, ',');) words.push_back(word);
    return words;
}

int run(const std::vector<std::string> &arguments) {
    std::map<std::string, std::string> given;
    for (std::size_t i = 0; i + 1 < arguments.size(); i += 2)
        given[arguments[i]] = arguments[i + 1];
    constexpr std::string_view known[] = {"--write", "--winograd", "--export", "--import",
        "--engine", "--measure", "--measured", "--only"};
    for (const auto &[name, value] : given)
        if (std::ranges::find(known, name) == std::end(known)) {
            std::cerr << "unknown option " << name << '\n';
            return 2;
        }
    if (arguments.size() % 2 != 0) {
        std::cerr << "each option takes a value\n";
        return 2;
    }
    if (given.contains("--measure") != given.contains("--engine")) {
        std::cerr << "--measure FILE and --engine ENGINE go together\n";
        return 2;
    }
    if (given.contains("--only") && !given.contains("--measure")) {
        std::cerr << "--only goes with --measure FILE\n";
        return 2;
    }
    if (given.contains("--measure"))
        return measure_engine(given["--engine"], given["--measure"], words_of(given["--only"]));
    if (given.contains("--measured")) {
        const std::string text = engine_tables(given["--measured"]);
        if (given.contains("--write")) return write(given["--write"], "cuda", text);
        std::cout << text;
        return 0;
    }
    if (given.contains("--export")) return export_problems(given["--export"]);
    if (given.contains("--winograd"))
        return write(given["--winograd"], "winograd", winograd_tables());
    std::optional<imported> others;
    if (given.contains("--import")) others.emplace(given["--import"]);
    const std::string text = tables(others ? &*others : nullptr);
    const std::string winograd = winograd_tables();
    if (given.contains("--write"))
        return std::max(
            write(given["--write"], "winograd", winograd), write(given["--write"], "tables", text));
    std::cout << text << winograd;
    return 0;
}

}  // namespace
}  // namespace convgrad::accuracy

int main(int count, char **arguments) {
    try {
        return convgrad::accuracy::run({arguments + 1, arguments + count});
    } catch (const std::exception &e) {
        std::cerr << "convgrad_accuracy: " << e.what() << '\n';
        return 2;
    }
}
