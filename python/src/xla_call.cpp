#include "xla_call.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <convgrad/eager.hpp>
#include <convgrad/error.hpp>

#include "cpu/machine/machine.hpp"
#include "xla_pool.hpp"

namespace convgrad::xla {
namespace {

using tensors = std::span<const tensor>;
using eager_call = void (*)(tensors in, tensors out, const attributes &, options);

/// One function of the library: how many buffers it takes, and how to call it.
struct function {
    const char *name;
    std::size_t inputs, outputs;  // without the optional one
    bool optional_input;          // the bias, else the bias gradient is an optional output
    bool folds;                   // mapping over input 0 alone is the same as a larger batch
    eager_call call;
};

template <auto Function>
void call_forward(tensors in, tensors out, const attributes &attrs, options opts) {
    Function(in[0], in[1], in.size() > 2 ? in[2] : tensor{}, out[0], attrs, opts);
}

template <auto Function>
void call_gradient(tensors in, tensors out, const attributes &attrs, options opts) {
    opts.diff_bias = out.size() > 1 ? &out[1] : nullptr;
    Function(in[0], in[1], out[0], attrs, opts);
}

template <auto Function>
void call_both(tensors in, tensors out, const attributes &attrs, options opts) {
    opts.diff_bias = out.size() > 2 ? &out[2] : nullptr;
    Function(in[0], in[1], in[2], out[0], out[1], attrs, opts);
}

/// Of any of these: src, diff_dst, weights, diff_src, diff_weights, diff_bias.
constexpr std::size_t most_operands = 6;

constexpr function functions[] = {
    {"convgrad.convolution", 2, 1, true, true, call_forward<convolution>},
    {"convgrad.convolution_backward_data", 2, 1, false, true,
        call_gradient<convolution_backward_data>},
    {"convgrad.convolution_backward_weights", 2, 1, false, false,
        call_gradient<convolution_backward_weights>},
    {"convgrad.convolution_backward", 3, 2, false, false, call_both<convolution_backward>},
    {"convgrad.conv_transpose", 2, 1, true, true, call_forward<conv_transpose>},
    {"convgrad.conv_transpose_backward_data", 2, 1, false, true,
        call_gradient<conv_transpose_backward_data>},
    {"convgrad.conv_transpose_backward_weights", 2, 1, false, false,
        call_gradient<conv_transpose_backward_weights>},
    {"convgrad.conv_transpose_backward", 3, 2, false, false, call_both<conv_transpose_backward>},
};

[[noreturn]] void refuse(const function &f, const std::string &text) {
    throw convgrad::error(
        error_code::invalid_argument, "invalid argument: " + std::string(f.name) + ": " + text);
}

/// What the attributes of a custom call say.
struct settings {
    attributes attrs;
    std::size_t rank = 0;
};

class attribute_reader {
public:
    attribute_reader(const function &f, const attribute_list &list) : f_(f), list_(list) {}

    settings read() {
        settings made;
        for (at_ = 0; at_ < list_.size; ++at_) set(made, name());
        if (made.rank == 0) refuse(f_, "the attribute rank is missing");
        return made;
    }

private:
    [[nodiscard]] std::string_view name() const {
        return {list_.names[at_]->data, list_.names[at_]->size};
    }

    void set(settings &to, std::string_view which) const {
        if (which == "strides")
            to.attrs.strides = numbers();
        else if (which == "pads_begin")
            to.attrs.pads_begin = numbers();
        else if (which == "pads_end")
            to.attrs.pads_end = numbers();
        else if (which == "dilations")
            to.attrs.dilations = numbers();
        else if (which == "output_padding")
            to.attrs.output_padding = numbers();
        else if (which == "auto_pad")
            to.attrs.auto_pad = text();
        else if (which == "data_format")
            to.attrs.data_format = text();
        else if (which == "weights_format")
            to.attrs.weights_format = text();
        else if (which == "groups")
            to.attrs.groups = number();
        else if (which == "rank")
            to.rank = static_cast<std::size_t>(std::max<dim>(0, number()));
        else
            refuse(f_, "there is no attribute " + std::string(which));
    }

    template <typename Value>
    [[nodiscard]] const Value &value(attribute_type type, const char *rule) const {
        if (list_.types[at_] != type)
            refuse(f_, "attribute " + std::string(name()) + " must be " + rule);
        return *static_cast<const Value *>(list_.values[at_]);
    }

    [[nodiscard]] std::string_view text() const {
        const span &s = value<span>(attribute_type::string, "a string");
        return {s.data, s.size};
    }

    [[nodiscard]] dim number() const {
        static constexpr const char *rule = "a 64-bit integer";
        const scalar &s = value<scalar>(attribute_type::scalar, rule);
        if (s.type != element_type::s64)
            refuse(f_, "attribute " + std::string(name()) + " must be " + rule);
        return *static_cast<const std::int64_t *>(s.value);
    }

    [[nodiscard]] dims numbers() const {
        static constexpr const char *rule = "a list of 64-bit integers";
        const array &a = value<array>(attribute_type::array, rule);
        if (a.type != element_type::s64)
            refuse(f_, "attribute " + std::string(name()) + " must be " + rule);
        const auto *first = static_cast<const std::int64_t *>(a.data);
        return {first, first + a.size};
    }

    const function &f_;
    const attribute_list &list_;
    std::int64_t at_ = 0;
};

data_type type_of(const function &f, element_type type) {
    switch (type) {
    case element_type::f32:
        return data_type::f32;
    case element_type::bf16:
        return data_type::bf16;
    case element_type::f16:
        return data_type::f16;
    default:
        refuse(f, "a buffer has type " + std::to_string(static_cast<int>(type))
                      + " of XLA; it must be f32, bf16 or f16");
    }
}

dim product(std::span<const dim> of) {
    dim made = 1;
    for (dim d : of) made *= d;
    return made;
}

/// The tensors of one buffer: one for each index of the leading dimensions.
class mapped_tensor {
public:
    mapped_tensor(
        const function &f, const buffer &b, std::size_t leading, std::size_t own, std::size_t place)
        : leading_(b.dims, b.dims + std::min<std::size_t>(leading, b.rank)) {
        if (static_cast<std::size_t>(b.rank) != leading + own)
            refuse(f, "a buffer has " + std::to_string(b.rank) + " dimensions; it must have "
                          + std::to_string(leading + own));
        current_ = tensor(b.data, type_of(f, b.type), dims(b.dims + leading, b.dims + b.rank));
        bytes_ = product(current_.shape) * (current_.type == data_type::f32 ? 4 : 2);
        // XLA gives no address to what is empty, or the same one to several.
        if (bytes_ == 0) current_.data = &nothing[place];
        base_ = static_cast<char *>(current_.data);
    }

    [[nodiscard]] const dims &leading() const { return leading_; }
    [[nodiscard]] bool is_shared() const { return product(leading_) == 1; }
    [[nodiscard]] const tensor &current() const { return current_; }

    void select(std::span<const dim> index) {
        dim offset = 0;
        for (std::size_t d = 0; d < leading_.size(); ++d)
            offset = offset * leading_[d] + (leading_[d] == 1 ? 0 : index[d]);
        current_.data = base_ + offset * bytes_;
    }
    void fold() { current_.shape[0] *= product(leading_); }

private:
    static inline float nothing[most_operands];

    dims leading_;
    char *base_ = nullptr;
    dim bytes_ = 0;
    tensor current_;
};

/// All tensors of a call.
class operands {
public:
    operands(const function &f, const call_frame &frame, std::size_t rank) : f_(f) {
        check_count(frame.arguments, f.inputs, f.optional_input, "inputs");
        check_count(frame.results, f.outputs, is_weights_gradient(), "outputs");
        const std::size_t first_rank = rank_of(frame.results, 0);
        if (first_rank < rank) refuse(f, "output 0 has fewer dimensions than the data tensors");
        const std::size_t leading = first_rank - rank;
        read(frame.arguments, leading, rank, f.inputs);
        inputs_ = all_.size();
        read(frame.results, leading, rank, f.outputs);
        for (const mapped_tensor &t : all_) check_leading(t.leading());
    }

    /// Calls the function for every index of the leading dimensions.
    void run(const attributes &attrs, const options &opts) {
        const dims sizes = all_[inputs_].leading();
        dim left = product(sizes);
        if (left > 1 && can_fold()) {
            all_[0].fold();
            all_[inputs_].fold();
            left = 1;
        }
        std::vector<tensor> now(all_.size());
        for (dims index(sizes.size(), 0); left > 0; --left) {
            for (std::size_t i = 0; i < all_.size(); ++i) {
                all_[i].select(index);
                now[i] = all_[i].current();
            }
            f_.call(
                {now.data(), inputs_}, {now.data() + inputs_, now.size() - inputs_}, attrs, opts);
            for (std::size_t d = sizes.size(); d-- > 0 && ++index[d] == sizes[d];) index[d] = 0;
        }
    }

private:
    [[nodiscard]] bool is_weights_gradient() const { return !f_.folds; }
    [[nodiscard]] static std::size_t rank_of(const value_list &list, std::size_t i) {
        return static_cast<std::size_t>(static_cast<const buffer *>(list.values[i])->rank);
    }

    void check_count(
        const value_list &list, std::size_t least, bool one_more, const char *what) const {
        const auto given = static_cast<std::size_t>(list.size);
        if (given != least && !(one_more && given == least + 1))
            refuse(f_, std::to_string(given) + " " + what + " were given; it takes "
                           + std::to_string(least) + (one_more ? ", or one more" : ""));
    }

    void read(const value_list &list, std::size_t leading, std::size_t rank, std::size_t required) {
        for (std::size_t i = 0; i < static_cast<std::size_t>(list.size); ++i)
            all_.emplace_back(f_, *static_cast<const buffer *>(list.values[i]), leading,
                i < required ? rank : 1, all_.size());
    }

    void check_leading(const dims &given) const {
        const dims &wanted = all_[inputs_].leading();
        for (std::size_t d = 0; d < wanted.size(); ++d)
            if (given[d] != wanted[d] && given[d] != 1)
                refuse(f_, "a leading dimension is " + std::to_string(given[d])
                               + "; it must be 1 or that of output 0, "
                               + std::to_string(wanted[d]));
    }

    [[nodiscard]] bool can_fold() const {
        return f_.folds && all_[0].leading() == all_[inputs_].leading()
               && std::all_of(all_.begin() + 1, all_.begin() + static_cast<std::ptrdiff_t>(inputs_),
                   [](const mapped_tensor &t) { return t.is_shared(); });
    }

    const function &f_;
    std::vector<mapped_tensor> all_;
    std::size_t inputs_ = 0;
};

/// XLA calls from its own threads, which flush subnormals, or from the program's, which do not. A
/// result must not depend on who calls.
class default_modes {
public:
    default_modes() { cpu::set_float_modes(cpu::default_float_modes); }
    ~default_modes() { cpu::set_float_modes(before_); }
    default_modes(const default_modes &) = delete;
    default_modes &operator=(const default_modes &) = delete;

private:
    cpu::float_modes before_ = cpu::read_float_modes();
};

void execute(const function &f, const call_frame &frame) {
    const default_modes modes;
    const settings given = attribute_reader(f, frame.attributes).read();
    pool threads(frame);
    const engine on({.pool = &threads});
    operands(f, frame, given.rank).run(given.attrs, {.on = &on});
}

error_kind kind_of(error_code code) {
    switch (code) {
    case error_code::out_of_memory:
        return error_kind::resource_exhausted;
    case error_code::unsupported:
        return error_kind::unimplemented;
    case error_code::device_failure:
        return error_kind::internal;
    default:
        return error_kind::invalid_argument;
    }
}

/// XLA asks for which version of the interface a handler was made.
void describe(const call_frame &frame, handler_metadata &to) {
    to.traits = 0;
    to.api_version.major = major_version;
    // Old versions do not say which they are, and want the one they are: 0.1.
    to.api_version.minor =
        frame.api == nullptr ? 1 : std::min(frame.api->api_version.minor, newest_minor_version);
}

error *handle(const function &f, call_frame &frame) noexcept {
    for (extension *e = frame.extensions; e != nullptr; e = e->next)
        if (e->type == extension::metadata) {
            describe(frame, *reinterpret_cast<metadata_extension *>(e)->metadata);
            return nullptr;
        }
    try {
        execute(f, frame);
        return nullptr;
    } catch (const convgrad::error &e) {
        return make_error(*frame.api, kind_of(e.code()), e.what());
    } catch (const std::exception &e) {
        return make_error(*frame.api, error_kind::resource_exhausted, e.what());
    }
}

template <std::size_t Index>
error *entry(call_frame *frame) {
    return handle(functions[Index], *frame);
}

template <std::size_t... Index>
constexpr auto make_targets(std::index_sequence<Index...>) {
    return std::array{target{functions[Index].name, entry<Index>}...};
}

constexpr auto targets = make_targets(std::make_index_sequence<std::size(functions)>{});

}  // namespace

std::span<const target> all_targets() {
    return targets;
}

}  // namespace convgrad::xla
