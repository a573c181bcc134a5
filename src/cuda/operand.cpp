#include "cuda/operand.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace convgrad::cuda {
namespace {

constexpr wide alignment = 256;

wide cover(wide length, wide by) {
    return (length + by - 1) / by;
}

wide element_bytes(data_type type) {
    return static_cast<wide>(size_of(type));
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
    bytes_ =
        static_cast<std::size_t>(cover(next * p.mb * element_bytes(p.type), alignment) * alignment);
}

operand::place operand::read(const void *data, void *room, const lane &on) const {
    if (direct_ && reinterpret_cast<std::uintptr_t>(data) % 16 == 0)
        return {data, direct_strides_, channels_};
    pack_args pack = pack_;
    pack.from = data;
    pack.to = room;
    launch_pack(pack, type_, on);
    return {room, packed_strides_, pack.padded_channels};
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

}  // namespace convgrad::cuda
