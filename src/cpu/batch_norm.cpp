#include "cpu/batch_norm.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cpu/backend.hpp"
#include "cpu/geometry.hpp"
#include "cpu/scratch.hpp"
#include "cpu/streaming.hpp"
#include "cpu/tasks.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim parts_wanted = 32;         // fixed, so that the order of sums is
constexpr dim rows_at_once = 64;         // channels last: summed in f32; beyond that in f64
constexpr dim positions_at_once = 1024;  // of planes, likewise

/// Where the work is cut, by the problem alone: channels are shared out, and their rows in parts. A
/// row is a position (channels last) or an image's plane, or a piece of it.
struct cut {
    explicit cut(const batch_norm &problem) : p(problem), size(static_cast<dim>(size_of(p.type))) {
        if (p.channels_last) {
            rows = p.count();
            rows_of_part = round_up_to(std::max<dim>(div_up(rows, parts_wanted), 1), rows_at_once);
        } else {
            pieces = div_up(p.positions, positions_at_once);
            rows = p.batch * pieces;
            const dim wanted = std::min(div_up(parts_wanted, p.channels), rows);
            rows_of_part = div_up(rows, wanted);
        }
        parts = div_up(rows, rows_of_part);
    }

    /// Tasks of one pass over the tensor: (part) or (channel, part).
    [[nodiscard]] dim tasks() const { return p.channels_last ? parts : p.channels * parts; }
    [[nodiscard]] dim part_of(dim task) const { return p.channels_last ? task : task % parts; }
    [[nodiscard]] dim first_channel(dim task) const { return p.channels_last ? 0 : task / parts; }
    [[nodiscard]] dim channels_of_task() const { return p.channels_last ? p.channels : 1; }
    /// Values of a channel.
    [[nodiscard]] dim count_of_part(dim part) const {
        const dim first = part * rows_of_part, last = std::min(first + rows_of_part, rows);
        if (p.channels_last) return last - first;
        const auto before = [&](dim row) {
            return row / pieces * p.positions
                   + std::min(row % pieces * positions_at_once, p.positions);
        };
        return before(last) - before(first);
    }
    [[nodiscard]] static dim count_of(const norm_rows &where) {
        return where.rows * (where.planes ? where.length : 1);
    }

    /// Calls body(rows, byte offset in the tensors) for the blocks of a task, in order.
    template <typename Body>
    void for_blocks(dim task, const Body &body) const {
        const dim part = part_of(task), channel = first_channel(task);
        const dim first = part * rows_of_part, last = std::min(first + rows_of_part, rows);
        if (p.channels_last) {
            const dim pitch = p.channels * size;
            for (dim row = first; row < last; row += rows_at_once)
                body(
                    norm_rows{p.type, false, std::min(rows_at_once, last - row), p.channels, pitch},
                    row * pitch);
            return;
        }
        const dim plane = p.positions * size, image = plane * p.channels;
        if (pieces == 1) {
            const dim some = std::max<dim>(positions_at_once / p.positions, 1);
            for (dim row = first; row < last; row += some)
                body(norm_rows{p.type, true, std::min(some, last - row), p.positions, image},
                    row * image + channel * plane);
            return;
        }
        for (dim row = first; row < last; ++row) {
            const dim x = row % pieces * positions_at_once;
            body(norm_rows{p.type, true, 1, std::min(positions_at_once, p.positions - x), image},
                row / pieces * image + channel * plane + x * size);
        }
    }

    const batch_norm &p;
    dim size;
    dim pieces = 1, rows = 0, rows_of_part = 1, parts = 1;
};

/// Arrays in one piece of scratch, given back at the end.
class arrays {
public:
    arrays(dim doubles, dim floats)
        : memory_(take_scratch(static_cast<std::size_t>(doubles * 8 + floats * 4))),
          next_double_(static_cast<double *>(memory_)),
          next_float_(static_cast<float *>(static_cast<void *>(next_double_ + doubles))) {}
    ~arrays() { give_scratch_back(memory_); }
    arrays(const arrays &) = delete;
    arrays &operator=(const arrays &) = delete;

    double *doubles(dim count) { return std::exchange(next_double_, next_double_ + count); }
    float *floats(dim count) { return std::exchange(next_float_, next_float_ + count); }

private:
    void *memory_;
    double *next_double_;
    float *next_float_;
};

const char *bytes(const void *p) {
    return static_cast<const char *>(p);
}
char *bytes(void *p) {
    return static_cast<char *>(p);
}

/// Calls add(worker, task) for all tasks, then finish(channel) for all channels, then
/// apply(task) for all tasks: channel by channel where each is a task of its own.
template <typename Add, typename Finish, typename Apply>
void run_stages(const cut &where, const executor &threads, const Add &add, const Finish &finish,
    const Apply &apply) {
    const batch_norm &p = where.p;
    if (!p.channels_last && where.parts == 1) {
        for_each_task(threads, p.channels, [&](int worker, dim channel) {
            add(worker, channel);
            finish(channel);
            apply(channel);
        });
        return;
    }
    for_each_task(threads, where.tasks(), add);
    constexpr dim channels_at_once = 64;
    for_each_task(threads, div_up(p.channels, channels_at_once), [&](int, dim block) {
        const dim first = block * channels_at_once;
        for (dim c = first; c < std::min(first + channels_at_once, p.channels); ++c) finish(c);
    });
    // Backwards: what was read last is still in the cache.
    for_each_task(threads, where.tasks(), [&](int, dim task) { apply(where.tasks() - 1 - task); });
}

/// No more threads than there is work for.
executor enough(const batch_norm &p, const executor &threads) {
    constexpr dim bytes_of_thread = 32 << 10;
    const dim all = p.count() * p.channels * static_cast<dim>(size_of(p.type));
    return threads.limited(static_cast<int>(std::clamp<dim>(all / bytes_of_thread, 1, 1 << 20)));
}

/// Whether the results of a block of rows go past the caches (streaming.hpp); `tensors` are as
/// large as the one that is written.
bool streams(const batch_norm &p, const norm_rows &rows, const char *to, dim tensors) {
    const dim size = static_cast<dim>(size_of(p.type));
    const auto each = static_cast<double>(p.count() * p.channels * size);
    return exceeds_caches(static_cast<double>(tensors - 1) * each, each)
           && on_lines(to, rows.rows > 1 ? rows.pitch : 0, 0)
           && size * rows.length >= 4 * line_bytes;
}

float or_one(const float *values, dim channel) {
    return values != nullptr ? values[channel] : 1;
}

/// What makes values of src, from what the forward pass tells: the same in both passes.
struct value_factors {
    value_factors(const batch_norm &problem, arrays &memory)
        : p(problem), scale(memory.floats(p.channels)), shift(memory.floats(p.channels)) {}
    void set(dim c, const norm_parameters &parameters, float mean, float factor) const {
        scale[c] = or_one(parameters.gamma, c) * factor;
        const double offset =
            parameters.beta != nullptr ? static_cast<double>(parameters.beta[c]) : 0.0;
        shift[c] =
            static_cast<float>(offset - static_cast<double>(mean) * static_cast<double>(scale[c]));
    }
    [[nodiscard]] norm_values from(dim channel) const {
        return {scale + channel, shift + channel, p.clamped, p.low, p.high};
    }
    const batch_norm &p;
    float *scale, *shift;
};

/// Means of `have` values, and sums of their squared deviations, become those of `more` values
/// more.
struct merge {
    merge(double have, double more) : share(more / (have + more)), of_square(have * share) {}
    void add(double &mean, double &squares, double other_mean, double other_squares) const {
        const double delta = other_mean - mean;
        mean += delta * share;
        squares += other_squares + delta * delta * of_square;
    }
    double share, of_square;
};

}  // namespace

void run(const batch_norm &p, const norm_forward &what, const norm_kernels &kernels,
    const executor &given) {
    if (p.channels == 0) return;
    const cut where(p);
    const executor threads = enough(p, given);
    const dim mine = where.channels_of_task(), room = round_up_to(mine, norm_lanes);
    const dim all_parts = where.parts * p.channels, local_size = 3 * room * threads.threads();
    arrays memory(2 * all_parts, 2 * p.channels + local_size);
    double *means = memory.doubles(all_parts), *squares = memory.doubles(all_parts);
    const value_factors factors(p, memory);
    float *local = memory.floats(local_size);

    const auto add = [&](int worker, dim task) {
        const dim start = where.part_of(task) * p.channels + where.first_channel(task);
        double *mean = means + start, *square = squares + start;
        float *pivot = local + 3 * room * worker, *off = pivot + room, *off_square = off + room;
        std::fill(mean, mean + mine, 0.0);
        std::fill(square, square + mine, 0.0);
        dim have = 0;
        where.for_blocks(task, [&](const norm_rows &rows, dim offset) {
            // The first rows are enough for a pivot: it only keeps sums of squares from losing
            // digits.
            const char *src = bytes(what.src) + offset;
            if (have == 0) kernels.means({rows, src, pivot});
            kernels.moments({rows, src, pivot, off, off_square});
            for (dim c = 0; c < mine; ++c) mean[c] += static_cast<double>(off[c]);
            for (dim c = 0; c < mine; ++c) square[c] += static_cast<double>(off_square[c]);
            have += cut::count_of(rows);
        });
        const double each = 1 / static_cast<double>(have);
        for (dim c = 0; c < mine; ++c) {
            square[c] -= mean[c] * mean[c] * each;
            mean[c] = static_cast<double>(pivot[c]) + mean[c] * each;
        }
    };
    const auto finish = [&](dim c) {
        double mean = means[c], square = squares[c];
        auto have = static_cast<double>(where.count_of_part(0));
        for (dim part = 1; part < where.parts; ++part) {
            const auto more = static_cast<double>(where.count_of_part(part));
            const dim at = part * p.channels + c;
            merge(have, more).add(mean, square, means[at], squares[at]);
            have += more;
        }
        const double variance = square < 0 ? 0 : square / have;  // NaN stays
        what.mean[c] = static_cast<float>(mean);
        what.variance[c] = static_cast<float>(variance);
        what.factor[c] = static_cast<float>(1 / std::sqrt(variance + what.epsilon));
        factors.set(c, what.parameters, what.mean[c], what.factor[c]);
    };
    run_stages(where, threads, add, finish, [&](dim task) {
        const norm_values values = factors.from(where.first_channel(task));
        where.for_blocks(task, [&](const norm_rows &rows, dim offset) {
            char *to = bytes(what.dst) + offset;
            kernels.normalize(
                {rows, values, bytes(what.src) + offset, to, streams(p, rows, to, 2)});
        });
    });
}

void run(const batch_norm &p, const norm_backward &what, const norm_kernels &kernels,
    const executor &given) {
    if (p.channels == 0) return;
    const cut where(p);
    const executor threads = enough(p, given);
    const dim mine = where.channels_of_task(), room = round_up_to(mine, norm_lanes);
    const dim local_size = 2 * room * threads.threads();
    arrays memory(2 * where.parts * p.channels, 5 * p.channels + local_size);
    double *found = memory.doubles(2 * where.parts * p.channels);
    const value_factors factors(p, memory);
    float *of_g = memory.floats(p.channels), *of_src = memory.floats(p.channels),
          *constant = memory.floats(p.channels), *local = memory.floats(local_size);
    for (dim c = 0; c < p.channels; ++c)
        factors.set(c, what.parameters, what.mean[c], what.factor[c]);
    const char *src = bytes(what.src), *diff_dst = bytes(what.diff_dst);

    const auto add = [&](int worker, dim task) {
        const dim first = where.first_channel(task);
        double *to = found + 2 * (where.part_of(task) * p.channels + first);
        float *sums = local + 2 * room * worker, *dots = sums + room;
        std::fill(to, to + 2 * mine, 0.0);
        where.for_blocks(task, [&](const norm_rows &rows, dim offset) {
            kernels.gradient_sums({rows, factors.from(first), src + offset, diff_dst + offset,
                what.mean + first, sums, dots});
            for (dim c = 0; c < mine; ++c) {
                to[2 * c] += static_cast<double>(sums[c]);
                to[2 * c + 1] += static_cast<double>(dots[c]);
            }
        });
    };
    const auto finish = [&](dim c) {
        double sum = 0, dot = 0;
        for (dim part = 0; part < where.parts; ++part) {
            sum += found[2 * (part * p.channels + c)];
            dot += found[2 * (part * p.channels + c) + 1];
        }
        const auto factor = static_cast<double>(what.factor[c]);
        const double all = static_cast<double>(or_one(what.parameters.gamma, c)) * factor;
        const auto count = static_cast<double>(p.count());
        of_g[c] = static_cast<float>(all);
        of_src[c] = static_cast<float>(-all * factor * factor * dot / count);
        constant[c] = static_cast<float>(-all * sum / count);
        if (what.diff_gamma != nullptr) what.diff_gamma[c] = static_cast<float>(dot * factor);
        if (what.diff_beta != nullptr) what.diff_beta[c] = static_cast<float>(sum);
    };
    run_stages(where, threads, add, finish, [&](dim task) {
        if (what.diff_src == nullptr) return;
        const dim first = where.first_channel(task);
        where.for_blocks(task, [&](const norm_rows &rows, dim offset) {
            char *to = bytes(what.diff_src) + offset;
            kernels.gradient(
                {rows, factors.from(first), src + offset, diff_dst + offset, what.mean + first,
                    of_g + first, of_src + first, constant + first, to, streams(p, rows, to, 3)});
        });
    });
}

void run(const batch_norm &p, const norm_forward &what, const engine &on) {
    const backend &mine = backend_of(on);
    run(p, what, best_norm(mine.limits({}).max_isa), mine.executor_now());
}

void run(const batch_norm &p, const norm_backward &what, const engine &on) {
    const backend &mine = backend_of(on);
    run(p, what, best_norm(mine.limits({}).max_isa), mine.executor_now());
}

}  // namespace convgrad::cpu
