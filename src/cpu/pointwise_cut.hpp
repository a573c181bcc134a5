// How 1×1 layers on planes are cut: a group × an image × a range of positions is a task.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "conv/problem.hpp"
#include "cpu/joint_pass.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/phases.hpp"
#include "cpu/tasks.hpp"
#include "cpu/tiled.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

/// Positions of an image's group.
struct pointwise_range {
    dim n, group, x0, count;
    dim next;  // task that follows; negative: none is known
};

/// Output channels.
struct pointwise_block {
    dim first, count;
};

/// How the results of a block leave from position x of a range on.
inline store_args results_of(const conv::problem &p, const data_roles &roles,
    const conv::buffers &data, const pointwise_range &r, const pointwise_block &rows, dim x) {
    const auto at = [&](const conv::data_strides &s) {
        return r.n * s.n + (r.group * roles.out_c + rows.first) * s.c + (r.x0 + x) * s.x[2];
    };
    store_args args = results_from(p, roles, data, at(roles.out), at(p.add_strides));
    args.channels = rows.count;
    return args;
}

struct pointwise_cut {
    dim tile = 1;   // positions of a task
    dim tiles = 1;  // of an image
    dim tasks = 0;
    int workers = 1;

    void set_tile(const conv::problem &p, dim positions) {
        tile = positions;
        tiles = div_up(p.x[2].src, tile);
        tasks = p.groups * p.mb * tiles;
    }

    [[nodiscard]] pointwise_range range(const conv::problem &p, dim index) const {
        pointwise_range r{};
        r.next = index + 1 < tasks ? index + 1 : -1;
        r.x0 = index % tiles * tile;
        r.count = std::min(tile, p.x[2].src - r.x0);
        index /= tiles;
        r.n = index % p.mb;
        r.group = index / p.mb;
        return r;
    }

    [[nodiscard]] work_list work(const conv::problem &p, const kernel_set &kernels) const {
        work_list list;
        list.macs_per_second = nominal_speed(kernels);
        list.stages.push_back({"tiles", tasks, workers,
            [cut = *this, p, lanes = dim{kernels.lanes}](dim index, dim before) {
                const data_roles roles(p);
                const pointwise_range r = cut.range(p, index);
                const auto in = static_cast<double>(roles.in_c),
                           out = static_cast<double>(roles.out_c),
                           size = static_cast<double>(size_of(p.type)),
                           count = static_cast<double>(r.count);
                const bool held = before >= 0 && cut.range(p, before).group == r.group;
                return task_cost{static_cast<double>(round_up_to(r.count, lanes)) * in * out,
                    size * (count * in + (held ? 0 : in * out)), size * count * out};
            }});
        return list;
    }

    /// Calls run(memory of a worker, index) for the tasks of a piece. What a worker's memory holds
    /// after one task serves its next one.
    template <typename Scratch, typename Run>
    [[nodiscard]] data_walk walk(
        const conv::problem &p, std::vector<Scratch> memory, Run run) const {
        const auto shared = std::make_shared<std::vector<Scratch>>(std::move(memory));
        const dim units = tasks / std::max<dim>(p.groups, 1);
        return {
            units, p.groups, workers, [shared, units, run](int worker, const walk_piece &piece) {
                for (dim group = piece.first_block; group < piece.last_block; ++group)
                    for (dim unit = piece.first; unit < piece.last; ++unit)
                        run((*shared)[static_cast<std::size_t>(worker)], group * units + unit);
            }};
    }

    void execute(const data_walk &all, const executor &threads) const {
        for_each_task(threads.limited(workers), tasks, [&](int worker, dim index) {
            const dim unit = index % all.units, group = index / all.units;
            all.run(worker, {unit, unit + 1, group, group + 1});
        });
    }
};

}  // namespace convgrad::cpu
