// One element of a tensor, whatever its type. For bias vectors and rare paths, not for inner loops.
#pragma once

#include "conv/convert.hpp"

namespace convgrad::cpu {

inline float load_float(const void *data, data_type type, dim index) {
    switch (type) {
    case data_type::bf16:
        return conv::to_float(static_cast<const bf16 *>(data)[index]);
    case data_type::f16:
        return conv::to_float(static_cast<const f16 *>(data)[index]);
    default:
        return static_cast<const float *>(data)[index];
    }
}

/// Stores `value`, added to the old contents on request, rounded once.
inline void store_rounded(void *data, data_type type, dim index, double value, bool accumulate) {
    if (accumulate) value += static_cast<double>(load_float(data, type, index));
    switch (type) {
    case data_type::bf16:
        static_cast<bf16 *>(data)[index] = conv::round_to<bf16>(value);
        break;
    case data_type::f16:
        static_cast<f16 *>(data)[index] = conv::round_to<f16>(value);
        break;
    default:
        static_cast<float *>(data)[index] = conv::round_to<float>(value);
        break;
    }
}

}  // namespace convgrad::cpu
