// How many threads this process should use.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include <sched.h>

#include <convgrad/error.hpp>

#include "cpu/pool.hpp"

namespace convgrad::cpu {
namespace {

int cores_by_affinity() {
    // Larger than the kernel's own mask on any machine, so that the call cannot fail for size.
    constexpr int most_cores = 1 << 14;
    cpu_set_t *set = CPU_ALLOC(most_cores);
    int count = 0;
    if (set != nullptr) {
        const std::size_t bytes = CPU_ALLOC_SIZE(most_cores);
        if (sched_getaffinity(0, bytes, set) == 0) count = CPU_COUNT_S(bytes, set);
        CPU_FREE(set);
    }
    if (count < 1) count = static_cast<int>(std::thread::hardware_concurrency());
    return std::max(count, 1);
}

/// Cores that quota/period allows, rounded up; max_threads when there is no limit.
int cores_by_quota(double quota, double period) {
    if (quota <= 0 || period <= 0 || quota / period >= max_threads) return max_threads;
    const double cores = quota / period;
    const int whole = static_cast<int>(cores);
    return std::max(whole + (cores > whole ? 1 : 0), 1);
}

/// "QUOTA PERIOD" or "max PERIOD" in cpu.max of the process's cgroup and of its parents.
int cores_by_cgroup2() {
    std::ifstream groups("/proc/self/cgroup");
    std::string path;
    for (std::string line; std::getline(groups, line);)
        if (line.starts_with("0::/")) path = line.substr(3);
    int cores = max_threads;
    while (true) {
        std::ifstream limit("/sys/fs/cgroup" + path + "/cpu.max");
        double quota = 0, period = 0;
        if (limit >> quota >> period) cores = std::min(cores, cores_by_quota(quota, period));
        const std::size_t cut = path.find_last_of('/');
        if (cut == std::string::npos) return cores;
        path.resize(cut);
    }
}

int cores_by_cgroup1() {
    const std::string folder = "/sys/fs/cgroup/cpu/cpu.cfs_";
    std::ifstream quota_file(folder + "quota_us"), period_file(folder + "period_us");
    double quota = 0, period = 0;
    if (!(quota_file >> quota) || !(period_file >> period)) return max_threads;
    return cores_by_quota(quota, period);
}

}  // namespace

int available_cores() {
    static const int cores =
        std::min({cores_by_affinity(), cores_by_cgroup2(), cores_by_cgroup1()});
    return cores;
}

int threads_by_environment() {
    const char *text = std::getenv("CONVGRAD_NUM_THREADS");
    if (text == nullptr || *text == '\0') return 0;
    const std::string value = text;
    int threads = 0;
    const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), threads);
    if (failure != std::errc{} || end != value.data() + value.size() || threads < 1
        || threads > max_threads)
        throw error(error_code::invalid_argument,
            "environment variable CONVGRAD_NUM_THREADS is \"" + value
                + "\"; it must be a number between 1 and " + std::to_string(max_threads));
    return threads;
}

}  // namespace convgrad::cpu
