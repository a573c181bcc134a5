// The manual page: what --help shows, in troff.
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <convgrad/version.hpp>

#include "completion.hpp"

namespace convgrad::cli {
namespace {

/// Text that troff shows as it is.
std::string plain(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '\\')
            out += "\\e";
        else if (c == '-')
            out += "\\-";
        else
            out += c;
    }
    if (out.starts_with('.') || out.starts_with('\'')) out.insert(0, "\\&");
    return out;
}

std::string upper(std::string text) {
    for (char &c : text)
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    return text;
}

std::string names_of(const CLI::Option &o) {
    if (o.get_positional()) return fmt::format("\\fI{}\\fR", plain(o.get_name(true)));
    std::vector<std::string> names;
    for (const std::string &name : o.get_snames()) names.push_back("-" + name);
    for (const std::string &name : o.get_lnames()) names.push_back("--" + name);
    std::string text = fmt::format("\\fB{}\\fR", plain(fmt::format("{}", fmt::join(names, ", "))));
    const std::string &value = o.get_option_text();
    return value.empty() ? text : fmt::format("{} \\fI{}\\fR", text, plain(value));
}

std::string options_of(const CLI::App &app) {
    std::string out;
    for (const std::string &group : app.get_groups()) {
        for (const CLI::Option *o : app.get_options())
            if (o->get_group() == group)
                out += fmt::format(".TP\n{}\n{}\n", names_of(*o), plain(o->get_description()));
    }
    return out;
}

/// A footer: paragraphs; a line "Title:" begins one whose lines are kept. `sections`: such titles
/// are those of sections of the page.
std::string footer_text(const std::string &footer, bool sections) {
    std::istringstream lines(footer);
    std::string out, line;
    bool open = false;
    const auto close = [&] {
        if (open) out += ".fi\n";
        open = false;
    };
    while (std::getline(lines, line)) {
        if (line.empty()) continue;
        if (line.ends_with(':') && line[0] != ' ') {
            close();
            const std::string title = line.substr(0, line.size() - 1);
            out += sections ? fmt::format(".SH {}\n.nf\n", upper(title))
                            : fmt::format(".PP\n{}:\n.nf\n", plain(title));
            open = true;
        } else {
            if (line[0] != ' ' && open) {
                close();
                out += ".PP\n";
            }
            out += plain(line) + "\n";
        }
    }
    close();
    return out;
}

std::string subcommand_text(const CLI::App &app) {
    std::string arguments;
    for (const CLI::Option *o : app.get_options()) {
        if (!o->get_positional()) continue;
        const std::string name = fmt::format("\\fI{}\\fR", plain(o->get_name(true)));
        arguments += o->get_required() ? " " + name : fmt::format(" [{}]", name);
        if (o->get_items_expected_max() > 1) arguments += "...";
    }
    return fmt::format(
        ".SS convgrad {0}\n\\fBconvgrad {0}\\fR [\\fIoptions\\fR]{1}\n.PP\n{2}.\n{3}{4}",
        app.get_name(), arguments, plain(app.get_description()), options_of(app),
        footer_text(app.get_footer(), false));
}

}  // namespace

std::string manual_page(const CLI::App &app) {
    std::string page =
        fmt::format(".TH CONVGRAD 1 \"\" \"convgrad {}\" \"User Commands\"\n"
                    ".SH NAME\nconvgrad \\- {}\n"
                    ".SH SYNOPSIS\n\\fBconvgrad\\fR \\fIsubcommand\\fR [\\fIoptions\\fR]\n"
                    ".SH DESCRIPTION\n{}.\n{}"
                    ".SH SUBCOMMANDS\n",
            CONVGRAD_VERSION_STRING, plain(app.get_description()), plain(app.get_description()),
            options_of(app));
    for (const CLI::App *sub : app.get_subcommands({})) page += subcommand_text(*sub);
    return page + footer_text(app.get_footer(), true);
}

}  // namespace convgrad::cli
