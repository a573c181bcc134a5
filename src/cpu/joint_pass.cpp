#include "cpu/joint_pass.hpp"

#include <algorithm>

#include "cpu/prefetch.hpp"
#include "cpu/tasks.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {
namespace {

/// Of all tensors, in a piece: what the data gradient read stays in L2 for the weights gradient.
constexpr double piece_bytes = 256 << 10;

/// Asks for `count` runs of `bytes` bytes, `stride` bytes apart.
void expect_runs(const char *from, dim bytes, dim stride, dim count, bool write) {
    if (bytes == stride) bytes = stride = bytes * count, count = 1;
    for (dim x = 0; x < count; ++x, from += stride) {
        if (write)
            expect_write(from, bytes);
        else
            expect_read(from, bytes);
    }
}

/// A piece of the pass: some units of one task.
struct piece {
    dim task;
    dim first, last;
};

/// Tasks are parts of the weights gradient, with all groups of channels or with one each.
class pieces {
public:
    pieces(const joint_pass &pass, int workers) : pass_(pass), cut_(pass.sums.cut) {
        const bool together =
            pass.sums.mixes && (workers == 1 || fair_share(cut_.parts, 1, workers) >= fair_enough);
        split_ = together ? 1 : cut_.groups;
        const double unit_bytes = pass.bytes / static_cast<double>(cut_.units * split_);
        step_ = std::clamp<dim>(static_cast<dim>(piece_bytes / unit_bytes), 1, cut_.units);
    }
    [[nodiscard]] dim tasks() const { return cut_.parts * split_; }
    [[nodiscard]] piece first_of(dim task) const { return from(task, cut_.begin(task / split_)); }
    /// In the same task or, so that its memory may be asked for, the next.
    [[nodiscard]] piece after(const piece &p) const {
        if (p.last < end(p.task) || p.task + 1 == tasks()) return from(p.task, p.last);
        return first_of(p.task + 1);
    }
    void run(int worker, const piece &p) const {
        pass_.data.run(worker, same(p));
        for (dim group = first_group(p); group < last_group(p); ++group)
            pass_.sums.run(worker, p.task / split_, group, p.first, p.last);
    }
    void expect(const piece &p) const {
        if (pass_.data.expect) pass_.data.expect(same(p));
        if (pass_.sums.expect) pass_.sums.expect(first_group(p), last_group(p), p.first, p.last);
    }

private:
    [[nodiscard]] dim end(dim task) const { return cut_.begin(task / split_ + 1); }
    [[nodiscard]] dim first_group(const piece &p) const {
        return split_ == 1 ? 0 : p.task % split_;
    }
    [[nodiscard]] dim last_group(const piece &p) const {
        return split_ == 1 ? cut_.groups : p.task % split_ + 1;
    }
    [[nodiscard]] piece from(dim task, dim first) const {
        return {task, first, std::min(first + step_, end(task))};
    }
    /// About the same positions and channels of the data gradient.
    [[nodiscard]] walk_piece same(const piece &p) const {
        const data_walk &data = pass_.data;
        return {data.units * p.first / cut_.units, data.units * p.last / cut_.units,
            data.blocks * first_group(p) / cut_.groups, data.blocks * last_group(p) / cut_.groups};
    }

    const joint_pass &pass_;
    const sum_cut &cut_;
    dim split_;  // tasks of a part
    dim step_;   // units of a piece
};

}  // namespace

void run_joint(const joint_pass &pass, const executor &threads) {
    const executor workers = threads.limited(std::min(pass.data.workers, pass.sums.workers));
    const pieces all(pass, workers.threads());
    for_each_task(workers, all.tasks(), [&](int worker, dim task) {
        for (piece now = all.first_of(task); now.task == task && now.first < now.last;) {
            const piece next = all.after(now);
            all.expect(next);
            all.run(worker, now);
            now = next;
        }
    });
    pass.sums.finish(threads);
}

tensor_box fresh_box(
    const axis_walk (&walk)[3], const dim (&t0)[3], const dim (&length)[3], bool output) {
    tensor_box box{};
    for (std::size_t a = 0; a < 3; ++a) {
        const axis_walk &w = walk[a];
        if (output) {
            box.first[a] = t0[a] * w.out_step;
            box.last[a] = std::min((t0[a] + length[a]) * w.out_step, w.out_length);
            continue;
        }
        dim furthest = w.phases[0].taps[0].off;
        for (const axis_phase &f : w.phases)
            for (const axis_tap &tap : f.taps) furthest = std::max(furthest, tap.off);
        const auto end = [&](dim t) {  // of what positions up to t read
            return std::clamp<dim>(t * w.in_step + furthest + 1, 0, w.in_length);
        };
        box.first[a] = t0[a] == 0 ? 0 : end(t0[a] - 1);
        box.last[a] = end(t0[a] + length[a] - 1);
    }
    return box;
}

void expect_box(const void *tensor, data_type type, const conv::data_strides &strides,
    const tensor_box &box, bool write) {
    const dim size = static_cast<dim>(size_of(type)), columns = box.last[2] - box.first[2];
    const bool channels_last = strides.c == 1;
    if ((!channels_last && strides.x[2] != 1) || columns <= 0) return;
    for (dim c = 0; c < (channels_last ? 1 : box.channels); ++c)
        for (dim z = box.first[0]; z < box.last[0]; ++z)
            for (dim y = box.first[1]; y < box.last[1]; ++y) {
                const char *row =
                    static_cast<const char *>(tensor)
                    + size
                          * (box.n * strides.n + (box.channel + c) * strides.c + z * strides.x[0]
                              + y * strides.x[1] + box.first[2] * strides.x[2]);
                if (channels_last)
                    expect_runs(row, size * box.channels, size * strides.x[2], columns, write);
                else
                    expect_runs(row, size * columns, size * columns, 1, write);
            }
}

}  // namespace convgrad::cpu
