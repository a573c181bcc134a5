#include "op/geometry.hpp"

#include <algorithm>

#include "op/axis.hpp"
#include "op/message.hpp"
#include "op/schema.hpp"

namespace convgrad::ops {
namespace {

using conv::pass;

constexpr bool known(dim d) {
    return d != unknown_dim;
}

// Division by groups that keeps "unknown"; divisibility is checked elsewhere.
constexpr dim divided(dim channels, dim groups) {
    return known(channels) ? channels / groups : unknown_dim;
}

using rank_sizes = std::array<dim, 5>;

/// One call of derive().
class derivation {
public:
    derivation(const parsed_attributes &attrs, std::span<const logical_tensor> inputs,
        std::span<const logical_tensor> outputs)
        : attrs_(attrs), inputs_(inputs), outputs_(outputs), schema_(schema_of(attrs.kind)),
          roles_(roles_of(attrs.kind)) {}

    geometry run() {
        find_axes();
        check_list_lengths(attrs_, axes());
        read_given_shape();
        g_.large = read_data(roles_.large);
        g_.small = read_data(roles_.small);
        read_weights();
        match_batch();
        match_channels();
        match_bias();
        for (std::size_t i = 0; i < axes(); ++i) match_axis(i);
        match_add();
        return g_;
    }

private:
    template <typename... Parts>
    [[noreturn]] void misfit(const Parts &...parts) const {
        fail(error_code::invalid_shape, attrs_.kind, attrs_.op_name, cat(parts...));
    }

    [[nodiscard]] std::size_t axes() const { return static_cast<std::size_t>(g_.axes); }
    [[nodiscard]] const logical_tensor &tensor_at(argument_ref ref) const {
        return ref.output ? outputs_[ref.index] : inputs_[ref.index];
    }
    [[nodiscard]] std::string_view name_at(argument_ref ref) const {
        return (ref.output ? schema_.outputs : schema_.inputs)[ref.index].name;
    }
    /// For messages: the name, and where its shape comes from if not from the tensor.
    [[nodiscard]] std::string label(argument_ref ref) const {
        const bool from_elsewhere = ref.output && ref.index == 0 && given_ != nullptr;
        if (from_elsewhere) return cat(name_at(ref), " (by ", given_from_, ")");
        return std::string(name_at(ref));
    }
    [[nodiscard]] std::string weights_label() const {
        return cat(label(roles_.weights), " (", to_string(attrs_.weights_format), ")");
    }
    /// A bias of the forward ops or a bias gradient, if there is one.
    [[nodiscard]] const logical_tensor *bias() const {
        const argument_ref at = roles_.bias;
        const std::span<const logical_tensor> from = at.output ? outputs_ : inputs_;
        if (at.index >= from.size() || from[at.index].type == data_type::undef) return nullptr;
        return &from[at.index];
    }

    void find_axes();
    void read_given_shape();
    [[nodiscard]] rank_sizes read_sizes(argument_ref ref) const;
    [[nodiscard]] data_sizes read_data(argument_ref ref) const;
    void read_weights();
    void match_batch();
    [[nodiscard]] bool divisible(dim channels) const {
        return !known(channels) || channels % attrs_.groups == 0;
    }
    [[noreturn]] void refuse_groups(const std::string &what, dim channels) const {
        misfit(what, " has ", channels, channels == 1 ? " channel" : " channels",
            ", which groups = ", attrs_.groups,
            " does not divide; groups must divide the input and the output channels");
    }
    [[nodiscard]] bool form_possible(weights_form form) const;
    void adopt_bias();
    void choose_form();
    void match_channels();
    void match_bias();
    void match_axis(std::size_t axis);
    void match_small(std::size_t axis, const axis_terms &t);
    void match_large(std::size_t axis, const axis_terms &t);
    void check_backward_data(std::size_t axis, const axis_terms &t) const;
    void match_add() const;

    const parsed_attributes &attrs_;
    std::span<const logical_tensor> inputs_, outputs_;
    const op_schema &schema_;
    const op_roles &roles_;
    geometry g_;
    /// dst_shape or weights_shape as input or attribute.
    const dims *given_ = nullptr;
    std::string given_from_;
    /// A shape input is connected, but its value will be known only at execution.
    bool shape_at_execution_ = false;
    /// Both forms of the weights fit what is known so far.
    bool form_open_ = false;
};

void derivation::find_axes() {
    std::string_view first_name;
    std::size_t rank = 0;
    for (argument_ref ref :
        {argument_ref{false, 0}, argument_ref{false, 1}, argument_ref{true, 0}}) {
        const logical_tensor &t = tensor_at(ref);
        if (!t.shape) continue;
        const std::string_view name = name_at(ref);
        if (t.shape->size() < 3 || t.shape->size() > 5)
            misfit(name, " has rank ", t.shape->size(), " ", *t.shape,
                "; ranks 3 to 5 (one to three spatial axes) are possible");
        if (rank != 0 && t.shape->size() != rank)
            misfit(name, " has rank ", t.shape->size(), " ", *t.shape, " but ", first_name,
                " has rank ", rank, "; they must be equal");
        if (rank == 0) {
            rank = t.shape->size();
            first_name = name;
        }
    }
    if (rank == 0) {
        rank = attrs_.strides.size() + 2;
        if (rank < 3 || rank > 5)
            misfit("attribute strides is ", attrs_.strides, " with ", attrs_.strides.size(),
                " entries; it must have one per spatial axis, 1 to 3");
    }
    g_.axes = static_cast<int>(rank) - 2;
}

void derivation::read_given_shape() {
    const std::size_t rank = axes() + 2;
    const argument_ref at = schema_.shape_input();
    if (!at.exists()) return;
    const std::string_view name = schema_.inputs[at.index].name;  // the attribute's as well
    const bool connected = at.index < inputs_.size();
    if (connected) {
        const logical_tensor &t = inputs_[at.index];
        const bool fits =
            !t.shape
            || (t.shape->size() == 1
                && (!known(t.shape->front()) || t.shape->front() == static_cast<dim>(rank)));
        if (!fits)
            misfit("input ", name, " has shape ", *t.shape, "; it must be 1-D with ", rank,
                " elements, one per dimension of ", schema_.outputs[0].name);
        shape_at_execution_ = !t.value;
        if (t.value) given_ = &*t.value;
    } else if (attrs_.shape) {
        given_ = &*attrs_.shape;
    }
    if (given_ == nullptr) return;
    given_from_ = cat(connected ? "input " : "attribute ", name);
    if (given_->size() != rank)
        misfit(given_from_, " is ", *given_, " with ", given_->size(), " entries; it must have ",
            rank, ", one per dimension of ", schema_.outputs[0].name);
    const logical_tensor &own = outputs_[0];
    for (std::size_t i = 0; own.shape && i < rank; ++i)
        if (known((*own.shape)[i]) && (*own.shape)[i] != (*given_)[i])
            misfit(given_from_, " is ", *given_, " but ", schema_.outputs[0].name, " has shape ",
                *own.shape, "; they must agree");
}

rank_sizes derivation::read_sizes(argument_ref ref) const {
    rank_sizes sizes;
    sizes.fill(unknown_dim);
    const bool use_given = ref.output && ref.index == 0 && given_ != nullptr;
    const logical_tensor &t = tensor_at(ref);
    const dims *list = use_given ? given_ : t.shape ? &*t.shape : nullptr;
    if (list == nullptr) return sizes;
    for (std::size_t i = 0; i < list->size(); ++i) {
        sizes[i] = (*list)[i];
        if (sizes[i] < 0 && (known(sizes[i]) || use_given))
            misfit(label(ref), " has shape ", *list, "; dimensions must not be negative");
    }
    return sizes;
}

data_sizes derivation::read_data(argument_ref ref) const {
    const rank_sizes sizes = read_sizes(ref);
    const data_order order = order_of(attrs_.data_format, g_.axes);
    data_sizes d;
    d.n = sizes[order.n];
    d.c = sizes[order.c];
    for (std::size_t i = 0; i < axes(); ++i) d.x[i] = sizes[order.x + i];
    return d;
}

void derivation::read_weights() {
    const rank_sizes sizes = read_sizes(roles_.weights);
    const weights_order order = order_of(attrs_.weights_format, g_.axes);
    g_.weights.o = sizes[order.o];
    g_.weights.i = sizes[order.i];
    for (std::size_t i = 0; i < axes(); ++i) {
        g_.weights.k[i] = sizes[order.k + i];
        if (g_.weights.k[i] == 0)
            misfit(weights_label(), " has length 0 on spatial axis ", i,
                "; the kernel must have at least one tap");
    }
}

void derivation::match_batch() {
    dim &a = g_.large.n, &b = g_.small.n;
    if (known(a) && known(b) && a != b)
        misfit(label(roles_.large), " has batch ", a, " but ", label(roles_.small), " has batch ",
            b, "; they must be equal");
    if (!known(a)) a = b;
    if (!known(b)) b = a;
}

/// Whether the known channels fit this form of the weights.
bool derivation::form_possible(weights_form form) const {
    const auto fits = [](dim channels, dim in_weights, dim groups) {
        return !known(channels) || !known(in_weights) || in_weights == channels / groups;
    };
    const bool divided_i = form == weights_form::divided_i;
    return fits(g_.small.c, g_.weights.o, divided_i ? 1 : attrs_.groups)
           && fits(g_.large.c, g_.weights.i, divided_i ? attrs_.groups : 1);
}

/// Where channels are 0, a bias may be all that tells the form of the weights.
void derivation::adopt_bias() {
    const logical_tensor *b = bias();
    const bool none = g_.small.c == 0 || g_.weights.o == 0;
    if (!roles_.transposed || attrs_.groups == 1 || !none || b == nullptr || !b->shape) return;
    const bool fits = b->shape->size() == 1 && b->shape->front() >= 0;
    if (fits && !known(g_.large.c) && divisible(b->shape->front())) g_.large.c = b->shape->front();
}

void derivation::choose_form() {
    if (!roles_.transposed || attrs_.groups == 1) return;
    bool first = form_possible(weights_form::divided_i);
    bool second = form_possible(weights_form::divided_o);
    // Of two that fit, one may name a number of channels that groups do not divide.
    if (first && second && divisible(g_.weights.o) != divisible(g_.weights.i))
        (divisible(g_.weights.o) ? second : first) = false;
    if (!first && second) g_.form = weights_form::divided_o;
    // Both fit where too little is known, to which 0 = 0 adds nothing. If nothing but the output
    // can still tell, and it does not, the first form is meant.
    const bool channels_known = known(g_.small.c) && known(g_.large.c);
    const bool weights_known = known(g_.weights.o) && known(g_.weights.i);
    const bool inputs_known =
        weights_known && !roles_.weights.output && inputs_[0].is_known() && inputs_[1].is_known();
    form_open_ = first && second && !(channels_known && weights_known) && !inputs_known;
    if (!first && !second)
        misfit(label(roles_.small), " has ", g_.small.c, " channels, ", label(roles_.large),
            " has ", g_.large.c, " channels, groups is ", attrs_.groups, " and ", weights_label(),
            " has I ", g_.weights.o, " and O ", g_.weights.i,
            "; (I, O) must be (IC, OC/groups) or (IC/groups, OC), with IC the channels of ",
            name_at(roles_.small), " and OC those of ", name_at(roles_.large));
}

void derivation::match_channels() {
    if (!divisible(g_.large.c)) refuse_groups(label(roles_.large), g_.large.c);
    if (!divisible(g_.small.c)) refuse_groups(label(roles_.small), g_.small.c);
    adopt_bias();
    choose_form();
    if (form_open_) return;
    const bool divided_i = g_.form == weights_form::divided_i;
    const dim groups_i = divided_i ? attrs_.groups : 1;
    const dim groups_o = divided_i ? 1 : attrs_.groups;
    const std::string_view small_kind = roles_.transposed ? "input" : "output";
    const std::string_view large_kind = roles_.transposed ? "output" : "input";

    const auto match = [&](argument_ref ref, std::string_view kind, dim &channels, dim &in_weights,
                           dim groups) {
        if (known(channels) && known(in_weights) && channels / groups != in_weights)
            misfit(label(ref), " has ", channels, " channels but ", weights_label(), " has ",
                in_weights, " ", kind, " channels",
                attrs_.groups == 1 ? "; they must be equal"
                : groups == 1
                    ? cat(" over all groups (groups is ", attrs_.groups, "); they must be equal")
                    : cat(" per group; it must be channels / groups = ", channels, " / ", groups,
                        " = ", channels / groups));
        if (!known(in_weights)) in_weights = divided(channels, groups);
        if (!known(channels) && known(in_weights)
            && __builtin_mul_overflow(in_weights, groups, &channels))
            misfit(weights_label(), " has ", in_weights, " ", kind,
                " channels per group, groups is ", groups, ": the product overflows 64 bits");
    };
    match(roles_.small, small_kind, g_.small.c, g_.weights.o, groups_o);
    match(roles_.large, large_kind, g_.large.c, g_.weights.i, groups_i);
    // Channels that were found in weights have not been checked yet.
    if (!divisible(g_.large.c)) refuse_groups(weights_label(), g_.large.c);
    if (!divisible(g_.small.c)) refuse_groups(weights_label(), g_.small.c);
}

void derivation::match_bias() {
    const logical_tensor *b = bias();
    if (b == nullptr || !b->shape) return;
    const std::string_view name = roles_.what == pass::backward_weights ? "diff_bias" : "bias";
    if (b->shape->size() != 1)
        misfit(name, " has shape ", *b->shape, "; it must be 1-D, one value per output channel");
    const dim length = b->shape->front();
    dim &channels = roles_.transposed ? g_.large.c : g_.small.c;
    if (known(length) && length < 0)
        misfit(name, " has shape ", *b->shape, "; dimensions must not be negative");
    if (known(length) && known(channels) && length != channels)
        misfit(name, " has ", length, " elements but there are ", channels,
            " output channels; they must be equal");
    if (!known(channels)) channels = length;
}

void derivation::match_axis(std::size_t axis) {
    const dim kernel = g_.weights.k[axis];
    if (!known(kernel)) return;
    const axis_terms t = terms_of(attrs_, axis, kernel);
    if (roles_.what == pass::backward_data)
        match_large(axis, t);
    else
        match_small(axis, t);
}

// The length of small follows from that of large: forward and weights gradients.
void derivation::match_small(std::size_t axis, const axis_terms &t) {
    const dim large = g_.large.x[axis];
    if (!known(large)) return;
    const pad_pair pads = axis_pads(attrs_, axis, t.kernel, large, g_.small.x[axis]);
    const dim less = t.output_padding;  // only transposed ops have it here
    const dim result = convolved_length(attrs_, label(roles_.large), t, large, less, pads);
    dim &small = g_.small.x[axis];
    if (known(small) && small != result)
        misfit(label(roles_.small), " has length ", small, " on spatial axis ", axis, " but ",
            label(roles_.large), " of length ", large, " and ", label(roles_.weights),
            " of length ", t.kernel, " give ", convolved_text(t, large, less, pads), " = ", result,
            "; they must be equal");
    small = result;
    g_.pad_begin[axis] = pads.begin;
    g_.pad_end[axis] = pads.end;
}

// The length of large follows from that of small (ConvTranspose), or is given and must fit.
void derivation::match_large(std::size_t axis, const axis_terms &t) {
    const dim small = g_.small.x[axis];
    dim &large = g_.large.x[axis];
    if (!known(small)) return;
    if (small == 0)
        misfit(label(roles_.small), " has length 0 on spatial axis ", axis,
            "; it must be at least 1, as no convolution yields less");
    const bool gradient = !roles_.transposed;
    if (gradient && !known(large) && shape_at_execution_) return;
    if (!gradient || !known(large)) {
        const pad_pair pads = axis_pads(attrs_, axis, t.kernel, unknown_dim, small);
        if (gradient && transposed_value(t, small, pads) < 0) {
            g_.open_length = cat("on spatial axis ", axis, " ", transposed_text(t, small, pads),
                " is negative, so that the length does not follow from ", name_at(roles_.small));
            return;
        }
        const dim result = transposed_length(attrs_, label(roles_.large), t, small, pads);
        if (known(large) && large != result)
            misfit(label(roles_.large), " has length ", large, " on spatial axis ", axis, " but ",
                label(roles_.small), " of length ", small, " gives ",
                transposed_text(t, small, pads), " = ", result, "; they must be equal");
        large = result;
    }
    const pad_pair pads = axis_pads(attrs_, axis, t.kernel, large, small);
    g_.pad_begin[axis] = pads.begin;
    g_.pad_end[axis] = pads.end;
    if (gradient) check_backward_data(axis, t);
}

// Convolution applied to diff_src must give diff_dst. An output_padding of whole strides, possible
// where the dilation exceeds the stride, is length that the convolution would turn into points of
// its own, so it does not count.
void derivation::check_backward_data(std::size_t axis, const axis_terms &t) const {
    const dim large = g_.large.x[axis], small = g_.small.x[axis];
    const pad_pair pads{g_.pad_begin[axis], g_.pad_end[axis]};
    const dim less = t.output_padding - t.output_padding % t.stride;
    const dim result = convolved_length(attrs_, label(roles_.large), t, large, less, pads);
    if (result != small)
        misfit(label(roles_.large), " has length ", large, " on spatial axis ", axis,
            "; Convolution applied to it gives ", convolved_text(t, large, less, pads), " = ",
            result, " but ", label(roles_.small), " has length ", small, "; they must be equal");
}

void derivation::match_add() const {
    if (!attrs_.add || !inputs_.back().shape) return;
    const dims &shape = *inputs_.back().shape;
    const data_sizes &result = roles_.transposed ? g_.large : g_.small;
    const data_order order = order_of(attrs_.data_format, g_.axes);
    dims expected(axes() + 2, unknown_dim);
    expected[order.n] = result.n;
    expected[order.c] = result.c;
    for (std::size_t i = 0; i < axes(); ++i) expected[order.x + i] = result.x[i];
    const bool equal = shape.size() == expected.size()
                       && std::equal(shape.begin(), shape.end(), expected.begin(),
                           [](dim a, dim b) { return !known(a) || !known(b) || a == b; });
    if (equal || (attrs_.add_broadcasts && broadcasts_to(shape, expected))) return;
    misfit("add has shape ", shape, " but ", schema_.outputs[0].name, " has shape ", expected,
        attrs_.add_broadcasts ? "; it must be broadcast to it by NumPy's rules"
                              : "; they must be equal");
}

}  // namespace

sum_geometry derive_sum(const parsed_attributes &attrs, const logical_tensor &diff_dst,
    const logical_tensor &diff_bias) {
    const auto misfit = [&](const auto &...parts) {
        fail(error_code::invalid_shape, attrs.kind, attrs.op_name, cat(parts...));
    };
    const op_schema &schema = schema_of(attrs.kind);
    const std::string_view in = schema.inputs[0].name, out = schema.outputs[0].name;
    sum_geometry g;
    if (diff_dst.shape) {
        const dims &shape = *diff_dst.shape;
        if (shape.size() < schema.least_rank || shape.size() > most_rank)
            misfit(in, " has rank ", shape.size(), " ", shape, "; ranks ", schema.least_rank,
                " to ", most_rank, " (up to three spatial axes) are possible");
        for (dim d : shape)
            if (d < 0 && known(d))
                misfit(in, " has shape ", shape, "; dimensions must not be negative");
        g.axes = static_cast<int>(shape.size()) - 2;
        g.channels = shape[order_of(attrs.data_format, g.axes).c];
    }
    if (!diff_bias.shape) return g;
    const dims &shape = *diff_bias.shape;
    if (shape.size() != 1)
        misfit(out, " has shape ", shape, "; it must be 1-D, one value per channel of ", in);
    const dim length = shape[0];
    if (!known(length)) return g;
    if (length < 0) misfit(out, " has shape ", shape, "; dimensions must not be negative");
    if (known(g.channels) && length != g.channels)
        misfit(out, " has ", length, " elements but ", in, " ", *diff_dst.shape, " (",
            to_string(attrs.data_format), ") has ", g.channels, " channels; they must be equal");
    g.channels = length;
    return g;
}

void check_list_lengths(const parsed_attributes &attrs, std::size_t axes) {
    const auto check = [&](std::string_view name, const dims &list) {
        if (list.size() != axes)
            fail(error_code::invalid_shape, attrs.kind, attrs.op_name,
                cat("attribute ", name, " is ", list, " with ", list.size(), " entries; there are ",
                    axes, " spatial axes, and it must have one entry for each"));
    };
    check("strides", attrs.strides);
    check("dilations", attrs.dilations);
    check("pads_begin", attrs.pads_begin);
    check("pads_end", attrs.pads_end);
    if (attrs.output_padding) check("output_padding", *attrs.output_padding);
}

data_order order_of(data_format format, int axes) {
    const auto last = static_cast<std::size_t>(axes) + 1;
    return format == data_format::nxc ? data_order{0, last, 1} : data_order{0, 1, 2};
}

weights_order order_of(weights_format format, int axes) {
    const auto x = static_cast<std::size_t>(axes);
    switch (format) {
    case weights_format::oix:
    case weights_format::iox:
        return {0, 1, 2};
    // XIO ends in (large's channels, small's); XOI too, since there O counts large's.
    case weights_format::xio:
    case weights_format::xoi:
        break;
    }
    return {x + 1, x, 0};
}

geometry derive(const parsed_attributes &attrs, std::span<const logical_tensor> inputs,
    std::span<const logical_tensor> outputs) {
    return derivation(attrs, inputs, outputs).run();
}

}  // namespace convgrad::ops
