// Layers with strides on planes whose taps do not overlap (1×1 with stride 2, patches of 2×2 or
// 4×4): what src has at the positions that are met is copied to planes of its own, each tap as a
// channel, and the dense drivers for 1×1 layers do the rest. Rows of a few positions, every other
// of them, make packing and storing of small tiles longer than the products.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "conv/problem.hpp"
#include "conv/simplify.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/parallel.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

/// Whether a (simplified) problem can run in this form; if not, `why` (optional) tells.
bool fits_gathered(const conv::problem &p, std::string *why);

/// Planes of src at the positions that are met, and the problem that has them as its src.
class gathered_planes {
public:
    /// `p` fits.
    explicit gathered_planes(const conv::problem &p);

    [[nodiscard]] const conv::problem &whole() const { return p_; }
    /// Of `images()` images.
    [[nodiscard]] const conv::problem &dense() const { return dense_; }
    [[nodiscard]] dim images() const { return dense_.mb; }
    /// All images are computed in so many turns.
    [[nodiscard]] dim turns() const { return p_.mb / dense_.mb; }
    /// Of the planes, whole cache lines.
    [[nodiscard]] std::size_t bytes() const;
    /// What a limit leaves beside them; throws out_of_memory if that is nothing.
    [[nodiscard]] std::size_t rest_of(std::size_t workspace_limit) const;
    /// Bytes from the first image of a turn to that of the next, in a tensor with strides `s`.
    [[nodiscard]] dim turn_bytes(const conv::data_strides &s) const;

    /// From src to planes, or from planes to diff_src, where everything between is zero.
    /// `by_channels`: a thread's share is some channels of all images, of planes that it reads
    /// itself then, else all channels of some images.
    void copy(void *src, void *planes, bool by_channels, const executor &threads) const;
    [[nodiscard]] work_stage stage() const;

private:
    template <typename T>
    void gather(const T *src, T *planes, dim n, dim channel, dim first_tap, dim taps) const;
    template <typename T>
    void scatter(T *src, const T *planes, dim n, dim channel) const;
    [[nodiscard]] dim plane_of(dim n, dim channel, dim tap) const;

    conv::problem p_;
    dim taps_;
    bool taps_inside_;  // channels of the planes: taps of a channel side by side
    conv::problem dense_;
};

/// A driver behind gathered planes. Joint passes, which save reading, gain nothing here.
template <typename Inner>
class gathered {
public:
    gathered(const conv::problem &p, const kernel_set &kernels, const kernel_set *exact,
        int threads, std::size_t workspace_limit)
        : planes_(p), inner_(make(planes_, kernels, exact, threads, workspace_limit)) {}

    /// What threads have to do once the planes are there: its cut is made for that.
    [[nodiscard]] const conv::problem &dense() const { return planes_.dense(); }
    [[nodiscard]] std::size_t workspace() const { return planes_.bytes() + inner_.workspace(); }
    [[nodiscard]] std::string describe() const {
        return "planes of " + std::to_string(planes_.images()) + " images, " + inner_.describe();
    }
    [[nodiscard]] work_list work() const {
        work_list list = inner_.work();
        const auto turns = static_cast<double>(planes_.turns());
        for (work_stage &stage : list.stages)
            stage.cost = [cost = std::move(stage.cost), turns](dim task, dim before) {
                const task_cost one = cost(task, before);
                return task_cost{turns * one.macs, turns * one.read, turns * one.written};
            };
        list.stages.push_back(planes_.stage());
        return list;
    }
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const {
        const conv::problem &q = planes_.dense();
        conv::buffers turn = data;
        char *src = static_cast<char *>(data.src);
        bool by_channels = false;
        if constexpr (requires { inner_.sums(); })
            by_channels = q.what == conv::pass::backward_weights && inner_.sums().parts == 1;
        for (dim i = 0; i < planes_.turns(); ++i) {
            turn.src = workspace;
            if (q.what != conv::pass::backward_data)
                planes_.copy(src, workspace, by_channels, threads);
            inner_.execute(turn, workspace + planes_.bytes(), threads);
            if (q.what == conv::pass::backward_data)
                planes_.copy(src, workspace, by_channels, threads);
            src += planes_.turn_bytes(planes_.whole().src);
            turn.dst = static_cast<char *>(turn.dst) + planes_.turn_bytes(q.dst);
            if (q.add)
                turn.add = static_cast<const char *>(turn.add) + planes_.turn_bytes(q.add_strides);
        }
    }

private:
    static Inner make(const gathered_planes &planes, const kernel_set &kernels,
        const kernel_set *exact, int threads, std::size_t workspace_limit) {
        const conv::problem q = conv::simplify(planes.dense());
        const std::size_t rest = planes.rest_of(workspace_limit);
        if constexpr (std::is_constructible_v<Inner, const conv::problem &, const kernel_set &,
                          const kernel_set *, int, std::size_t>)
            return Inner(q, kernels, exact, threads, rest);
        else
            return Inner(q, kernels, threads, rest);
    }

    gathered_planes planes_;
    Inner inner_;
};

}  // namespace convgrad::cpu
