// Compiling and executing in front of oneDNN: who runs a partition is decided when it is compiled.
#include <algorithm>
#include <exception>

#include "onednn/choice.hpp"
#include "onednn/front.hpp"
#include "onednn/guard.hpp"
#include "op/message.hpp"

namespace convgrad::onednn {
namespace {

/// What became of compiling here.
struct attempt {
    std::shared_ptr<compiled_body> made;
    status said = status::invalid_arguments;
};

/// One call of compile.
class compiling {
public:
    compiling(const library &next, const compile_call &call,
        std::shared_ptr<const partition_body> partition, client_compiled_partition &note)
        : next_(next), call_(call), partition_(std::move(partition)), note_(note),
          fault_(known_fault(*partition_)), possible_(is_possible()),
          delegable_(partition_->delegable && !would_crash_it()) {}

    status run() {
        const bool needed = !delegable_ || !fault_.empty();
        if (possible_ && (needed || policy() != takeover::correct)) {
            try_here();
            if (ours_->made != nullptr)
                if (const std::string why = reason(); !why.empty()) return use_ours(why);
        }
        if (delegable_) return possible_ ? compile_behind_or_here() : compile_behind();
        // Not supported: oneDNN knows what to say.
        return ours_ ? ours_->said : call_.by(next_);
    }

private:
    /// oneDNN alone knows what is in an opaque layout, and its other runtimes are its own.
    [[nodiscard]] bool is_possible() const {
        const auto is_opaque = [](const tensor_description *lt) {
            return lt->layout == layout_type::opaque;
        };
        return !partition_->stages.empty() && kind_of(call_.engine) == engine_kind_value::cpu
               && !(next_.is_sycl && partition_->delegable)
               && std::none_of(call_.inputs, call_.inputs + call_.input_count, is_opaque)
               && std::none_of(call_.outputs, call_.outputs + call_.output_count, is_opaque);
    }

    [[nodiscard]] bool would_crash_it() const {
        return possible_
               && std::any_of(partition_->ops.begin(), partition_->ops.end(),
                   [](const auto &op) { return would_crash(*op); });
    }

    void try_here() {
        ours_.emplace();
        ours_->said = guarded("compile", [&] {
            ours_->made = compile(partition_, {call_.inputs, call_.inputs + call_.input_count},
                {call_.outputs, call_.outputs + call_.output_count});
            return status::success;
        });
    }

    /// Why this library runs it; empty: oneDNN does.
    [[nodiscard]] std::string reason() const {
        if (!partition_->delegable) return next_.name() + " does not support it";
        if (!delegable_) return next_.name() + " would not survive it";
        if (!fault_.empty()) return next_.name() + ": " + fault_;
        if (policy() == takeover::always) return "policy always";
        const double gain = ours_->made->gain;
        if (gain < least_gain) return {};
        return ops::cat("predicted ", percent(gain), " % of oneDNN's speed");
    }

    static int percent(double gain) { return static_cast<int>(std::min(gain, 1e6) * 100); }

    status use_ours(const std::string &why) {
        return guarded("compile", [&] {
            ours_->made->explain(why);
            note_.delegated.clear();
            note_.body = ours_->made;
            if (is_verbose()) trace("compile", note_.body->trace_text, timer_.milliseconds());
            return status::success;
        });
    }

    /// Why oneDNN runs it.
    [[nodiscard]] std::string reason_behind() const {
        if (partition_->stages.empty()) return partition_->foreign;
        if (!possible_) return "opaque layouts, or an engine of another kind";
        if (policy() == takeover::correct) return "policy correct";
        if (ours_ && ours_->made != nullptr && ours_->made->gain == 0)
            return "nothing is known about its speed";
        if (ours_ && ours_->made != nullptr)
            return ops::cat(
                "predicted: this library at ", percent(ours_->made->gain), " % of its speed");
        return "refused here";
    }

    /// What a client's allocator throws, and what oneDNN throws, leaves.
    status compile_behind() {
        const status said = call_.by(next_);
        if (said != status::success) return said;
        return guarded("compile", [&] {
            note_.body.reset();
            note_.delegated = ops::cat("partition:", partition_->id, ",", partition_->describe(),
                ",", next_.name(), " [", reason_behind(), "],",
                describe_tensors(
                    {call_.inputs, call_.input_count}, {call_.outputs, call_.output_count}));
            if (is_verbose()) trace("compile", note_.delegated, timer_.milliseconds());
            return status::success;
        });
    }

    /// Where oneDNN fails, in whichever way, this library may still do it.
    status compile_behind_or_here() {
        status said = status::runtime_error;
        std::exception_ptr thrown;
        try {
            said = compile_behind();
        } catch (...) {
            thrown = std::current_exception();
        }
        if (said == status::success) return said;
        if (!ours_) try_here();
        if (ours_->made != nullptr) return use_ours(next_.name() + " failed to compile it");
        if (thrown) std::rethrow_exception(thrown);
        return said;
    }

    const library &next_;
    const compile_call &call_;
    std::shared_ptr<const partition_body> partition_;
    client_compiled_partition &note_;
    stopwatch timer_;
    std::string fault_;
    bool possible_, delegable_;
    std::optional<attempt> ours_;  // nothing: not tried
};

}  // namespace

status compile_in_front(const library &next, const compile_call &call) {
    const auto partition = notes<client_partition>::get().find(call.partition);
    const auto compiled = notes<client_compiled_partition>::get().find(call.compiled);
    if (compiled == nullptr) return call.by(next);
    if (partition == nullptr) {
        const status said = call.by(next);
        if (said != status::success) return said;
        return guarded("compile", [&] {
            compiled->body.reset();
            compiled->delegated = ops::cat("partition:?,?,", next.name(), ",?");
            return said;
        });
    }
    std::optional<compiling> work;
    const status prepared = guarded("compile", [&] {
        work.emplace(next, call, partition->body, *compiled);
        return status::success;
    });
    return prepared == status::success ? work->run() : prepared;
}

status execute_behind(const library &next, const execute_call &c, const std::string *text) {
    const stopwatch timer;
    // The function that was called: oneDNN's older one calls the newer one by name, which is ours.
    const status said = c.by_v2 && next.compiled_partition_execute_v2 != nullptr
                            ? next.compiled_partition_execute_v2(c.compiled, c.stream,
                                c.input_count, c.inputs, c.output_count, c.outputs, c.scratchpad)
                            : next.compiled_partition_execute(c.compiled, c.stream, c.input_count,
                                c.inputs, c.output_count, c.outputs);
    if (said != status::success || text == nullptr || !is_verbose()) return said;
    return guarded("execute", [&] {
        trace("exec", *text, timer.milliseconds());
        return said;
    });
}

std::vector<tensor_view> views_of(
    const library &next, std::size_t count, const client_tensor *const *tensors) {
    std::vector<tensor_view> views(count);
    for (std::size_t i = 0; i < count; ++i) {
        next.tensor_get_data_handle(tensors[i], &views[i].data);
        views[i].lt = description_of(next, tensors[i]);
    }
    return views;
}

}  // namespace convgrad::onednn
