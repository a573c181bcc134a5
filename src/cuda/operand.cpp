#include "cuda/operand.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "cuda/wgmma.hpp"

namespace convgrad::cuda {
namespace {

constexpr wide alignment = 256;

wide element_bytes(data_type type) {
    return static_cast<wide>(size_of(type));
}

/// 16-bit planes, as many positions at once as lie together and are aligned.
void launch_planes(const pack_args &pack, const void *from, void *to, const lane &on) {
    plane_args p{};
    p.from = from;
    p.to = to;
    p.image_stride = pack.strides[1];
    p.channel_stride = pack.channel_stride;
    p.images = static_cast<int>(pack.lengths[1]);
    p.channels = static_cast<int>(pack.groups * pack.channels);
    p.positions = static_cast<int>(pack.lengths[2] * pack.lengths[3] * pack.lengths[4]);
    p.unit = 8;
    while (p.positions % p.unit != 0 || p.channel_stride % p.unit != 0
           || p.image_stride % p.unit != 0
           || reinterpret_cast<std::uintptr_t>(from) % (2 * static_cast<unsigned>(p.unit)) != 0)
        p.unit /= 2;
    const kernel of_unit = p.unit == 8   ? kernel::pack_planes_8
                           : p.unit == 4 ? kernel::pack_planes_4
                           : p.unit == 2 ? kernel::pack_planes_2
                                         : kernel::pack_planes_1;
    on.launch(of_unit, cover(p.channels, plane_tile) * cover(p.positions, plane_tile) * p.images,
        pack_threads, &p);
}

}  // namespace

void launch_pack(pack_args pack, data_type type, const lane &on) {
    // Turned, positions are whole rows; else whole pieces of 16 bytes are stored.
    const bool turned = pack.padded_positions != 0;
    const auto least = static_cast<std::uint64_t>(16 / element_bytes(type));
    const std::uint64_t wanted = std::bit_ceil(
        static_cast<std::uint64_t>(std::min<wide>(pack.padded_channels, pack_most_channels)));
    pack.tile_channels = static_cast<int>(std::max(least, wanted));
    // Few channels: neighbouring positions are neighbours too.
    constexpr wide few = 16;
    pack.lanes_along_positions = pack.channel_stride != 1 || pack.channels < few ? 1 : 0;
    const wide positions = turned ? pack.padded_positions : pack.positions;
    on.launch(turned ? kernel::turn_f32 : of_type(kernel::pack_f32, type),
        cover(pack.padded_channels, pack.tile_channels)
            * cover(positions, (1 << pack_bits) / pack.tile_channels) * pack.groups,
        pack_threads, &pack);
}

operand::operand(const conv::problem &p, bool is_src)
    : type_(p.type), channels_(is_src ? p.ic : p.oc), piece_(16 / element_bytes(p.type)) {
    const conv::data_strides &s = is_src ? p.src : p.dst;
    direct_ = (s.c == 1 || channels_ == 1) && channels_ % piece_ == 0 && s.n % piece_ == 0;
    direct_strides_ = {s.n, 1, {s.x[0], s.x[1], s.x[2]}};
    pack_.lengths[0] = 1;
    pack_.lengths[1] = p.mb;
    pack_.strides[1] = s.n;
    pack_.positions = p.mb;
    for (std::size_t d = 0; d < 3; ++d) {
        direct_ = direct_ && s.x[d] % piece_ == 0;
        pack_.lengths[d + 2] = is_src ? p.x[d].src : p.x[d].dst;
        pack_.strides[d + 2] = s.x[d];
        pack_.positions *= pack_.lengths[d + 2];
    }
    pack_.groups = p.groups;
    pack_.channels = channels_;
    pack_.padded_channels = cover(channels_, piece_) * piece_;
    pack_.channel_stride = s.c;
    pack_.group_stride = channels_ * s.c;
    wide next = pack_.groups * pack_.padded_channels;
    for (std::size_t d = 3; d-- > 0; next *= pack_.lengths[d + 2]) packed_strides_.x[d] = next;
    packed_strides_.n = next;
    // Planes, and channels of all groups one after the other.
    constexpr wide most = wide{1} << 31;
    wide plane = 1;
    planes_ = element_bytes(type_) == 2 && s.c != 1 && pack_.padded_channels == channels_
              && pack_.groups * channels_ < most && pack_.positions < most;
    for (std::size_t d = 3; d-- > 0; plane *= pack_.lengths[d + 2])
        planes_ = planes_ && (pack_.lengths[d + 2] == 1 || s.x[d] == plane);
    planes_ =
        planes_
        && p.mb * cover(plane, plane_tile) * cover(pack_.groups * channels_, plane_tile) < most;
    bytes_ =
        static_cast<std::size_t>(cover(next * p.mb * element_bytes(p.type), alignment) * alignment);
}

operand::place operand::read(const void *data, void *room, const lane &on) const {
    if (direct_ && reinterpret_cast<std::uintptr_t>(data) % 16 == 0)
        return {data, direct_strides_, channels_};
    if (planes_) {
        launch_planes(pack_, data, room, on);
    } else {
        pack_args pack = pack_;
        pack.from = data;
        pack.to = room;
        launch_pack(pack, type_, on);
    }
    return {room, packed_strides_, pack_.padded_channels};
}

wide operand::turned_row() const {
    return cover(pack_.positions, 4) * 4;
}

std::size_t operand::turned_bytes(bool split) const {
    const wide elements = turned_row() * pack_.groups * channels_ * (split ? 2 : 1);
    return static_cast<std::size_t>(cover(elements * 4, alignment) * alignment);
}

void operand::turn(const void *data, void *room, bool split, const lane &on) const {
    pack_args pack = pack_;
    pack.from = data;
    pack.to = room;
    pack.padded_positions = turned_row();
    pack.small = split ? pack.padded_positions * pack_.groups * channels_ : 0;
    launch_pack(pack, type_, on);
}

weights_operand::weights_operand(const conv::problem &p, wide merged, wide padded, bool split)
    : type_(p.type) {
    const bool backward = p.what == conv::pass::backward_data;
    merge_.groups = p.groups / merged;
    merge_.merged = merged;
    merge_.out = backward ? p.ic : p.oc;
    merge_.in = backward ? p.oc : p.ic;
    merge_.group_stride = p.weights.g;
    merge_.out_stride = backward ? p.weights.i : p.weights.o;
    merge_.in_stride = backward ? p.weights.o : p.weights.i;
    merge_.padded = padded;
    merge_.lanes_along_out = merge_.out_stride < merge_.in_stride ? 1 : 0;
    // As they are needed, if nothing is to be split or padded.
    wide next = merge_.in, taps = 1;
    ready_ =
        p.type != data_type::f32 && merged == 1 && merge_.in == padded && merge_.in_stride == 1;
    for (std::size_t d = 3; d-- > 0;) {
        merge_.taps[d] = p.x[d].kernel;
        merge_.tap_strides[d] = p.weights.k[d];
        ready_ = ready_ && (p.x[d].kernel == 1 || p.weights.k[d] == next);
        next *= p.x[d].kernel;
        taps *= p.x[d].kernel;
    }
    ready_ = ready_ && merge_.out_stride == next
             && (p.groups == 1 || merge_.group_stride == next * merge_.out);
    find_turned();
    const wide out = merge_.out * merged;
    tiles_ = merge_.groups * taps * cover(out, 32) * cover(padded, 32);
    elements_ = merge_.groups * out * taps * padded;
    merge_.small = split ? elements_ : 0;
    bytes_ = static_cast<std::size_t>(
        cover(elements_ * (split ? 2 : 1) * element_bytes(type_), alignment) * alignment);
}

void weights_operand::find_turned() {
    constexpr wide piece = 8;
    if (type_ == data_type::f32 || merge_.groups != 1 || merge_.merged != 1
        || merge_.out_stride != 1 || merge_.in_stride % piece != 0 || merge_.in_stride <= 0)
        return;
    turned_form made{merge_.out, 1, merge_.in, piece, merge_.in_stride};
    wide next = 0;
    for (std::size_t d = 3; d-- > 0;) {
        const wide length = merge_.taps[d], stride = merge_.tap_strides[d];
        if (length == 1) continue;
        if (next == 0) made.tap_stride = next = stride;
        if (stride != next || stride % piece != 0 || stride <= 0) return;
        next *= length;
        made.taps *= length;
    }
    turned_ = made;
}

const weights_operand::turned_form *weights_operand::turned(const void *data) const {
    const bool aligned = reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
    return turned_.in_stride != 0 && aligned ? &turned_ : nullptr;
}

const void *weights_operand::read(const void *data, void *room, const lane &on) const {
    if (ready_ && reinterpret_cast<std::uintptr_t>(data) % 16 == 0) return data;
    merge_args merge = merge_;
    merge.from = data;
    merge.to = room;
    on.launch(of_type(kernel::merge_weights_f32, type_), tiles_, pack_threads, &merge);
    return room;
}

merged_data::merged_data(const conv::problem &p, wide most, bool split)
    : groups(merged_groups(p, most)), merged(merge(p, groups)),
      in(is_backward(p) ? merged.oc : merged.ic), out(is_backward(p) ? merged.ic : merged.oc),
      input(merged, !is_backward(p)), weights(p, groups, channels(), split) {}

std::string merged_data::describe() const {
    return (groups > 1 ? ", " + std::to_string(groups) + " groups merged" : "")
           + std::string(input.direct() ? "" : ", input packed first");
}

}  // namespace convgrad::cuda
