#include "accuracy/table_text.hpp"

#include <cstdio>
#include <ostream>

namespace convgrad::accuracy {
namespace {

std::string cell(const errors &e, double value) {
    if (e.unlike > 0) return "**" + std::to_string(e.unlike) + " wrong**";
    return e.elements == 0 ? "–" : number(value);
}

}  // namespace

row &type_table::at(const row_key &key) {
    for (auto &[k, r] : rows)
        if (k == key) return r;
    return rows.emplace_back(key, row{}).second;
}

std::string number(double v) {
    char text[32];
    std::snprintf(text, sizeof text, v >= 100 ? "%.0f" : v >= 10 ? "%.1f" : "%.2f", v);
    if (v >= 1e5) std::snprintf(text, sizeof text, "%.0e", v);
    return text;
}

void print(std::ostream &out, const type_table &t, double (*value)(const errors &)) {
    out << "| layers | computed by |";
    for (const flavour f : all_flavours) out << ' ' << to_string(f) << " |";
    out << "\n| --- | --- |";
    for (std::size_t i = 0; i < std::size(all_flavours); ++i) out << " ---: |";
    out << '\n';
    for (const auto &[key, r] : t.rows) {
        out << "| " << to_string(key.f) << (key.master ? ", f32 diff_weights" : "") << " | "
            << key.method << " |";
        for (const errors &e : r) out << ' ' << cell(e, value(e)) << " |";
        out << '\n';
    }
    out << '\n';
}

}  // namespace convgrad::accuracy
