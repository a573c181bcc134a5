// Tensors as products on tensor cores read them.
#pragma once

#include "cuda/general.hpp"

namespace convgrad::cuda {

/// Packs on a lane; tiles are chosen here.
void launch_pack(pack_args pack, data_type type, const lane &on);

/// src or dst of a data pass's input or of a weights gradient, as it lies where channels are next
/// to each other and pieces of 16 bytes are whole, else packed.
class operand {
public:
    operand(const conv::problem &p, bool is_src);

    /// Of the packed tensor.
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    [[nodiscard]] bool direct() const { return direct_; }
    /// Of 16 bytes, that hold the channels of a group.
    [[nodiscard]] wide pieces() const { return pack_.padded_channels / piece_; }

    struct place {
        const void *data;
        data_stride_args strides;
        wide group;  // stride
    };
    /// Where and how the tensor is read, packed into `room` if it has to be: where values lie
    /// changes by that, never what they are.
    place read(const void *data, void *room, const lane &on) const;

    /// f32 as rows of positions: of a channel, and of all in bytes (both parts, if it is split).
    [[nodiscard]] wide turned_row() const;
    [[nodiscard]] std::size_t turned_bytes(bool split) const;
    void turn(const void *data, void *room, bool split, const lane &on) const;

private:
    data_type type_;
    wide channels_, piece_;
    std::size_t bytes_ = 0;
    bool direct_ = false, planes_ = false;
    pack_args pack_{};
    data_stride_args direct_strides_{}, packed_strides_{};
};

/// Weights as products read them: [group][out channel][tap][channel], the channels of a sum padded
/// to `padded`, with zeros between merged groups; as they lie, if that is how they lie.
class weights_operand {
public:
    /// `merged` groups are one; `split`: f32 as large parts, then small ones.
    weights_operand(const conv::problem &p, wide merged, wide padded, bool split);

    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    /// Elements of one part.
    [[nodiscard]] wide elements() const { return elements_; }
    const void *read(const void *data, void *room, const lane &on) const;
    /// How 16-bit weights lie that are the other way round, output channels next to each other:
    /// strides of taps and channels of the sum. No weights of several groups.
    struct turned_form {
        wide out, taps, in, tap_stride, in_stride;
    };
    [[nodiscard]] const turned_form *turned(const void *data) const;

private:
    void find_turned();

    data_type type_;
    merge_args merge_{};
    turned_form turned_{};  // in_stride 0: they do not lie so
    wide elements_ = 0, tiles_ = 0;
    std::size_t bytes_ = 0;
    bool ready_ = false;
};

/// What a data pass multiplies: the problem of merged groups (wgmma.hpp), and its operands.
struct merged_data {
    wide groups;  // merged to one
    conv::problem merged;
    wide in, out;  // channels
    operand input;
    weights_operand weights;

    /// Groups of few channels get up to `most`; `split`: f32 weights in two parts.
    merged_data(const conv::problem &p, wide most, bool split);
    [[nodiscard]] std::size_t workspace() const { return input.bytes() + weights.bytes(); }
    /// Of the sum, padded to 16 bytes.
    [[nodiscard]] wide channels() const {
        return input.pieces() * 16 / static_cast<wide>(size_of(merged.type));
    }
    /// That packing the input takes.
    [[nodiscard]] double packing_seconds(const architecture &on) const {
        return input.direct() ? 0 : static_cast<double>(input.bytes()) * 3 / on.memory;
    }
    /// ", 4 groups merged, input packed first".
    [[nodiscard]] std::string describe() const;
};

}  // namespace convgrad::cuda
