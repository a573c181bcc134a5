#include "watch.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <malloc.h>
#include <unistd.h>

namespace convgrad::soak {
namespace {

std::size_t count_entries(const char *path) {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path), {}));
}

holdings mean(const std::vector<holdings> &samples, std::size_t from, std::size_t to) {
    holdings m;
    for (std::size_t i = from; i < to; ++i) {
        m.rss += samples[i].rss / static_cast<double>(to - from);
        m.heap += samples[i].heap / static_cast<double>(to - from);
        m.files = std::max(m.files, samples[i].files);
        m.threads = std::max(m.threads, samples[i].threads);
    }
    return m;
}

template <typename... Args>
std::string text(const char *format, Args... args) {
    char line[200];
    std::snprintf(line, sizeof line, format, args...);
    return line;
}

constexpr double mib = 1024 * 1024;

}  // namespace

holdings look(double seconds) {
    holdings now;
    now.seconds = seconds;
    std::ifstream statm("/proc/self/statm");
    double all = 0;
    statm >> all >> now.rss;
    now.rss *= static_cast<double>(sysconf(_SC_PAGESIZE));
    const auto heap = mallinfo2();
    now.heap = static_cast<double>(heap.uordblks) + static_cast<double>(heap.hblkhd);
    now.files = count_entries("/proc/self/fd");
    now.threads = count_entries("/proc/self/task");
    return now;
}

trend::window trend::compared() const {
    const std::size_t n = samples_.size(), warm = n / 6,
                      quarter = std::max<std::size_t>(1, (n - warm) / 4);
    window w{mean(samples_, warm, warm + quarter), mean(samples_, n - quarter, n), {}};
    for (const holdings &s : samples_) {
        w.most.rss = std::max(w.most.rss, s.rss);
        w.most.heap = std::max(w.most.heap, s.heap);
        w.most.files = std::max(w.most.files, s.files);
        w.most.threads = std::max(w.most.threads, s.threads);
    }
    return w;
}

std::vector<std::string> trend::complaints(double tolerance) const {
    const window w = compared();
    std::vector<std::string> found;
    const auto grew = [&](double before, double after) { return after > before * (1 + tolerance); };
    if (grew(w.first.rss, w.last.rss))
        found.push_back(text(
            "resident memory grew from %.2f to %.2f MiB", w.first.rss / mib, w.last.rss / mib));
    if (grew(w.first.heap, w.last.heap))
        found.push_back(
            text("the heap grew from %.3f to %.3f MiB", w.first.heap / mib, w.last.heap / mib));
    if (w.last.files > w.first.files)
        found.push_back(text("open files grew from %zu to %zu", w.first.files, w.last.files));
    if (w.last.threads > w.first.threads)
        found.push_back(text("threads grew from %zu to %zu", w.first.threads, w.last.threads));
    return found;
}

std::string trend::summary() const {
    const window w = compared();
    return text("resident %.2f -> %.2f MiB (%+.2f %%), heap %.3f -> %.3f MiB (%+.2f %%), "
                "files %zu -> %zu, threads %zu -> %zu",
        w.first.rss / mib, w.last.rss / mib, 100 * (w.last.rss / w.first.rss - 1),
        w.first.heap / mib, w.last.heap / mib, 100 * (w.last.heap / w.first.heap - 1),
        w.first.files, w.last.files, w.first.threads, w.last.threads);
}

}  // namespace convgrad::soak
