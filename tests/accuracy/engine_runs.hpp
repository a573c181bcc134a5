// Problems on an engine of any kind, through the seam that all engines have: tensors are copied to
// its memory and back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <convgrad/engine.hpp>

#include "accuracy/subject.hpp"
#include "engine/backend.hpp"

namespace convgrad::accuracy {

/// An algorithm, and how exact it is in the mode that it is asked for.
struct engine_method {
    std::string name;  // "cuda.wgmma, accurate"
    std::unique_ptr<const engines::plan> plan;
};

class engine_runs {
public:
    /// Throws what engine() throws.
    explicit engine_runs(const engine_options &where);
    ~engine_runs();
    engine_runs(const engine_runs &) = delete;
    engine_runs &operator=(const engine_runs &) = delete;

    /// The device in words.
    [[nodiscard]] std::string name() const;
    /// Every algorithm that computes a problem, once for each class of accuracy that it has there.
    [[nodiscard]] std::vector<engine_method> methods_for(const conv::problem &p) const;
    /// What the engine chooses by itself.
    [[nodiscard]] std::unique_ptr<const engines::plan> chosen(
        const conv::problem &p, math_mode math) const;
    /// The errors of a plan for the problem of a subject.
    errors run(subject &s, const engines::plan &plan);

private:
    struct memory;  // of the engine, for one tensor

    engine on_;
    stream queue_;
    std::vector<std::unique_ptr<memory>> tensors_;
};

/// The modes in which a type is computed in different ways.
std::vector<math_mode> modes_of(data_type type);

}  // namespace convgrad::accuracy
