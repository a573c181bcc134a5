// Graphs under construction.
#pragma once

#include "onednn/partition.hpp"

namespace convgrad::onednn {

struct client_graph {
    engine_kind_value engine = engine_kind_value::cpu;
    fpmath_mode fpmath = fpmath_mode::strict;
    int fpmath_for_integers = 0;
    std::vector<graph_op> ops;
    bool finalized = false;
    std::vector<std::shared_ptr<const partition_body>> partitions;
};

}  // namespace convgrad::onednn
