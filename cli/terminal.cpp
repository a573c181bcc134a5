#include "terminal.hpp"

#include <cmath>
#include <csignal>
#include <cstdlib>

#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "output.hpp"
#include "train/whole_file.hpp"

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

constexpr std::string_view erase_line = "\r\033[K";

/// Whether a line on the terminal is unfinished; the signal handler reads it.
volatile std::sig_atomic_t line_open = 0;

/// Only what is allowed in a signal handler. The signal comes again, with its usual effect, when
/// the handler is left.
void end_cleanly(int signal) {
    if (line_open != 0) {
        const ssize_t written = write(STDERR_FILENO, erase_line.data(), erase_line.size());
        static_cast<void>(written);  // nothing could be done about it
    }
    train::remove_unfinished_file();
    std::raise(signal);
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

void end_cleanly_on_signals() {
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
        struct sigaction now {};
        // Whoever started us with the signal ignored (nohup) wants it ignored.
        if (sigaction(signal, nullptr, &now) != 0 || now.sa_handler == SIG_IGN) continue;
        struct sigaction ours {};
        ours.sa_handler = end_cleanly;
        ours.sa_flags = static_cast<int>(SA_RESETHAND);
        sigaction(signal, &ours, nullptr);
    }
}

status_line::status_line(bool enabled)
    : enabled_(enabled && isatty(STDERR_FILENO) != 0 && !dumb_terminal()) {}

status_line::~status_line() {
    clear();
}

bool status_line::is_due() const {
    return enabled_ && clock::now() >= next_;
}

std::size_t status_line::width() {
    winsize size{};
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return (known ? size.ws_col : 80U) - 1U;  // a full line would already begin the next
}

void status_line::show(std::string_view text) {
    if (!is_due()) return;
    next_ = clock::now() + std::chrono::milliseconds(100);
    line_open = 1;
    put_message(
        fmt::format("{}{}", erase_line, without_controls(std::string(text.substr(0, width())))));
}

void status_line::clear() {
    if (!enabled_ || line_open == 0) return;
    put_message(erase_line);
    line_open = 0;
    next_ = clock::now();
}

progress::progress(std::size_t total, bool quiet) : total_(total), line_(!quiet && total > 0) {}

void progress::show(std::size_t done, std::string_view label) {
    if (!line_.is_due()) return;
    const double share = static_cast<double>(done) / static_cast<double>(total_);
    const double spent = std::chrono::duration<double>(clock::now() - start_).count();
    const std::string left =
        done == 0 ? "" : fmt::format(" {} left", time_text(spent / share - spent));
    constexpr std::size_t cells = 24;
    const auto full = static_cast<std::size_t>(share * cells);
    line_.show(fmt::format(
        "[{:#<{}}{:.<{}}] {}/{}{}  {}", "", full, "", cells - full, done, total_, left, label));
}

}  // namespace convgrad::cli
