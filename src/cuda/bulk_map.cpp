// What the copy engine is told about tensors.
#include <algorithm>
#include <array>

#include "cuda/bulk.hpp"

namespace convgrad::cuda {
namespace {

static_assert(sizeof(CUtensorMap) == sizeof(tensor_map));

CUtensorMapDataType type_of(data_type type) {
    return type == data_type::f32    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
           : type == data_type::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                     : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
}

/// The last corner of the box that positions lie in, from the tensor's last one.
wide upper_corner(const pixel_axis &a) {
    return a.start + (a.count - 1) * a.step - (a.length - 1);
}

/// Boxes of neighbouring elements of a tensor, fastest axis first; `steps` from its second on.
template <std::size_t Rank>
tensor_map map_boxes(const lane &on, data_type type, const void *data,
    const std::array<wide, Rank> &lengths, const std::array<wide, Rank - 1> &strides,
    const std::array<wide, Rank> &box, CUtensorMapSwizzle swizzle) {
    constexpr wide least_stride = 16;
    const wide element = static_cast<wide>(size_of(type));
    cuuint64_t all[Rank], steps[Rank - 1];
    cuuint32_t some[Rank], every[Rank];
    for (std::size_t d = 0; d < Rank; ++d) {
        all[d] = static_cast<cuuint64_t>(lengths[d]);
        some[d] = static_cast<cuuint32_t>(box[d]);
        every[d] = 1;
        // The stride of a length of one is never used, but has to be one.
        if (d > 0)
            steps[d - 1] =
                static_cast<cuuint64_t>(lengths[d] == 1 ? least_stride : strides[d - 1] * element);
    }
    CUtensorMap map;
    on.on().check(
        the_driver().cuTensorMapEncodeTiled(&map, type_of(type), Rank, const_cast<void *>(data),
            all, steps, some, every, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
            CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "describing a tensor's boxes to the copy engine");
    tensor_map made;
    std::copy_n(map.opaque, 16, made.words);
    return made;
}

}  // namespace

bool has_three_axes(const conv::problem &p) {
    const conv::axis &a = p.x[0];
    return a.src != 1 || a.dst != 1 || a.kernel != 1 || a.pad != 0;
}

std::string refuse_walk(std::span<const pixel_axis, 3> axes) {
    const bool three =
        axes[0].length != 1 || axes[0].count != 1 || axes[0].start != 0 || axes[0].farthest != 0;
    // What the engine has bits for.
    const wide corner = three ? 16 : 128, offset = three ? 32 : 256;
    constexpr wide most_step = 8;
    for (const pixel_axis &a : axes) {
        if (a.step > most_step) return "a stride that the copy engine cannot walk by";
        if (a.farthest >= offset) return "taps farther apart than the copy engine reaches";
        for (const wide at : {a.start, upper_corner(a)})
            if (at < -corner || at >= corner)
                return "positions farther outside than the copy engine reaches";
    }
    return {};
}

tensor_map map_pixels(const lane &on, data_type type, const void *data,
    const data_stride_args &strides, wide images, wide channels,
    std::span<const pixel_axis, 3> axes, bool three_axes, int pixels) {
    constexpr wide element = 2, least_stride = 16;
    cuuint64_t lengths[5] = {static_cast<cuuint64_t>(channels)}, steps[4];
    cuuint32_t every[5] = {1};
    int lower[3], upper[3];
    cuuint32_t rank = 1;
    // The stride of a length of one is never used, but has to be one.
    const auto add = [&](wide length, wide stride, wide step) {
        lengths[rank] = static_cast<cuuint64_t>(length);
        steps[rank - 1] = static_cast<cuuint64_t>(length == 1 ? least_stride : stride * element);
        every[rank++] = static_cast<cuuint32_t>(step);
    };
    for (std::size_t d = 3; d-- > (three_axes ? 0 : 1);) {
        lower[2 - d] = static_cast<int>(axes[d].start);
        upper[2 - d] = static_cast<int>(upper_corner(axes[d]));
        add(axes[d].length, strides.x[d], axes[d].step);
    }
    add(images, strides.n, 1);
    CUtensorMap map;
    on.on().check(
        the_driver().cuTensorMapEncodeIm2col(&map, type_of(type), rank, const_cast<void *>(data),
            lengths, steps, lower, upper, 64, static_cast<cuuint32_t>(pixels), every,
            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
            CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "describing a tensor to the copy engine");
    tensor_map made;
    std::copy_n(map.opaque, 16, made.words);
    return made;
}

tensor_map map_weights(const lane &on, data_type type, const void *data, wide rows, wide taps,
    wide channels, int columns) {
    return map_boxes<3>(on, type, data, {channels, taps, rows}, {channels, channels * taps},
        {64, 1, columns}, CU_TENSOR_MAP_SWIZZLE_128B);
}

tensor_map map_split_weights(
    const lane &on, const void *data, wide rows, wide channels, wide parts, int columns) {
    return map_boxes<3>(on, data_type::f32, data, {channels, parts, rows},
        {channels * rows, channels}, {32, 1, columns}, CU_TENSOR_MAP_SWIZZLE_128B);
}

tensor_map map_turned_weights(const lane &on, data_type type, const void *data,
    const weights_operand::turned_form &form, wide terms) {
    return map_boxes<3>(on, type, data, {form.out, form.taps, form.in},
        {form.tap_stride, form.in_stride}, {64, 1, terms}, CU_TENSOR_MAP_SWIZZLE_128B);
}

tensor_map map_turned_rows(
    const lane &on, const float *data, wide positions, wide rows, wide parts, int box_rows) {
    return map_boxes<3>(on, data_type::f32, data, {positions, parts, rows},
        {positions * rows, positions}, {32, 1, box_rows}, CU_TENSOR_MAP_SWIZZLE_128B);
}

tensor_map map_planes(
    const lane &on, data_type type, const void *data, const plane_form &form, int channels) {
    if (form.are_pixels())
        return map_boxes<3>(on, type, data, {form.channels, 1, form.positions},
            {form.channels, form.step}, {channels, 1, 64}, CU_TENSOR_MAP_SWIZZLE_128B);
    return map_boxes<3>(on, type, data, {form.positions, form.channels, form.images},
        {form.channel_stride, form.image_stride},
        {128 / static_cast<wide>(size_of(type)), channels, 1}, CU_TENSOR_MAP_SWIZZLE_128B);
}

wide pitch_of(const conv::problem &p, bool is_src) {
    const conv::data_strides &s = is_src ? p.src : p.dst;
    wide pitch = 0, next = 0;
    const auto follows = [&](wide length, wide stride) {
        if (length == 1) return true;
        if (pitch == 0) pitch = next = stride;
        if (stride != next) return false;
        next *= length;
        return true;
    };
    for (std::size_t d = 3; d-- > 0;)
        if (!follows(is_src ? p.x[d].src : p.x[d].dst, s.x[d])) return 0;
    if (!follows(p.mb, s.n)) return 0;
    return pitch == 0 ? s.n : pitch;
}

wide position_pitch(const conv::problem &p) {
    const bool backward = is_backward(p);
    for (const conv::axis &a : p.x)
        if (backward && a.stride != 1) return 0;
    return pitch_of(p, backward);
}

tensor_map map_outputs(
    const lane &on, const conv::problem &p, void *out, wide channels, wide pitch) {
    const bool backward = is_backward(p);
    wide positions = p.mb;
    for (const conv::axis &a : p.x) positions *= backward ? a.src : a.dst;
    return map_boxes<3>(on, p.type, out,
        {channels, p.groups * (backward ? p.ic : p.oc) / channels, positions}, {channels, pitch},
        {bulk_slice, 1, 64}, CU_TENSOR_MAP_SWIZZLE_64B);
}

}  // namespace convgrad::cuda
