#include "table.hpp"

#include <algorithm>

namespace convgrad::cli {

std::size_t display_width(const std::string &text) {
    std::size_t width = 0;
    bool escape = false;
    for (const char c : text) {
        if (c == '\033') escape = true;
        const bool continuation = (static_cast<unsigned char>(c) & 0xc0U) == 0x80U;
        if (!escape && !continuation) ++width;
        if (escape && c == 'm') escape = false;
    }
    return width;
}

table &table::column(std::string title, align a) {
    titles_.push_back(std::move(title));
    aligns_.push_back(a);
    return *this;
}

table &table::row(std::vector<std::string> cells) {
    cells.resize(titles_.size());
    rows_.push_back(std::move(cells));
    return *this;
}

std::string table::text(std::size_t indent) const {
    std::vector<std::size_t> widths(titles_.size(), 0);
    const auto measure = [&](const std::vector<std::string> &cells) {
        for (std::size_t i = 0; i < cells.size(); ++i)
            widths[i] = std::max(widths[i], display_width(cells[i]));
    };
    measure(titles_);
    for (const auto &row : rows_) measure(row);

    std::string out;
    const auto line = [&](const std::vector<std::string> &cells) {
        std::string text(indent, ' ');
        for (std::size_t i = 0; i < cells.size(); ++i) {
            const std::string space(widths[i] - display_width(cells[i]), ' ');
            text += aligns_[i] == align::right ? space + cells[i] : cells[i] + space;
            text += "  ";
        }
        text.erase(text.find_last_not_of(' ') + 1);
        out += text + "\n";
    };
    const bool titled =
        std::any_of(titles_.begin(), titles_.end(), [](const auto &t) { return !t.empty(); });
    if (titled) {
        line(titles_);
        std::vector<std::string> rules;
        for (std::size_t width : widths) rules.emplace_back(width, '-');
        line(rules);
    }
    for (const auto &row : rows_) line(row);
    return out;
}

}  // namespace convgrad::cli
