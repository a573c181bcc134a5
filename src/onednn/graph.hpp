// Graphs under construction.
#pragma once

#include "onednn/partition.hpp"

namespace convgrad::onednn {

struct client_graph {
    graph_settings settings;
    int fpmath_for_integers = 0;
    std::vector<graph_op> ops;
    bool finalized = false;
    std::vector<std::shared_ptr<const partition_body>> partitions;
    /// In front of oneDNN, for each of these: which of its partitions gives the handle. Empty: they
    /// are not known here.
    std::vector<std::size_t> places;
};

}  // namespace convgrad::onednn
