#include "cpu/depthwise.hpp"

#include <algorithm>

#include "cpu/element.hpp"
#include "cpu/tasks.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim most_taps = 512;         // of one output position
constexpr dim block_channels = 128;    // C of a segment stays in L1 or close to it
constexpr dim segment_positions = 64;
constexpr dim parts_wanted = 32;
constexpr dim partials_most = 8 << 20;

float *floats(char *p) { return static_cast<float *>(static_cast<void *>(p)); }

/// Positions [lo, hi) of a phase at which every tap lies inside the input.
void inner_range(const axis_walk &walk, const axis_phase &phase, dim &lo, dim &hi) {
    lo = 0;
    hi = phase.count;
    for (const axis_tap &tap : phase.taps) {
        lo = std::max(lo, tap.off >= 0 ? 0 : div_up(-tap.off, walk.in_step));
        hi = std::min(hi, walk.in_length > tap.off ? div_up(walk.in_length - tap.off, walk.in_step) : 0);
    }
    lo = std::min(lo, phase.count);
    hi = std::max(hi, lo);
}

}  // namespace

std::string refuse_depthwise(const conv::problem &p) {
    if (p.ic != 1 || p.oc != 1) return "more than one channel per group";
    if (p.src.c != 1 || p.dst.c != 1) return "channels do not lie side by side";
    if (p.x[0].kernel * p.x[1].kernel * p.x[2].kernel > most_taps)
        return "more than " + std::to_string(most_taps) + " taps";
    return {};
}

/// One row of output positions.
struct depthwise_data::row {
    const conv::buffers *data;
    const float *weights;
    const float *bias;
    float *c;
    dim n, t[2], x[2];  // positions and output indices along depth and height
    const axis_phase *phase[2];
};

depthwise_data::depthwise_data(
    const conv::problem &p, const kernel_set &kernels, int threads, std::size_t workspace_limit)
    : p_(p), kernels_(kernels), roles_(p) {
    for (std::size_t a = 0; a < 3; ++a)
        walk_[a] = roles_.forward ? walk_forward(p.x[a]) : walk_backward(p.x[a]);
    empty_ = p.mb == 0 || p.groups == 0 || count_taps(walk_) == 0 || count_positions(walk_) == 0;
    if (empty_) return;
    pitch_ = round_up_to(p.groups, 16);
    block_ = std::min(block_channels, pitch_);
    segment_ = std::min(segment_positions, walk_[2].longest);
    while (shared_bytes() + scratch_bytes() > workspace_limit && segment_ > 1) segment_ /= 2;
    check_workspace("depthwise convolution", shared_bytes() + scratch_bytes(), workspace_limit);
    workers_ = static_cast<int>(std::min<dim>(
        {std::max(threads, 1), p.mb * walk_[0].out_length * walk_[1].out_length,
            static_cast<dim>((workspace_limit - shared_bytes()) / scratch_bytes())}));
}

std::size_t depthwise_data::shared_bytes() const {
    const dim taps = p_.x[0].kernel * p_.x[1].kernel * p_.x[2].kernel;
    return static_cast<std::size_t>(4 * pitch_ * (taps + 1));
}

std::size_t depthwise_data::scratch_bytes() const {
    return static_cast<std::size_t>(4 * block_ * segment_);
}

std::size_t depthwise_data::workspace() const {
    return empty_ ? 0 : shared_bytes() + scratch_bytes() * static_cast<std::size_t>(workers_);
}

void depthwise_data::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    fill_unreached(p_, roles_, walk_, kernels_, empty_, data, threads);
    if (empty_) return;
    const dim taps = p_.x[0].kernel * p_.x[1].kernel * p_.x[2].kernel;
    float *weights = floats(workspace), *bias = weights + taps * pitch_;
    for (dim tap = 0; tap < taps; ++tap) {
        const dim kw = tap % p_.x[2].kernel, kh = tap / p_.x[2].kernel % p_.x[1].kernel;
        const dim kd = tap / p_.x[2].kernel / p_.x[1].kernel;
        const dim at = kd * p_.weights.k[0] + kh * p_.weights.k[1] + kw * p_.weights.k[2];
        for (dim c = 0; c < pitch_; ++c)
            weights[tap * pitch_ + c]
                = c < p_.groups ? load_float(data.weights, p_.type, at + c * p_.weights.g) : 0;
    }
    for (dim c = 0; c < pitch_; ++c)
        bias[c] = p_.bias && c < p_.groups ? load_float(data.bias, p_.type, c * p_.bias_stride) : 0;
    char *scratch = workspace + shared_bytes();
    for_each_task(threads.limited(workers_), p_.mb * walk_[0].out_length * walk_[1].out_length,
        [&](int worker, dim index) {
            run_row(data, weights, bias,
                floats(scratch + static_cast<std::size_t>(worker) * scratch_bytes()), index);
        });
}

void depthwise_data::run_row(const conv::buffers &data, const float *weights, const float *bias,
    float *c, dim index) const {
    row r {&data, weights, bias, c, 0, {}, {}, {nullptr, nullptr}};
    r.x[1] = index % walk_[1].out_length;
    r.x[0] = index / walk_[1].out_length % walk_[0].out_length;
    r.n = index / walk_[1].out_length / walk_[0].out_length;
    for (std::size_t a = 0; a < 2; ++a) {
        for (const axis_phase &phase : walk_[a].phases)
            if (phase.first == r.x[a] % walk_[a].out_step) r.phase[a] = &phase;
        if (r.phase[a] == nullptr) return;  // fill_unreached has written it
        r.t[a] = r.x[a] / walk_[a].out_step;
    }
    for (const axis_phase &phase : walk_[2].phases) run_phase(r, phase);
}

/// The inner positions of a row together, those beside padding one by one.
void depthwise_data::run_phase(const row &r, const axis_phase &phase) const {
    dim lo, hi;
    inner_range(walk_[2], phase, lo, hi);
    for (dim t = 0; t < lo; ++t) run_positions(r, phase, t, 1);
    for (dim t = lo; t < hi; t += segment_) run_positions(r, phase, t, std::min(segment_, hi - t));
    for (dim t = hi; t < phase.count; ++t) run_positions(r, phase, t, 1);
}

/// Positions [t0, t0 + count) of a row, for all of which the same taps lie inside.
void depthwise_data::run_positions(
    const row &r, const axis_phase &phase, dim t0, dim count) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    dim run[most_taps];
    const float *weights[most_taps];
    dim taps = 0;
    for (const axis_tap &kd : r.phase[0]->taps)
        for (const axis_tap &kh : r.phase[1]->taps)
            for (const axis_tap &kw : phase.taps) {
                const dim d = r.t[0] * walk_[0].in_step + kd.off, h = r.t[1] * walk_[1].in_step + kh.off;
                const dim w = t0 * walk_[2].in_step + kw.off;
                if (d < 0 || d >= walk_[0].in_length || h < 0 || h >= walk_[1].in_length || w < 0
                    || w >= walk_[2].in_length)
                    continue;
                run[taps] = size * (d * roles_.in.x[0] + h * roles_.in.x[1] + w * roles_.in.x[2]);
                weights[taps++] = r.weights
                    + ((kd.k * p_.x[1].kernel + kh.k) * p_.x[2].kernel + kw.k) * pitch_;
            }
    const dim x = phase.first + t0 * walk_[2].out_step;
    const auto at = [&](const conv::data_strides &s) {
        return size * (r.n * s.n + r.x[0] * s.x[0] + r.x[1] * s.x[1] + x * s.x[2]);
    };
    for (dim c = 0; c < p_.groups; c += block_) {
        const dim channels = std::min(block_, p_.groups - c);
        const float *block_weights[most_taps];
        for (dim tap = 0; tap < taps; ++tap) block_weights[tap] = weights[tap] + c;
        kernels_.depthwise({static_cast<const char *>(roles_.input(*r.data))
                + size * (r.n * roles_.in.n + c),
            p_.type, run, block_weights, taps, channels, count,
            size * roles_.in.x[2] * walk_[2].in_step, r.c, block_});
        kernels_.store({r.c, 1, block_, channels, count,
            static_cast<char *>(roles_.output(*r.data)) + at(roles_.out) + size * c, p_.type, 1,
            roles_.out.x[2] * walk_[2].out_step, p_.bias ? r.bias + c : nullptr,
            p_.add ? static_cast<const char *>(r.data->add) + at(p_.add_strides)
                    + size * c * p_.add_strides.c
                   : nullptr,
            p_.add_strides.c, p_.add_strides.x[2] * walk_[2].out_step, p_.accumulate, p_.relu});
    }
}

work_list depthwise_data::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    list.stages.push_back(unreached_stage(p_, roles_, walk_, empty_, workers_));
    if (empty_) return list;
    const auto size = static_cast<double>(size_of(p_.type)),
               channels = static_cast<double>(p_.groups);
    list.stages.push_back({"weights to f32", 1, 1, [this, size](dim, dim) {
                               return task_cost{0, size * static_cast<double>(shared_bytes()) / 4,
                                   static_cast<double>(shared_bytes())};
                           }});
    list.stages.push_back({"rows", p_.mb * walk_[0].out_length * walk_[1].out_length, workers_,
        [this, size, channels](dim index, dim) {
            const dim x[2] = {
                index / walk_[1].out_length % walk_[0].out_length, index % walk_[1].out_length};
            double taps = 1;
            for (std::size_t a = 0; a < 2; ++a) {
                double inside = 0;
                for (const axis_phase &phase : walk_[a].phases)
                    if (phase.first == x[a] % walk_[a].out_step)
                        inside = inside_pairs(walk_[a], phase, x[a] / walk_[a].out_step, 1);
                taps *= inside;
            }
            double pairs = 0;
            dim outputs = 0;
            for (const axis_phase &phase : walk_[2].phases) {
                pairs += taps * inside_pairs(walk_[2], phase, 0, phase.count);
                outputs += phase.count;
            }
            // A row of the input serves several rows of the output; it comes from memory once.
            const double read = static_cast<double>(walk_[2].in_length * walk_[1].in_length)
                                / static_cast<double>(walk_[1].out_length);
            return task_cost{channels * pairs, channels * size * read,
                channels * size * static_cast<double>(outputs)};
        }});
    return list;
}

std::string depthwise_data::describe() const {
    if (empty_) return "nothing to sum";
    return "rows in place, vectors along channels, block " + std::to_string(block_) + " channels x "
        + std::to_string(segment_) + " positions";
}

depthwise_weights::depthwise_weights(
    const conv::problem &p, const kernel_set &kernels, int threads, std::size_t workspace_limit)
    : p_(p), kernels_(kernels), threads_(threads) {
    for (std::size_t a = 0; a < 3; ++a) walk_[a] = walk_forward(p.x[a]);
    taps_ = gradient_taps(p, walk_);
    if (p.mb == 0 || p.groups == 0 || taps_.kept.empty()) return;
    pitch_ = round_up_to(p.groups, 16);
    rows_ = p.mb * p.x[0].dst * p.x[1].dst;
    const dim bytes = 4 * partial_floats();
    parts_ = std::clamp<dim>(std::min(parts_wanted, partials_most / bytes), 1, rows_);
    while (parts_ > 1 && workspace() > workspace_limit) --parts_;
    check_workspace("depthwise convolution", workspace(), workspace_limit);
}

std::size_t depthwise_weights::workspace() const {
    return static_cast<std::size_t>(4 * parts_ * partial_floats());
}

void depthwise_weights::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    taps_.write_zeros(p_, data);
    if (parts_ == 0) return;
    float *partials = floats(workspace);
    for_each_task(threads.limited(threads_), parts_, [&](int, dim part) {
        float *partial = partials + part * partial_floats();
        std::fill_n(partial, partial_floats(), 0.0F);
        for (dim row = rows_ * part / parts_; row < rows_ * (part + 1) / parts_; ++row)
            run_row(data, partial, row);
    });
    for (std::size_t tap = 0; tap < taps_.kept.size(); ++tap)
        for (dim c = 0; c < p_.groups; ++c) {
            const float *first = partials + static_cast<dim>(tap) * pitch_ + c;
            float sum = first[0];
            for (dim part = 1; part < parts_; ++part) sum += first[part * partial_floats()];
            store_rounded(data.weights, p_.out_type, taps_.kept[tap] + c * p_.weights.g,
                static_cast<double>(sum), p_.accumulate);
        }
}

void depthwise_weights::run_row(const conv::buffers &data, float *partial, dim index) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const dim h = index % p_.x[1].dst, d = index / p_.x[1].dst % p_.x[0].dst;
    const dim n = index / p_.x[1].dst / p_.x[0].dst;
    const auto &kd = walk_[0].phases[0].taps, &kh = walk_[1].phases[0].taps,
               &kw = walk_[2].phases[0].taps;
    // Positions for all of which the same taps lie inside.
    const auto run = [&](dim t0, dim count) {
        dim offset[most_taps];
        float *c[most_taps];
        dim taps = 0;
        for (std::size_t i = 0; i < kd.size(); ++i)
            for (std::size_t j = 0; j < kh.size(); ++j)
                for (std::size_t k = 0; k < kw.size(); ++k) {
                    const dim x[3] = {d * walk_[0].in_step + kd[i].off,
                        h * walk_[1].in_step + kh[j].off, t0 * walk_[2].in_step + kw[k].off};
                    bool inside = true;
                    for (std::size_t a = 0; a < 3; ++a)
                        inside = inside && x[a] >= 0 && x[a] < walk_[a].in_length;
                    if (!inside) continue;
                    offset[taps]
                        = size * (x[0] * p_.src.x[0] + x[1] * p_.src.x[1] + x[2] * p_.src.x[2]);
                    c[taps++] = partial
                        + static_cast<dim>((i * kh.size() + j) * kw.size() + k) * pitch_;
                }
        if (taps == 0) return;
        kernels_.depthwise_gradient({static_cast<const char *>(data.src) + size * n * p_.src.n,
            static_cast<const char *>(data.dst)
                + size * (n * p_.dst.n + d * p_.dst.x[0] + h * p_.dst.x[1] + t0 * p_.dst.x[2]),
            p_.type, offset, taps, p_.groups, count, size * p_.src.x[2] * walk_[2].in_step,
            size * p_.dst.x[2], c});
    };
    dim lo, hi;
    inner_range(walk_[2], walk_[2].phases[0], lo, hi);
    for (dim t = 0; t < lo; ++t) run(t, 1);
    if (hi > lo) run(lo, hi - lo);
    for (dim t = hi; t < p_.x[2].dst; ++t) run(t, 1);
}

work_list depthwise_weights::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    if (parts_ == 0) return list;
    list.parts = parts_;
    list.parts_bytes = 4 * static_cast<double>(parts_ * partial_floats());
    list.stages.push_back({"parts", parts_, threads_,
        [this](dim part, dim) {
            double pairs = 0;
            const dim first = rows_ * part / parts_, last = rows_ * (part + 1) / parts_;
            for (dim row = first; row < last; ++row)
                pairs +=
                    inside_pairs(walk_[0], walk_[0].phases[0], row / p_.x[1].dst % p_.x[0].dst, 1)
                    * inside_pairs(walk_[1], walk_[1].phases[0], row % p_.x[1].dst, 1);
            pairs *= inside_pairs(walk_[2], walk_[2].phases[0], 0, p_.x[2].dst);
            const auto each = static_cast<double>(p_.groups * static_cast<dim>(size_of(p_.type)));
            const double src = static_cast<double>(p_.mb * p_.x[0].src * p_.x[1].src * p_.x[2].src);
            const double dst = static_cast<double>(rows_ * p_.x[2].dst);
            return task_cost{static_cast<double>(p_.groups) * pairs,
                each * (src + dst) * static_cast<double>(last - first) / static_cast<double>(rows_),
                static_cast<double>(4 * partial_floats())};
        }});
    list.stages.push_back(
        {"sum of parts", 1, 1, [this](dim, dim) {
             return task_cost{0, static_cast<double>(4 * parts_ * partial_floats()), 0};
         }});
    return list;
}

std::string depthwise_weights::describe() const {
    if (parts_ == 0) return "nothing to sum";
    return "rows in place, vectors along channels, parts " + std::to_string(parts_);
}

}  // namespace convgrad::cpu
