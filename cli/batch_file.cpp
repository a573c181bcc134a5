#include "batch_file.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "match.hpp"
#include "usage_error.hpp"

namespace convgrad::cli {
namespace {

namespace fs = std::filesystem;

/// One word of a file; a word that ends in a backslash is joined with the next one.
struct word {
    std::string text;
    int line;
};

/// All of the file, which may be a pipe or a device that does not end.
std::string read_text(std::istream &in, const fs::path &file) {
    constexpr std::size_t most = std::size_t{64} << 20U;
    std::string text;
    for (std::size_t step = std::size_t{1} << 20U; in;) {
        const std::size_t size = text.size();
        text.resize(size + step);
        in.read(text.data() + size, static_cast<std::streamsize>(step));
        text.resize(size + static_cast<std::size_t>(in.gcount()));
        if (text.size() > most)
            throw usage_error(
                fmt::format("batch file '{}' is larger than {} MiB", file.string(), most >> 20U));
    }
    return text;
}

std::vector<word> read_words(const fs::path &file) {
    std::ifstream in(file);
    std::error_code none;
    if (!in || fs::is_directory(file, none))
        throw usage_error(fmt::format("cannot read batch file '{}'", file.string()));
    std::istringstream all(read_text(in, file));
    std::vector<word> words;
    std::string text;
    bool joins = false;
    for (int number = 1; std::getline(all, text); ++number) {
        std::istringstream line(text);
        for (std::string part; line >> part && part.front() != '#';) {
            const bool goes_on = part.back() == '\\';
            if (goes_on) part.pop_back();
            if (joins && !words.empty())
                words.back().text += part;
            else if (!part.empty())
                words.push_back({part, number});
            joins = goes_on;
        }
    }
    return words;
}

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
        [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

/// The options that `--reset` sets back.
struct state {
    std::optional<directions> dir;
    std::optional<std::vector<data_type>> types;
    std::string types_text;
    std::vector<dim> mb = {0};
    std::optional<text_filter> match;
};

std::optional<directions> parse_dir(std::string_view value) {
    directions dir;
    for (const std::string &part : split_list(value)) {
        const std::string name = lower(part);
        if (name.starts_with("fwd"))
            dir.forward = true;
        else if (name == "bwd_d")
            dir.backward_data = true;
        else if (name == "bwd_w" || name == "bwd_wb")
            dir.backward_weights = true;
        else if (name == "bwd_dw")
            dir.backward_data = dir.backward_weights = true;
        else
            return std::nullopt;
    }
    return dir;
}

/// An entry is one type, or src:weights:dst; ours are those with a single floating-point type.
std::vector<data_type> parse_types(std::string_view value) {
    std::vector<data_type> types;
    for (const std::string &entry : split_list(value)) {
        for (data_type type : {data_type::f32, data_type::bf16, data_type::f16}) {
            const std::string_view name = to_string(type);
            const std::string text = lower(entry);
            const bool all = text == name || text == fmt::format("{0}:{0}:{0}", name);
            if (all && std::find(types.begin(), types.end(), type) == types.end())
                types.push_back(type);
        }
    }
    return types;
}

class reader {
public:
    batch read(const fs::path &file) {
        read_file(file, state{}, 0);
        return std::move(result_);
    }

private:
    void read_file(const fs::path &file, state now, int depth) {
        if (depth > 16)
            throw usage_error(
                fmt::format("batch file '{}' is nested more than 16 deep; does it include itself?",
                    file.string()));
        for (const word &w : read_words(file)) {
            const std::string where = fmt::format("{}:{}", file.string(), w.line);
            if (w.text.starts_with("-"))
                option(w.text, where, file, now, depth);
            else
                problem(w.text, where, now);
        }
    }

    void problem(const std::string &text, const std::string &where, const state &now) {
        if (now.match && !now.match->accepts(text)) return;
        for (dim mb : now.mb)
            result_.entries.push_back(
                {text, where, deconv_, now.dir, now.types, now.types_text, mb});
    }

    void option(const std::string &text, const std::string &where, const fs::path &file, state &now,
        int depth) {
        const std::size_t equals = text.find('=');
        const std::string name = text.substr(0, equals);
        const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
        if (name == "--reset")
            now = state{};
        else if (name == "--conv")
            deconv_ = false;
        else if (name == "--deconv")
            deconv_ = true;
        else if (name == "--batch")
            read_file(find(value, file, where), now, depth + 1);
        else if (name == "--dt") {
            now.types = parse_types(value);
            now.types_text = value;
        } else if (name == "--mb")
            now.mb = parse_mb(value, where);
        else if (name == "--match")
            now.match.emplace(where + ": --match", value);
        else if (name == "--dir") {
            const auto dir = parse_dir(value);
            if (!dir)
                throw usage_error(fmt::format("{}: --dir={}: expected a list of FWD_B, FWD_D, "
                                              "FWD_I, BWD_D, BWD_W, BWD_WB, BWD_DW",
                    where, value));
            now.dir = dir;
        } else
            ++result_.ignored[name];
    }

    /// Beside the file that names it, else as it stands.
    static fs::path find(const std::string &name, const fs::path &from, const std::string &where) {
        fs::path beside = from.parent_path() / name;
        std::error_code none;  // a name that cannot be one is that of no file
        if (fs::exists(beside, none)) return beside;
        if (fs::exists(name, none)) return name;
        throw usage_error(fmt::format("{}: cannot find batch file '{}'", where, name));
    }

    static std::vector<dim> parse_mb(const std::string &value, const std::string &where) {
        std::vector<dim> list;
        for (const std::string &part : split_list(value)) {
            dim n = -1;
            const char *last = part.data() + part.size();
            const auto [end, status] = std::from_chars(part.data(), last, n);
            if (status != std::errc{} || end != last || n < 0)
                throw usage_error(
                    fmt::format("{}: --mb={}: expected batch sizes ≥ 0", where, value));
            list.push_back(n);
        }
        return list.empty() ? std::vector<dim>{0} : list;
    }

    batch result_;
    std::optional<bool> deconv_;
};

}  // namespace

std::vector<std::string> split_list(std::string_view text) {
    std::vector<std::string> parts;
    while (!text.empty()) {
        const std::size_t comma = text.find(',');
        if (comma != 0) parts.emplace_back(text.substr(0, comma));
        if (comma == std::string_view::npos) break;
        text.remove_prefix(comma + 1);
    }
    return parts;
}

batch read_batch(const std::filesystem::path &file) {
    return reader().read(file);
}

}  // namespace convgrad::cli
