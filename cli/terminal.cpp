#include "terminal.hpp"

#include <cmath>
#include <cstdlib>

#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

namespace convgrad::cli {
namespace {

bool dumb_terminal() {
    const char *term = std::getenv("TERM");
    return term != nullptr && std::string_view(term) == "dumb";
}

bool colours_wanted() {
    const char *no_color = std::getenv("NO_COLOR");
    if (no_color != nullptr && *no_color != '\0') return false;
    return isatty(STDOUT_FILENO) != 0 && !dumb_terminal();
}

std::string time_text(double seconds) {
    const long s = std::lround(seconds);
    if (s < 60) return fmt::format("{}s", s);
    if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
    return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
}

}  // namespace

std::string paint(std::string_view text, colour c) {
    static const bool wanted = colours_wanted();
    if (!wanted) return std::string(text);
    constexpr int codes[] = {31, 32, 33, 1};
    return fmt::format("\033[{}m{}\033[0m", codes[static_cast<std::size_t>(c)], text);
}

std::size_t terminal_width() {
    winsize size{};
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : 80;
}

bool progress_visible() {
    return isatty(STDERR_FILENO) != 0 && !dumb_terminal();
}

progress::progress(std::size_t total, bool quiet)
    : total_(total), enabled_(!quiet && total > 0 && progress_visible()) {}

progress::~progress() {
    clear();
}

void progress::show(std::size_t done, std::string_view label) {
    if (!enabled_) return;
    const clock::time_point now = clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::milliseconds(100);

    const double share = static_cast<double>(done) / static_cast<double>(total_);
    const double spent = std::chrono::duration<double>(now - start_).count();
    const std::string left =
        done == 0 ? "" : fmt::format(" {} left", time_text(spent / share - spent));
    constexpr std::size_t cells = 24;
    const auto full = static_cast<std::size_t>(share * cells);
    std::string line =
        fmt::format("[{:#<{}}{:.<{}}] {}/{}{}  ", "", full, "", cells - full, done, total_, left);
    const std::size_t width = terminal_width() - 1;
    if (line.size() < width) line += label.substr(0, width - line.size());
    fmt::print(stderr, "\r\033[K{}", line.substr(0, width));
    std::fflush(stderr);
    visible_ = true;
}

void progress::clear() {
    if (!visible_) return;
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
    visible_ = false;
    next_ = clock::now();
}

}  // namespace convgrad::cli
