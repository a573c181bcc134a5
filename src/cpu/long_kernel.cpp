// For each task (a tile of outputs along the last axis × some rows), for each term along the other
// axes and each reduced channel or image, for some terms along the last axis at a time:
//   a and the input are copied as f32, a row of the tile for each term             multiply
//   C[row][output] += Σ_terms a · in
// or, at the borders, term by term where it lies inside the input                  multiply_careful
// Then C leaves with bias, add, ReLU and one rounding.                              store
#include "cpu/long_kernel.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "conv/simplify.hpp"
#include "cpu/element.hpp"
#include "cpu/geometry.hpp"
#include "cpu/tasks.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

/// Beyond, lists of taps take more than some 8 MB, and making them more than some 10 ms.
constexpr dim tile_lanes = 128, block_terms = 64, block_rows = 56;
constexpr int vectors = 2;

__extension__ typedef __int128 wide;

/// The inverse of v modulo m, which have no common divisor.
dim inverse(dim v, dim m) {
    dim r0 = m, r1 = v % m, t0 = 0, t1 = 1;
    while (r1 != 0) {
        const dim q = r0 / r1;
        r0 = std::exchange(r1, r0 - q * r1);
        t0 = std::exchange(t1, t0 - q * t1);
    }
    return t0 < 0 ? t0 + m : t0;
}

/// Backward data, source indices residue + l·stride: tap k meets them where it and the pad leave
/// the same rest, which every stride/gcd(stride, dilation)-th tap does.
long_axis backward_axis(const conv::axis &a, dim residue) {
    long_axis x{div_up(a.src - residue, a.stride), residue, a.stride, 0, 0, 1, 0, 1, 1, a.dst};
    const dim common = std::gcd(a.stride, a.dilation), from = residue + a.pad;
    if (from % common != 0) return x;
    const dim modulus = a.stride / common;
    x.a_step = modulus;
    x.a_first = static_cast<dim>(static_cast<wide>(from / common % modulus)
                                 * inverse(a.dilation / common % modulus, modulus) % modulus);
    if (x.a_first >= a.kernel) return x;
    x.terms = (a.kernel - 1 - x.a_first) / modulus + 1;
    x.start = (from - x.a_first * a.dilation) / a.stride;
    x.step = -(a.dilation / common);
    return x;
}

long_axis make_axis(conv::pass what, const conv::axis &a, dim residue) {
    if (what == conv::pass::forward)
        return {a.dst, 0, 1, a.kernel, 0, 1, -a.pad, a.stride, a.dilation, a.src};
    if (what == conv::pass::backward_weights)
        return {a.kernel, 0, 1, a.dst, 0, 1, -a.pad, a.dilation, a.stride, a.src};
    return backward_axis(a, residue);
}

char *offset(void *data, data_type type, dim elements) {
    return static_cast<char *>(data) + static_cast<dim>(size_of(type)) * elements;
}
const char *offset(const void *data, data_type type, dim elements) {
    return static_cast<const char *>(data) + static_cast<dim>(size_of(type)) * elements;
}

}  // namespace

struct long_kernel::scratch {
    float *a;     // [row][term]
    float *b;     // [term][output]
    float *c;     // [row][output]
    float *bias;  // of the rows
};

struct long_kernel::task {
    dim group, outer, first_row, rows;
    long_axis x[3];
    dim at[3];  // lane; of the last axis the first one
    dim count;  // lanes of the last axis
};

long_kernel::long_kernel(
    const conv::problem &p, const kernel_set &kernels, int threads, std::size_t workspace_limit)
    : p_(p), kernels_(kernels) {
    // The longest kernel last: terms and outputs of that axis are taken many at a time.
    const std::size_t longest = p_.x[0].kernel > p_.x[1].kernel ? 0 : 1;
    if (p_.x[longest].kernel / 8 > p_.x[2].kernel) conv::swap_axes(p_, longest, 2);
    const operand src{p.ic * p.src.c, p.src.n, p.src.c, p.src.c, p_.src.x};
    const operand dst{p.oc * p.dst.c, p.dst.n, p.dst.c, p.dst.c, p_.dst.x};
    const conv::weights_strides &w = p_.weights;
    outers_ = p.mb;
    if (p.what == conv::pass::forward) {
        rows_ = p.oc, reduced_ = p.ic;
        a_ = {w.g, 0, w.o, w.i, w.k}, in_ = src, out_ = dst;
    } else if (p.what == conv::pass::backward_data) {
        rows_ = p.ic, reduced_ = p.oc;
        a_ = {w.g, 0, w.i, w.o, w.k}, in_ = dst, out_ = src;
    } else {
        rows_ = p.oc, reduced_ = p.mb, outers_ = p.ic;
        a_ = {dst.group, 0, p.dst.c, p.dst.n, p_.dst.x};
        in_ = {src.group, p.src.c, 0, p.src.n, p_.src.x};
        out_ = {w.g, w.i, w.o, 0, w.k};
    }
    const conv::data_strides &add = p_.add_strides;
    add_ = {rows_ * add.c, add.n, add.c, 0, add.x};
    const bool back = p.what == conv::pass::backward_data;
    for (std::size_t i = 0; i < 3; ++i)
        out_length_[i] = back                                     ? p_.x[i].src
                         : p.what == conv::pass::backward_weights ? p_.x[i].kernel
                                                                  : p_.x[i].dst;
    if (p.groups == 0 || rows_ == 0 || outers_ == 0) return;
    for (const dim length : out_length_)
        if (length == 0) return;
    residues_ = back ? std::min(p_.x[2].stride, p_.x[2].src) : 1;
    tiles_ = div_up(div_up(out_length_[2], back ? p_.x[2].stride : 1), tile_lanes);
    row_blocks_ = div_up(rows_, block_rows);
    check_workspace("convolution with a long kernel", scratch_bytes(), workspace_limit);
    tasks_ =
        p.groups * outers_ * row_blocks_ * out_length_[0] * out_length_[1] * residues_ * tiles_;
    workers_ = static_cast<int>(std::min<dim>({std::max(threads, 1), tasks_,
        static_cast<dim>(std::min<std::size_t>(workspace_limit / scratch_bytes(), 1 << 20))}));
}

std::size_t long_kernel::workspace() const {
    return tasks_ == 0 ? 0 : scratch_bytes() * static_cast<std::size_t>(workers_);
}

long_kernel::scratch long_kernel::lay_out(memory_walk &memory) {
    scratch s{};
    s.a = memory.take<float>(block_rows * block_terms);
    s.b = memory.take<float>(block_terms * tile_lanes);
    s.c = memory.take<float>(block_rows * tile_lanes);
    s.bias = memory.take_lines<float>(block_rows);
    return s;
}

std::size_t long_kernel::scratch_bytes() {
    return bytes_of_walk(lay_out);
}

void long_kernel::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    for_each_task(threads.limited(workers_), tasks_, [&](int worker, dim index) {
        memory_walk mine(workspace + static_cast<std::size_t>(worker) * scratch_bytes());
        run_task(lay_out(mine), data, make_task(index));
    });
}

long_kernel::task long_kernel::make_task(dim index) const {
    const auto take = [&index](dim count) {
        const dim value = index % count;
        index /= count;
        return value;
    };
    task t{};
    t.at[2] = take(tiles_) * tile_lanes;
    t.x[2] = make_axis(p_.what, p_.x[2], take(residues_));
    for (std::size_t i = 2; i-- > 0;) {
        const dim x = take(out_length_[i]);
        const dim step = p_.what == conv::pass::backward_data ? p_.x[i].stride : 1;
        t.x[i] = make_axis(p_.what, p_.x[i], x % step);
        t.at[i] = x / step;
    }
    t.first_row = take(row_blocks_) * block_rows;
    t.rows = std::min(block_rows, rows_ - t.first_row);
    t.outer = take(outers_);
    t.group = index;
    t.count = std::min(tile_lanes, t.x[2].lanes - t.at[2]);
    return t;
}

namespace {

/// Terms whose input index lies inside for lane `least` as well as for lane `most` (all lanes
/// between), or, the other way round, at most those for which one of them does.
template <typename Range>
Range terms_inside(const long_axis &x, dim least, dim most) {
    const dim low = -x.start - least * x.lane, high = x.length - 1 - x.start - most * x.lane;
    const dim step = x.step > 0 ? x.step : -x.step;
    const dim first = x.step > 0 ? -div_down(-low, step) : -div_down(high, step);
    const dim last = x.step > 0 ? div_down(high, step) : div_down(-low, step);
    const dim from = std::clamp<dim>(first, 0, x.terms);
    return {from, std::clamp<dim>(last + 1, from, x.terms)};
}

}  // namespace

void long_kernel::run_task(const scratch &s, const conv::buffers &data, const task &t) const {
    if (t.count <= 0) return;
    std::fill_n(s.c, t.rows * tile_lanes, 0.0F);
    const bool weights = p_.what == conv::pass::backward_weights;
    const void *a_data = weights ? data.dst : data.weights;
    const void *in_data = p_.what == conv::pass::backward_data ? data.dst : data.src;
    const auto depth = terms_inside<term_range>(t.x[0], t.at[0], t.at[0]);
    const auto height = terms_inside<term_range>(t.x[1], t.at[1], t.at[1]);
    const auto term_of = [&](std::size_t axis, dim r, dim &a, dim &in) {
        const long_axis &x = t.x[axis];
        a += (x.a_first + r * x.a_step) * a_.x[axis];
        in += (x.start + t.at[axis] * x.lane + r * x.step) * in_.x[axis];
    };
    for (dim d = depth.first; d < depth.last; ++d)
        for (dim h = height.first; h < height.last; ++h)
            for (dim c = 0; c < reduced_; ++c) {
                dim a = t.group * a_.group + t.first_row * a_.row + c * a_.reduced;
                dim in = t.group * in_.group + t.outer * in_.outer + c * in_.reduced;
                term_of(0, d, a, in);
                term_of(1, h, a, in);
                add_row(s, t, offset(a_data, p_.type, a), offset(in_data, p_.type, in));
            }
    store(s, data, t);
}

/// All terms along the last axis; `a` and `in` are at index 0 of it.
void long_kernel::add_row(const scratch &s, const task &t, const char *a, const char *in) const {
    const dim first = t.at[2], last = first + t.count - 1;
    const auto some = terms_inside<term_range>(t.x[2], last, first);
    auto whole = terms_inside<term_range>(t.x[2], first, last);
    if (whole.first == whole.last) whole = {some.last, some.last};
    for (dim r = some.first; r < whole.first; ++r) multiply_careful(s, t, a, in, r);
    for (dim r = whole.first; r < whole.last; r += block_terms)
        multiply(s, t, a, in, r, std::min(block_terms, whole.last - r));
    for (dim r = whole.last; r < some.last; ++r) multiply_careful(s, t, a, in, r);
}

void long_kernel::multiply(
    const scratch &s, const task &t, const char *a, const char *in, dim term, dim terms) const {
    const long_axis &x = t.x[2];
    const dim size = static_cast<dim>(size_of(p_.type));
    static_cast<void>(
        kernels_.widen_rows({a + size * (x.a_first + term * x.a_step) * a_.x[2], p_.type, 0,
            size * a_.row, 1, t.rows, terms, x.a_step * a_.x[2], s.a, 0, block_terms, false}));
    static_cast<void>(
        kernels_.widen_rows({in + size * (x.start + t.at[2] * x.lane + term * x.step) * in_.x[2],
            p_.type, 0, size * x.step * in_.x[2], 1, terms, t.count, x.lane * in_.x[2], s.b, 0,
            tile_lanes, false}));
    const dim start = 0;
    product_args args{};
    args.a_run = args.b_run = &start;
    args.runs = 1;
    args.k = terms;
    args.a_m = 4 * block_terms;
    args.a_step = 4;
    args.b_step = 4 * tile_lanes;
    args.ldc = tile_lanes;
    args.accumulate = true;
    const dim tallest = kernels_.max_m[vectors], width = dim{vectors} * kernels_.lanes;
    for (dim l = 0; l < t.count; l += width)
        for (dim m = 0; m < t.rows; m += tallest) {
            args.a = static_cast<const char *>(static_cast<const void *>(s.a + m * block_terms));
            args.b = static_cast<const char *>(static_cast<const void *>(s.b + l));
            args.c = s.c + m * tile_lanes + l;
            kernels_.product(args, static_cast<int>(std::min(tallest, t.rows - m)),
                static_cast<int>(div_up(std::min(width, t.count - l), kernels_.lanes)));
        }
}

/// One term, which only some outputs have.
void long_kernel::multiply_careful(
    const scratch &s, const task &t, const char *a, const char *in, dim term) const {
    const long_axis &x = t.x[2];
    const dim at = (x.a_first + term * x.a_step) * a_.x[2];
    for (dim l = 0; l < t.count; ++l) {
        const dim index = x.start + (t.at[2] + l) * x.lane + term * x.step;
        if (index < 0 || index >= x.length) continue;
        const float value = load_float(in, p_.type, index * in_.x[2]);
        for (dim m = 0; m < t.rows; ++m)
            s.c[m * tile_lanes + l] += value * load_float(a, p_.type, at + m * a_.row);
    }
}

void long_kernel::store(const scratch &s, const conv::buffers &data, const task &t) const {
    const bool weights = p_.what == conv::pass::backward_weights;
    const data_type type = weights ? p_.out_type : p_.type;
    void *out = weights ? data.weights : p_.what == conv::pass::forward ? data.dst : data.src;
    const auto at = [&](const operand &o) {
        dim sum = t.group * o.group + t.outer * o.outer + t.first_row * o.row;
        for (std::size_t i = 0; i < 3; ++i)
            sum += (t.x[i].out_first + t.at[i] * t.x[i].out_step) * o.x[i];
        return sum;
    };
    const dim channel = t.group * rows_ + t.first_row;
    for (dim m = 0; p_.bias && m < t.rows; ++m)
        s.bias[m] = load_float(data.bias, p_.type, (channel + m) * p_.bias_stride);
    const dim step = t.x[2].out_step;
    kernels_.store({s.c, tile_lanes, 1, t.rows, t.count, offset(out, type, at(out_)), type,
        out_.row, step * out_.x[2], p_.bias ? s.bias : nullptr,
        p_.add ? offset(data.add, type, at(add_)) : nullptr, add_.row, step * add_.x[2],
        p_.accumulate, p_.relu});
}

work_list long_kernel::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    if (tasks_ == 0) return list;
    double outputs = static_cast<double>(p_.groups * outers_ * rows_);
    for (const dim length : out_length_) outputs *= static_cast<double>(length);
    const auto tasks = static_cast<double>(tasks_);
    const double macs = conv::macs(p_) / tasks, size = static_cast<double>(size_of(p_.type));
    const task_cost cost{macs, size * macs / static_cast<double>(std::min(rows_, block_rows)),
        size * outputs / tasks};
    list.stages.push_back({"outputs", tasks_, workers_, [cost](dim, dim) { return cost; }});
    return list;
}

std::string long_kernel::describe() const {
    if (tasks_ == 0) return "nothing to write";
    return "taps not listed, tile " + std::to_string(tile_lanes) + " outputs in a row of "
           + std::to_string(block_rows) + " channels, tasks " + std::to_string(tasks_);
}

}  // namespace convgrad::cpu
