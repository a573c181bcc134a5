#include "cpu/work_cut.hpp"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

#include "cpu/geometry.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/tasks.hpp"
#include "cpu/tiled.hpp"

namespace convgrad::cpu {
namespace {

constexpr double start_seconds = 0.2e-6;  // of a task
constexpr double look_seconds = 1e-6;     // for work elsewhere, when a worker has run dry
/// More tasks than this are played through in bundles of equal length.
constexpr dim most_steps = dim{1} << 15;

struct thread_load {
    double tasks = 0, seconds = 0, read = 0, written = 0;
};

spread spread_of(const std::vector<thread_load> &loads, double thread_load::*what) {
    spread s{loads[0].*what, 0, loads[0].*what};
    for (const thread_load &load : loads) {
        s.least = std::min(s.least, load.*what);
        s.most = std::max(s.most, load.*what);
        s.mean += load.*what / static_cast<double>(loads.size());
    }
    return s;
}

/// The tasks of one stage in the order in which run_tasks() hands them out, if each takes as long
/// as modelled: from the front of a worker's own range, then from the back of the longest one.
class rehearsal {
public:
    rehearsal(const work_stage &stage, double macs_per_second, int threads)
        : stage_(stage), macs_per_second_(macs_per_second),
          steps_(std::min(stage.tasks, most_steps)), loads_(static_cast<std::size_t>(threads)) {
        const auto workers = static_cast<std::size_t>(
            std::min<dim>({threads, stage.workers, std::max<dim>(steps_, 1)}));
        for (std::size_t w = 0; w < workers; ++w)
            ranges_.push_back({first_task(steps_, static_cast<int>(w), static_cast<int>(workers)),
                first_task(steps_, static_cast<int>(w) + 1, static_cast<int>(workers)), -1});
    }

    std::vector<thread_load> run() {
        using entry = std::pair<double, std::size_t>;  // busy until, worker
        std::priority_queue<entry, std::vector<entry>, std::greater<>> idle;
        for (std::size_t w = 0; w < ranges_.size(); ++w) idle.emplace(0.0, w);
        while (!idle.empty()) {
            const std::size_t worker = idle.top().second;
            idle.pop();
            range &own = ranges_[worker];
            const bool look = own.next == own.end && !own.looked;
            const dim step = look ? 0 : take(worker);
            if (step < 0) continue;
            if (look)
                loads_[worker].seconds += look_seconds;
            else
                perform(worker, step);
            own.looked = look;
            idle.emplace(loads_[worker].seconds, worker);
        }
        return loads_;
    }

private:
    struct range {
        dim next, end;
        dim before;  // last task of its owner
        bool looked = false;
    };

    dim take(std::size_t worker) {
        if (range &own = ranges_[worker]; own.next < own.end) return own.next++;
        range &longest = *std::max_element(ranges_.begin(), ranges_.end(),
            [](const range &a, const range &b) { return a.end - a.next < b.end - b.next; });
        return longest.next < longest.end ? --longest.end : -1;
    }

    void perform(std::size_t worker, dim step) {
        const dim first = stage_.tasks * step / steps_, last = stage_.tasks * (step + 1) / steps_;
        const task_cost cost = stage_.cost(first, ranges_[worker].before);
        const auto count = static_cast<double>(last - first);
        thread_load &load = loads_[worker];
        load.tasks += count;
        load.read += count * cost.read;
        load.written += count * cost.written;
        load.seconds += count
                        * (cost.macs / macs_per_second_ + (cost.read + cost.written) / nominal_bytes
                            + start_seconds);
        ranges_[worker].before = last - 1;
    }

    const work_stage &stage_;
    double macs_per_second_;
    dim steps_;
    std::vector<range> ranges_;
    std::vector<thread_load> loads_;
};

}  // namespace

double work_cut::total_seconds() const {
    double sum = 0;
    for (const stage &s : stages) sum += s.seconds.mean * threads;
    return sum;
}

double work_cut::elapsed_seconds() const {
    double sum = 0;
    for (const stage &s : stages) sum += s.seconds.most;
    return sum;
}

double work_cut::balance() const {
    const double elapsed = elapsed_seconds();
    return elapsed > 0 ? total_seconds() / (elapsed * threads) : 1;
}

work_cut cut_work(const work_list &work, int threads) {
    work_cut cut{std::max(threads, 1), {}, work.parts, work.parts_bytes};
    for (const work_stage &stage : work.stages) {
        if (stage.tasks == 0) continue;
        const auto loads = rehearsal(stage, work.macs_per_second, cut.threads).run();
        cut.stages.push_back({stage.name, stage.tasks, spread_of(loads, &thread_load::tasks),
            spread_of(loads, &thread_load::seconds), spread_of(loads, &thread_load::read),
            spread_of(loads, &thread_load::written)});
    }
    return cut;
}

double least_seconds(const conv::problem &p, const kernel_set &kernels) {
    double src = static_cast<double>(p.mb * p.groups * p.ic),
           dst = static_cast<double>(p.mb * p.groups * p.oc);
    for (const conv::axis &a : p.x) {
        src *= static_cast<double>(a.src);
        dst *= static_cast<double>(a.dst);
    }
    return conv::macs(p) / nominal_speed(kernels)
           + (src + dst) * static_cast<double>(size_of(p.type)) / nominal_bytes;
}

namespace {

int threads_at(double seconds, double each, int most) {
    return static_cast<int>(
        std::clamp(seconds / each, 1.0, static_cast<double>(std::max(most, 1))));
}

}  // namespace

int worthwhile_threads(const conv::problem &p, const kernel_set &kernels, int most) {
    return threads_at(least_seconds(p, kernels), 20e-6, most);  // a few times what waking takes
}

int cut_threads(const conv::problem &p, const kernel_set &kernels) {
    const double seconds = least_seconds(p, kernels);
    const int many = threads_at(seconds, worthwhile_seconds(p.what), most_cut_threads);
    return std::max(many, threads_at(seconds, worthwhile_for_two, 2));
}

double fair_share_on(dim tasks, double skew, int threads) {
    const auto each = static_cast<double>(tasks) / threads;
    // Everybody takes as many as the busiest, or nobody starts a task after all are taken.
    return threads <= 1 ? 1
                        : std::max(each / std::ceil(each) / skew,
                            each / (each + skew * (threads - 1) / threads));
}

double fair_share(dim tasks, double skew, int threads, double *mean) {
    double worst = 1, sum = 1, count = 1;
    for (int n = 2; n <= threads; n *= 2) {
        const double share = fair_share_on(tasks, skew, n);
        worst = std::min(worst, share);
        sum += share, count += 1;
    }
    if (mean != nullptr) *mean = sum / count;
    return worst;
}

// Parts of these drivers are small, and the stage that adds them is not shared out as well.
constexpr double fair_parts_enough = 0.97;

double share_of_parts(dim parts, dim units, dim blocks, double skew, int threads) {
    const auto uneven =
        static_cast<double>(div_up(units, parts) * parts) / static_cast<double>(units);
    return fair_share(parts * blocks, skew * uneven, threads);
}

dim fair_parts(dim units, dim blocks, double skew, dim most, int threads) {
    dim found = 1;
    double best = 0;
    const dim enough = div_up(10 * dim{most_cut_threads}, blocks);
    for (dim parts = 1; parts <= std::min({most, units, enough}) && best < fair_parts_enough;
         ++parts) {
        const double share = share_of_parts(parts, units, blocks, skew, threads);
        if (share > best) best = share, found = parts;
    }
    return found;
}

double nominal_speed(const kernel_set &kernels) {
    constexpr double clock = 3e9;
    if (kernels.tiles()) {
        constexpr double tile = 16 * 16 * 32, tile_cycles = 16;
        // Products of parts that matter: 1, 3 and 6.
        return clock * tile / tile_cycles / (kernels.parts * (kernels.parts + 1) / 2.0);
    }
    const double pairs = kernels.format == operand_format::dot2 ? 2 : 1;
    return clock * 2 * kernels.lanes * pairs;
}

double inside_pairs(const axis_walk &walk, const axis_phase &phase, dim t0, dim length) {
    const dim count = std::min(length, phase.count - t0);
    dim pairs = 0;
    for (const axis_tap &tap : phase.taps) {
        dim lo = 0, hi = 0;
        if (count > 0)
            clip(t0 * walk.in_step + tap.off, walk.in_step, count, walk.in_length, lo, hi);
        pairs += hi - lo;
    }
    return static_cast<double>(pairs);
}

}  // namespace convgrad::cpu
