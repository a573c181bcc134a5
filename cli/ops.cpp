#include "ops.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "options.hpp"
#include "output.hpp"
#include "table.hpp"
#include "terminal.hpp"
#include "tools/markdown.hpp"

namespace convgrad::cli {
namespace {

std::string names_of(std::span<const ops::argument_schema> arguments) {
    std::vector<std::string> names;
    for (const auto &a : arguments)
        names.push_back(a.required ? std::string(a.name) : fmt::format("[{}]", a.name));
    return fmt::format("{}", fmt::join(names, ", "));
}

void print_all() {
    table t;
    t.column("op").column("inputs").column("outputs").column("what it computes");
    for (const ops::op_schema &s : ops::all_schemas())
        t.row(
            {std::string(s.name), names_of(s.inputs), names_of(s.outputs), std::string(s.summary)});
    put("{}\n[optional]   convgrad ops OP shows one op with all its attributes.\n", t.text());
}

std::string remark(bool required, bool extension) {
    return fmt::format("{}{}", required ? "required" : "optional", extension ? ", extension" : "");
}

void print_arguments(std::string_view title, std::span<const ops::argument_schema> arguments) {
    table t;
    t.column("index", align::right).column("name").column("").column("type").column("description");
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const ops::argument_schema &a = arguments[i];
        t.row({std::to_string(i), std::string(a.name), remark(a.required, a.extension),
            a.shape_input ? "s32, 1-D" : "f32, bf16, f16", std::string(a.description)});
    }
    put("\n{}\n{}", paint(title, colour::bold), t.text(2));
}

std::string_view type_name(ops::attribute_type type) {
    switch (type) {
    case ops::attribute_type::s64:
        return "s64";
    case ops::attribute_type::s64_list:
        return "s64 list";
    case ops::attribute_type::string:
        return "string";
    }
    return "";
}

void print_attributes(const ops::op_schema &s) {
    table t;
    t.column("name").column("type").column("values").column("default").column("description");
    for (const ops::attribute_schema &a : s.attributes) {
        const std::string fallback(a.required               ? "required"
                                   : a.default_text.empty() ? "–"
                                                            : a.default_text);
        t.row({std::string(a.name), std::string(type_name(a.type)), std::string(a.values_text),
            fallback, std::string(a.description) + (a.extension ? " (extension)" : "")});
    }
    put("\n{}\n{}", paint("Attributes", colour::bold), t.text(2));
}

/// Lines of at most 96 columns; an item of a list hangs under its own text. Backticks are markup of
/// the pages in docs/ops.
std::string wrapped(std::string_view line) {
    constexpr std::size_t width = 96;
    std::string out = "  ";
    std::size_t column = 2;
    const std::string_view hang = line.starts_with("- ") ? "    " : "  ";
    while (!line.empty()) {
        const std::size_t end = std::min(line.find(' '), line.size());
        std::string word(line.substr(0, end));
        line.remove_prefix(std::min(end + 1, line.size()));
        std::erase(word, '`');
        if (column > hang.size() && column + 1 + word.size() > width) {
            out += fmt::format("\n{}", hang);
            column = hang.size();
        } else if (column > 2) {
            out += ' ';
            ++column;
        }
        out += word;
        column += word.size();
    }
    return out + "\n";
}

void print_paragraphs(std::string_view title, const std::vector<std::string> &lines) {
    put("\n{}\n", paint(title, colour::bold));
    for (const std::string &line : lines) put("{}", wrapped(line));
}

void print_one(const ops::op_schema &s) {
    put("{}\n  {}\n", paint(s.name, colour::bold), s.summary);
    if (!s.formula.empty()) put("  {}\n", s.formula);
    std::vector<std::string> names = {fmt::format("{}-1", s.name)};
    for (std::string_view alias : s.aliases) {
        names.emplace_back(alias);
        names.push_back(fmt::format("{}-1", alias));
    }
    put("  Other names: {}\n", fmt::join(names, ", "));
    print_arguments("Inputs", s.inputs);
    print_arguments("Outputs", s.outputs);
    print_attributes(s);
    print_paragraphs("Output shape", ops::shape_text(s));
    if (const auto text = ops::auto_pad_text(s); !text.empty()) print_paragraphs("auto_pad", text);
}

}  // namespace

int run_ops(const std::string &name) {
    if (name.empty())
        print_all();
    else
        print_one(ops::schema_of(parse_op(name)));
    return 0;
}

}  // namespace convgrad::cli
