#include "completion.hpp"

#include <map>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <convgrad/op_kind.hpp>
#include <convgrad/types.hpp>

#include "op_case.hpp"

namespace convgrad::cli {
namespace {

template <typename List>
std::string names_of(const List &values) {
    std::vector<std::string_view> names;
    for (const auto value : values) names.push_back(to_string(value));
    return fmt::format("{}", fmt::join(names, " "));
}

/// What may follow an option or stand for a positional argument: words, or `<file>`, `<directory>`.
std::string values_of(const std::string &name) {
    const data_type types[] = {data_type::f32, data_type::bf16, data_type::f16};
    const math_mode modes[] = {math_mode::strict, math_mode::accurate, math_mode::fast};
    static const std::map<std::string, std::string> values = {{"--op", names_of(computed_ops())},
        {"OP", names_of(computed_ops())}, {"--dtype", names_of(types)},
        {"--isa", names_of(all_isas)}, {"--math", names_of(modes)}, {"--engine", "cpu cuda"},
        {"--data-format", "NXC NCX"}, {"--weights-format", "XIO OIX XOI IOX"},
        {"--model", "classifier autoencoder"}, {"SHELL", "bash"}, {"--batch", "<file>"},
        {"--html", "<file>"}, {"--checkpoint", "<file>"}, {"--resume", "<file>"},
        {"--data", "<directory>"}};
    const auto found = values.find(name);
    return found == values.end() ? "" : found->second;
}

/// One line of a case statement: what completes the word after `pattern`.
std::string case_line(const std::string &pattern, const std::string &values) {
    if (values == "<file>") return fmt::format("        {}) files=-f ;;\n", pattern);
    if (values == "<directory>") return fmt::format("        {}) files=-d ;;\n", pattern);
    return fmt::format("        {}) words='{}' ;;\n", pattern, values);
}

constexpr const char *script_head =
    R"(# Bash completion for convgrad, made by `convgrad completion bash`. To use it at once:
#   source <(convgrad completion bash)
_convgrad() {
    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    local subcommand='' word words='' files=''
    # Bash takes `--option=value` apart.
    if [[ $current == '=' ]]; then
        current=''
    elif [[ $before == '=' ]]; then
        before=${COMP_WORDS[COMP_CWORD-2]}
    fi
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ $word == -* ]] || { subcommand=$word; break; }
    done
)";

constexpr const char *script_tail = R"(    if [[ -n $files ]]; then
        mapfile -t COMPREPLY < <(compgen $files -- "$current")
        compopt -o filenames 2>/dev/null
        return
    fi
    # Lists are separated by commas: complete what stands behind the last.
    local prefix=''
    if [[ $current == *,* ]]; then
        prefix=${current%,*},
        current=${current##*,}
    fi
    mapfile -t COMPREPLY < <(compgen -P "$prefix" -W "$words" -- "$current")
}
complete -o bashdefault -F _convgrad convgrad
)";

std::vector<std::string> option_names(const CLI::App &app) {
    std::vector<std::string> names;
    for (const CLI::Option *o : app.get_options())
        for (const std::string &name : o->get_lnames()) names.push_back("--" + name);
    return names;
}

/// The words that may come anywhere after a subcommand: its options, and values of its argument.
std::string words_of(const CLI::App &app) {
    std::string words = fmt::format("{}", fmt::join(option_names(app), " "));
    for (const CLI::Option *o : app.get_options()) {
        const std::string values = o->get_positional() ? values_of(o->get_name(true)) : "";
        if (!values.empty()) words = fmt::format("{} {}", values, words);
    }
    return words;
}

}  // namespace

std::string bash_completion(const CLI::App &app) {
    std::string by_option = "    case $subcommand:$before in\n",
                by_subcommand = "    case $subcommand in\n";
    std::vector<std::string> subcommands;
    for (const CLI::App *sub : app.get_subcommands({})) {
        subcommands.push_back(sub->get_name());
        by_subcommand += case_line(sub->get_name(), words_of(*sub));
        for (const CLI::Option *o : sub->get_options()) {
            if (o->get_lnames().empty()) continue;
            const std::string name = "--" + o->get_lnames().front(), values = values_of(name);
            if (values.empty()) continue;
            const bool list = o->get_option_text().ends_with(",...");
            by_option += case_line(sub->get_name() + ":" + name, list ? values + " all" : values);
        }
    }
    const std::string top =
        fmt::format("{} {}", fmt::join(subcommands, " "), fmt::join(option_names(app), " "));
    by_subcommand += case_line("''", top);
    return script_head + by_option + "        *)\n" + by_subcommand + "    esac ;;\n    esac\n"
           + script_tail;
}

}  // namespace convgrad::cli
