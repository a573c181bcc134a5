// The report's own files, put into the program by the build (cmake/embed.cmake).
#pragma once

#include <cstdint>
#include <span>

namespace convgrad::cli {

std::span<const std::uint8_t> report_page();    // page.html
std::span<const std::uint8_t> report_style();   // style.css
std::span<const std::uint8_t> report_core();    // core.js
std::span<const std::uint8_t> report_charts();  // charts.js
std::span<const std::uint8_t> report_script();  // page.js

}  // namespace convgrad::cli
