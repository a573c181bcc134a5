// What the files of tiled_data share.
#pragma once

#include "cpu/tiled.hpp"
#include "cpu/tiled_data.hpp"

namespace convgrad::cpu {

struct tiled_data::task : tile_place {
    const conv::buffers *data;
    dim n, images, group;
    dim first_panel, panels;  // block of output channels
    dim next = -1;            // task that follows, if it is known
};

struct tiled_data::scratch : worker_memory {
    shared_memory shared;
    dim held_panel = -1, held_panels = 0;    // group·panels + first panel whose weights are packed
    value_range weights_range, input_range;  // the latter of all chunks so far
    fetch_ahead ahead;                       // what is packed next
};

}  // namespace convgrad::cpu
