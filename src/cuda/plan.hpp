// Plans of the CUDA engine: launches with their arguments, fixed when the plan is made.
#pragma once

#include "cuda/backend.hpp"

namespace convgrad::cuda {

/// A time and a need for memory, without making the plan.
struct prediction {
    double seconds = 0;
    std::size_t workspace = 0;
};

/// How a problem runs on an architecture. Kept apart from devices: plans can be made for any.
class plan : public engines::plan {
public:
    void execute(
        std::span<const conv::buffers> data, void *workspace, engines::lane &on) const final;
    /// The same, as a part of another plan.
    void queue(const conv::buffers &data, void *workspace, const lane &on) const {
        run(data, workspace, on);
    }

protected:
    /// What a plan tells of itself that was made by a prediction.
    void set_facts(std::string_view name, const architecture &on, const prediction &made,
        engines::accuracy kept);
    /// Puts the launches on a lane, whose device is current.
    virtual void run(const conv::buffers &data, void *workspace, const lane &on) const = 0;
    /// Those of another plan.
    static void run(const plan &other, const conv::buffers &data, void *workspace, const lane &on) {
        other.run(data, workspace, on);
    }
};

/// See engines::backend::make_plan().
std::unique_ptr<const engines::plan> make_plan(const conv::problem &p, const architecture &on,
    const engines::plan_limits &limits, std::vector<engines::verdict> *verdicts = nullptr);

/// Names of all algorithms on the list.
std::vector<std::string_view> algorithm_names();

}  // namespace convgrad::cuda
