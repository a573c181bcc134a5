// Text tables with aligned columns.
#pragma once

#include <string>
#include <vector>

namespace convgrad::cli {

enum class align { left, right };

class table {
public:
    /// One column: its title and how its cells are aligned.
    table &column(std::string title, align a = align::left);
    table &row(std::vector<std::string> cells);
    [[nodiscard]] bool empty() const { return rows_.empty(); }
    /// With a line of titles, and a rule under it, unless all titles are empty; each line ends in a
    /// newline. `indent` spaces stand before every line.
    [[nodiscard]] std::string text(std::size_t indent = 0) const;

private:
    std::vector<std::string> titles_;
    std::vector<align> aligns_;
    std::vector<std::vector<std::string>> rows_;
};

/// Columns that `text` takes on a terminal: UTF-8 counted by characters, colours not at all.
std::size_t display_width(const std::string &text);

}  // namespace convgrad::cli
