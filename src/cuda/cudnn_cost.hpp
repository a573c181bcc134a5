// What cuDNN takes for a layer, as measured on an H200.
#pragma once

#include "cuda/general.hpp"

namespace convgrad::cuda {

/// Seconds of the nominal device (bulk.hpp), by the engine that cuDNN puts first.
double cudnn_seconds(const conv::problem &p, const architecture &on, bool channels_last);

}  // namespace convgrad::cuda
