// A kernel_set of what the shared bodies make of a struct V and a format F. Included last, inside
// an anonymous namespace.

constexpr kernel_set vector_kernels(isa set, operand_format format) {
    return {
        .set = set,
        .format = format,
        .lanes = V::lanes,
        .max_vectors = 4,
        .max_m = {0, V::max_m[1], V::max_m[2], V::max_m[3], V::max_m[4]},
        .copies = V::copies,
        .k_per_unit = F::k_per_unit,
        .limits = F::limits,
        .product = product,
        .pack_channels = pack_channels,
        .pack_pixels = pack_pixels,
        .scan = scan,
        .pack_weights = pack_weights,
        .pack_positions = pack_positions,
        .store = store,
        .transpose = transpose_elements,
    };
}
