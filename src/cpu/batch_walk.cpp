#include "cpu/batch_walk.hpp"

#include <algorithm>

#include "cpu/tasks.hpp"

namespace convgrad::cpu {

void run_walks(const std::vector<batch_walk> &walks, const executor &threads) {
    struct step {
        double progress;  // share of the batch that is done after this task
        const batch_walk *walk;
        dim task;
    };
    std::vector<step> steps;
    int workers = threads.threads();
    for (const batch_walk &walk : walks) {
        workers = std::min(workers, walk.tasks > 0 ? walk.workers : workers);
        for (dim task = 0; task < walk.tasks; ++task)
            steps.push_back(
                {static_cast<double>(task + 1) / static_cast<double>(walk.tasks), &walk, task});
    }
    std::stable_sort(steps.begin(), steps.end(),
        [](const step &l, const step &r) { return l.progress < r.progress; });
    for_each_task(
        threads.limited(workers), static_cast<dim>(steps.size()), [&](int worker, dim index) {
            const step &s = steps[static_cast<std::size_t>(index)];
            s.walk->run(worker, s.task);
        });
    for (const batch_walk &walk : walks)
        if (walk.finish) walk.finish(threads);
}

}  // namespace convgrad::cpu
