#include "cpu/merged_weights.hpp"

#include <algorithm>

#include "cpu/element.hpp"
#include "cpu/fits.hpp"
#include "cpu/tasks.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim wanted = 16;  // channels of a block

conv::problem merge(const conv::problem &p, dim groups) {
    conv::problem q = p;
    q.groups = p.groups / groups;
    q.ic = p.ic * groups;
    q.oc = p.oc * groups;
    q.out_type = data_type::f32;
    q.accumulate = false;
    q.diff_bias = conv::bias_gradient::none;
    q.weights.o = 1;
    q.weights.i = q.oc;
    dim pitch = q.ic * q.oc;
    for (std::size_t a = 3; a-- > 0;) {
        q.weights.k[a] = pitch;
        pitch *= p.x[a].kernel;
    }
    q.weights.g = pitch;
    return q;
}

/// Floats of all blocks.
dim block_floats(const conv::problem &merged) {
    return merged.groups * merged.weights.g;
}

std::size_t rest(std::size_t limit, std::size_t taken) {
    check_workspace("weights gradient", taken, limit);
    return limit - taken;
}

}  // namespace

bool fits_merged(const conv::problem &p, std::string *why) {
    if (p.what != conv::pass::backward_weights) return refuse(why, "not a weights gradient");
    if (merged_groups(p) == 1)
        return refuse(why, "no two groups fit into a block of ", wanted, " channels");
    return true;
}

/// As many groups as fit, so that no block is left with fewer.
dim merged_groups(const conv::problem &p) {
    const dim widest = std::max<dim>({p.ic, p.oc, 1});
    dim best = 1;
    for (dim m = 2; m * widest <= wanted; ++m)
        if (p.groups % m == 0) best = m;
    return best;
}

merged_weights::merged_weights(const conv::problem &p, const kernel_set &kernels,
    const kernel_set *exact, int threads, std::size_t workspace_limit)
    : p_(p), groups_(merged_groups(p)), merged_(merge(p, groups_)),
      blocks_(merged_, kernels, exact, threads, rest(workspace_limit, block_bytes())) {}

std::size_t merged_weights::block_bytes() const {
    return static_cast<std::size_t>(round_up_to(4 * block_floats(merged_), 64));
}

std::size_t merged_weights::workspace() const {
    return block_bytes() + blocks_.workspace();
}

void merged_weights::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    conv::buffers inner = data;
    inner.weights = workspace;
    blocks_.execute(inner, workspace + block_bytes(), threads);
    const float *blocks = static_cast<const float *>(static_cast<const void *>(workspace));
    for_each_task(threads, p_.groups, [&](int, dim group) {
        const float *block =
            blocks + group / groups_ * merged_.weights.g
            + group % groups_ * (p_.ic * merged_.weights.i + p_.oc * merged_.weights.o);
        dim k[3];
        for (k[0] = 0; k[0] < p_.x[0].kernel; ++k[0])
            for (k[1] = 0; k[1] < p_.x[1].kernel; ++k[1])
                for (k[2] = 0; k[2] < p_.x[2].kernel; ++k[2]) {
                    dim in = 0, out = group * p_.weights.g;
                    for (std::size_t a = 0; a < 3; ++a) {
                        in += k[a] * merged_.weights.k[a];
                        out += k[a] * p_.weights.k[a];
                    }
                    for (dim i = 0; i < p_.ic; ++i)
                        for (dim o = 0; o < p_.oc; ++o)
                            store_rounded(data.weights, p_.out_type,
                                out + i * p_.weights.i + o * p_.weights.o,
                                static_cast<double>(block[in + i * merged_.weights.i + o]),
                                p_.accumulate);
                }
    });
}

work_list merged_weights::work() const {
    work_list list = blocks_.work();
    list.stages.push_back(
        {"groups", p_.groups, 1 << 20, [this](dim, dim) {
             dim weights = p_.ic * p_.oc;
             for (const conv::axis &a : p_.x) weights *= a.kernel;
             const auto each = static_cast<double>(weights);
             return task_cost{each, 4 * each, static_cast<double>(size_of(p_.out_type)) * each};
         }});
    return list;
}

std::string merged_weights::describe() const {
    return std::to_string(groups_) + " groups a block, " + blocks_.describe();
}

}  // namespace convgrad::cpu
