// What the counts of the cost model take: measured on one thread of an AMD Zen 4 core, over the
// training shapes and 600 problems of `convgrad bench --scan` with seeds 2 and 3, all ops, types
// and layouts; fitted to the times of all algorithms (`convgrad bench --model --json`), those near
// the fastest of their case first; Winograd's tiles over 47 layers of 16 to 512 channels. Narrower
// vectors are scaled so that a step takes as long as one of AVX-512, as on cores whose units are as
// wide as their vectors (there a measured step takes 0.57 as long, because 512 bits are worked on
// in two halves).
#include "cpu/cost_model.hpp"

namespace convgrad::cpu {
namespace {

constexpr std::size_t kinds = 14;
using rate_table = work_counts[kinds];

// In the order of cost_kind. Nanoseconds.
constexpr rate_table avx512_fma = {
    // tiled_data
    {.steps = 0.233,
        .runs = 3.32,
        .calls = 40,
        .tasks = 204,
        .rows = 55.9,
        .copied = 0.0637,
        .turned = 0.184,
        .gathered = 0.134,
        .far = 0.435,
        .lines = 1.01,
        .results_last = 0.135,
        .results_apart = 0.222,
        .result_lines = 4.64,
        .weights = 0.204,
        .spilled = 0.0226},
    // tiled_weights
    {.steps = 0.229,
        .runs = 6.05,
        .calls = 2.93,
        .rows = 34.4,
        .copied = 0.121,
        .turned = 0.208,
        .gathered = 0.289,
        .far = 0.727,
        .lines = 2.15,
        .weights = 0.286,
        .partial = 0.041},
    // folded_data
    {.steps = 0.253,
        .calls = 59.2,
        .tasks = 194,
        .rows = 12,
        .direct = 0.113,
        .copied = 0.88,
        .turned = 0.476,
        .lines = 0.563,
        .results_last = 0.147,
        .results_apart = 0.344,
        .result_lines = 0.447,
        .weights = 0.598},
    // folded_weights
    {.steps = 0.226,
        .calls = 5.15,
        .rows = 14.2,
        .direct = 0.00428,
        .copied = 0.183,
        .turned = 0.17,
        .gathered = 0.676,
        .lines = 0.716,
        .weights = 0.677,
        .partial = 0.126},
    // narrow_data
    {.steps = 0.26,
        .runs = 0.144,
        .calls = 20.6,
        .rows = 10.4,
        .copied = 0.077,
        .turned = 0.145,
        .gathered = 0.18,
        .far = 0.429,
        .results_last = 0.311,
        .results_apart = 0.247,
        .weights = 1.4},
    // narrow_weights
    {.steps = 0.066,
        .runs = 0.456,
        .calls = 60.1,
        .rows = 2.35,
        .copied = 0.0987,
        .turned = 0.0815,
        .gathered = 0.349,
        .far = 0.334,
        .lines = 0.0159,
        .weights = 5.99,
        .partial = 1.23},
    // merged_weights
    {},
    // pointwise_data
    {.steps = 0.23, .calls = 30.9, .direct = 0.0139, .copied = 0.111, .weights = 0.551},
    // depthwise_data
    {.steps = 0.302, .runs = 4.62, .direct = 0.0168, .results_last = 0.103},
    // depthwise_weights
    {.steps = 0.42, .runs = 4, .direct = 0.0189},
    // plane_data
    {.steps = 0.297,
        .runs = 0.183,
        .tasks = 80.6,
        .turned = 0.0413,
        .gathered = 0.145,
        .far = 0.472,
        .results_apart = 0.216},
    // plane_weights
    {.steps = 0.315,
        .tasks = 178,
        .turned = 0.103,
        .gathered = 0.212,
        .far = 0.921,
        .results_apart = 0.156},
    // winograd_data
    {.steps = 0.288,
        .tasks = 237,
        .direct = 0.0984,
        .copied = 0.132,
        .turned = 0.265,
        .gathered = 0.0651,
        .far = 0.06,
        .lines = 0.128,
        .results_last = 0.0849,
        .results_apart = 0.146,
        .weights = 0.101,
        .spilled = 0.0298},
    // winograd_weights
    {.steps = 0.289,
        .tasks = 4300,
        .direct = 0.0854,
        .copied = 0.115,
        .turned = 0.178,
        .gathered = 0.0217,
        .weights = 0.151,
        .spilled = 0.175},
};

constexpr rate_table avx512_dot2 = {
    // tiled_data
    {.steps = 0.242,
        .runs = 5.02,
        .calls = 19.3,
        .tasks = 251,
        .rows = 80.5,
        .direct = 0.0124,
        .turned = 0.167,
        .gathered = 0.052,
        .far = 0.532,
        .lines = 4.04,
        .results_apart = 0.12,
        .result_lines = 2.69,
        .weights = 0.115,
        .spilled = 0.11},
    // tiled_weights
    {.steps = 0.252,
        .runs = 2.73,
        .calls = 0.38,
        .rows = 60.8,
        .copied = 0.0362,
        .turned = 0.138,
        .gathered = 0.367,
        .far = 0.388,
        .lines = 1.13,
        .weights = 0.277,
        .partial = 0.0327},
    // folded_data
    {.steps = 0.267,
        .calls = 64.9,
        .tasks = 180,
        .rows = 14.9,
        .direct = 0.104,
        .copied = 0.966,
        .turned = 0.533,
        .lines = 0.367,
        .results_apart = 0.1,
        .result_lines = 3.76,
        .weights = 0.485},
    // folded_weights
    {},
    // narrow_data
    {.steps = 0.27,
        .runs = 0.144,
        .calls = 20.6,
        .rows = 10.4,
        .copied = 0.1,
        .turned = 0.1,
        .gathered = 0.12,
        .far = 0.429,
        .results_last = 0.311,
        .results_apart = 0.15,
        .weights = 1.4},
    // narrow_weights
    {},
    // merged_weights
    {.steps = 0.327,
        .runs = 2.38,
        .rows = 11.7,
        .copied = 0.051,
        .turned = 0.189,
        .gathered = 0.676,
        .far = 0.0319,
        .lines = 1.35,
        .results_last = 3.95,
        .weights = 0.949,
        .partial = 0.174},
    // pointwise_data
    {},
    // depthwise_data
    {},
    // depthwise_weights
    {},
    // plane_data
    {},
    // plane_weights
    {},
    // winograd_data
    {},
    // winograd_weights
    {},
};

constexpr rate_table avx2_fma = {
    // tiled_data
    {.steps = 0.226,
        .runs = 2.62,
        .calls = 46.1,
        .tasks = 6970,
        .rows = 125,
        .copied = 0.127,
        .turned = 0.2,
        .gathered = 0.94,
        .far = 1.31,
        .results_last = 1.06,
        .results_apart = 0.0939,
        .result_lines = 6.49,
        .weights = 0.6,
        .spilled = 0.0951},
    // tiled_weights
    {.steps = 0.232,
        .runs = 2.81,
        .calls = 42.6,
        .rows = 117,
        .direct = 0.0208,
        .copied = 0.151,
        .turned = 0.394,
        .gathered = 2.15,
        .far = 2.5,
        .lines = 4.64,
        .weights = 1.51},
    // folded_data
    {.steps = 0.247,
        .runs = 0.383,
        .calls = 61.9,
        .tasks = 35.8,
        .rows = 91.6,
        .direct = 0.0982,
        .copied = 0.971,
        .turned = 0.303,
        .lines = 0.419,
        .results_last = 0.536,
        .results_apart = 0.715,
        .result_lines = 10.4,
        .weights = 1.3},
    // folded_weights
    {.steps = 0.242,
        .calls = 8.84,
        .rows = 18.1,
        .direct = 0.172,
        .copied = 0.132,
        .turned = 0.317,
        .gathered = 0.832,
        .lines = 1.18,
        .weights = 2.99,
        .partial = 0.324},
    // narrow_data
    {.steps = 0.31,
        .runs = 0.221,
        .rows = 22.5,
        .copied = 0.295,
        .turned = 0.156,
        .gathered = 0.731,
        .far = 1.3,
        .results_last = 2.78,
        .results_apart = 2.96,
        .result_lines = 0.527,
        .weights = 1.82,
        .spilled = 0.183},
    // narrow_weights
    {.steps = 0.376,
        .runs = 0.11,
        .calls = 33.3,
        .rows = 23.8,
        .copied = 0.193,
        .turned = 0.221,
        .gathered = 0.236,
        .far = 0.206,
        .weights = 0.974},
    // merged_weights
    {},
    // pointwise_data
    {.steps = 0.207, .calls = 28.4, .direct = 0.0561, .weights = 2.76},
    // depthwise_data
    {.steps = 0.387, .runs = 7.86, .direct = 0.0633, .results_last = 0.317},
    // depthwise_weights
    {.steps = 0.493, .runs = 9.61, .direct = 0.182, .weights = 2.63},
    // plane_data
    {.runs = 1.34,
        .tasks = 192,
        .turned = 0.821,
        .gathered = 4.63,
        .far = 2.3,
        .results_apart = 0.102},
    // plane_weights
    {.steps = 0.139,
        .runs = 1.51,
        .tasks = 239,
        .turned = 0.763,
        .gathered = 3.73,
        .far = 4.67,
        .results_apart = 0.397},
    // winograd_data
    {.steps = 0.212,
        .direct = 0.416,
        .copied = 0.635,
        .turned = 1.66,
        .gathered = 0.5,
        .far = 0.413,
        .lines = 0.968,
        .results_last = 0.245,
        .results_apart = 0.67,
        .weights = 0.28,
        .spilled = 0.0954},
    // winograd_weights
    {.steps = 0.25,
        .tasks = 13400,
        .direct = 0.0851,
        .copied = 0.31,
        .turned = 0.66,
        .gathered = 0.105,
        .weights = 0.821,
        .spilled = 0.392},
};

constexpr rate_table portable_fma = {
    // tiled_data
    {.steps = 0.6,
        .calls = 230,
        .tasks = 3010,
        .rows = 344,
        .copied = 0.0807,
        .turned = 0.147,
        .gathered = 0.911,
        .far = 1.4,
        .lines = 0.549,
        .results_last = 1.32,
        .results_apart = 0.917,
        .weights = 1.09,
        .spilled = 0.309},
    // tiled_weights
    {.steps = 0.574,
        .runs = 0.41,
        .rows = 304,
        .direct = 0.732,
        .copied = 0.395,
        .turned = 2.24,
        .gathered = 5.64,
        .far = 4.32,
        .weights = 2.24,
        .partial = 1.42},
    // folded_data
    {.steps = 0.6,
        .runs = 1.09,
        .calls = 180,
        .tasks = 239,
        .rows = 17.3,
        .direct = 0.734,
        .copied = 0.599,
        .turned = 3.13,
        .lines = 2.18,
        .results_last = 2.87,
        .results_apart = 0.878,
        .weights = 2.49},
    // folded_weights
    {.steps = 0.533,
        .rows = 23.3,
        .direct = 0.103,
        .copied = 0.828,
        .turned = 0.88,
        .gathered = 2.63,
        .lines = 0.284,
        .weights = 3.94,
        .partial = 1.44},
    // narrow_data
    {.steps = 0.638,
        .calls = 44.3,
        .rows = 1.23,
        .copied = 1.01,
        .turned = 0.53,
        .gathered = 3.24,
        .far = 3.42,
        .results_last = 4.52,
        .results_apart = 2.76,
        .result_lines = 0.53,
        .weights = 2.22,
        .spilled = 1.58},
    // narrow_weights
    {.steps = 0.681,
        .runs = 0.0653,
        .rows = 15.8,
        .copied = 1.09,
        .turned = 0.654,
        .gathered = 5,
        .far = 5,
        .weights = 1.49,
        .partial = 8.86},
    // merged_weights
    {},
    // pointwise_data
    {.steps = 0.789, .calls = 11.2, .direct = 0.0565, .copied = 0.463, .weights = 1.43},
    // depthwise_data
    {.steps = 1.54, .direct = 0.602, .results_last = 3.69},
    // depthwise_weights
    {.steps = 3.6, .direct = 0.489, .results_last = 0.103, .weights = 6.55},
    // plane_data
    {.steps = 1.42,
        .runs = 16.1,
        .tasks = 1070,
        .turned = 0.141,
        .gathered = 3.55,
        .far = 8.81,
        .results_apart = 0.723},
    // plane_weights
    {.steps = 7.45,
        .runs = 3.01,
        .tasks = 305,
        .turned = 1.41,
        .gathered = 3.45,
        .far = 2.95,
        .results_apart = 1.2},
    // winograd_data
    {.steps = 0.32,
        .direct = 0.773,
        .copied = 1.7,
        .turned = 1.6,
        .gathered = 0.535,
        .far = 0.42,
        .lines = 0.48,
        .results_last = 0.446,
        .results_apart = 1.19,
        .weights = 0.691,
        .spilled = 0.1},
    // winograd_weights
    {.steps = 0.331,
        .tasks = 30400,
        .direct = 0.205,
        .copied = 1.06,
        .turned = 0.712,
        .gathered = 0.0306,
        .weights = 1.19,
        .partial = 13.5,
        .spilled = 0.647},
};

}  // namespace

const work_counts &work_rates(cost_kind kind, const kernel_set &kernels) {
    const auto index = static_cast<std::size_t>(kind);
    if (kernels.format == operand_format::dot2) return avx512_dot2[index];
    return kernels.set == isa::avx512 ? avx512_fma[index]
           : kernels.set == isa::avx2 ? avx2_fma[index]
                                      : portable_fma[index];
}

}  // namespace convgrad::cpu
