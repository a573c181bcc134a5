// How the sums of the weights gradient's dense driver leave: parts added in order, one rounding.
#include <algorithm>

#include "cpu/tasks.hpp"
#include "cpu/tiled_weights.hpp"

namespace convgrad::cpu {

/// Adds the parts in order and writes a slice of rows of one panel.
void tiled_weights::write_panel(const conv::buffers &data, float *partials, float *stage, dim group,
    dim panel, dim row0, dim row1) const {
    const dim width = panel_width(), column = panel * width;
    const dim row_stride = rows_.is_src ? p_.weights.i : p_.weights.o;
    const dim column_stride = rows_.is_src ? p_.weights.o : p_.weights.i;
    const dim size = static_cast<dim>(size_of(p_.out_type));
    for (std::size_t tap = 0; tap < tap_patch_.size(); ++tap) {
        float *sum = c_of(partials, group, panel, static_cast<dim>(tap), row0);
        for (dim part = 1; part < parts_; ++part) {
            const float *next = sum + part * partial_floats();
            for (dim i = 0; i < (row1 - row0) * width; ++i) sum[i] += next[i];
        }
        if (taps_inside_) continue;
        store_args args{};
        args.c = sum;
        args.c_cs = 1;
        args.c_xs = width;
        args.channels = std::min(width, columns_.channels - column);
        args.count = row1 - row0;
        args.out = static_cast<char *>(data.weights)
                   + size
                         * (group * p_.weights.g + taps_.kept[tap] + row0 * row_stride
                             + column * column_stride);
        args.type = p_.out_type;
        args.cs = column_stride;
        args.xs = row_stride;
        args.accumulate = p_.accumulate;
        kernels_.store(args);
    }
    if (taps_inside_)
        write_filters(data, c_of(partials, group, panel, 0, row0), stage, group, panel, row0, row1);
}

/// The same where the taps of a filter lie side by side (OIX, IOX): filters are put together first,
/// and leave in runs of whole filters.
void tiled_weights::write_filters(const conv::buffers &data, const float *sum, float *stage,
    dim group, dim panel, dim row0, dim row1) const {
    const dim column = panel * panel_width(), taps = static_cast<dim>(tap_patch_.size());
    const dim rows = row1 - row0, columns = std::min(panel_width(), columns_.channels - column);
    const dim row_stride = rows_.is_src ? p_.weights.i : p_.weights.o;
    const dim column_stride = rows_.is_src ? p_.weights.o : p_.weights.i;
    const bool along_rows = row_stride == taps;  // filters of one column lie one after the other
    const dim run = taps * (along_rows ? rows : columns);
    for (dim r = 0; r < rows; ++r)
        kernels_.transpose(
            {reinterpret_cast<const char *>(sum + r * panel_width()), 4 * c_rows_ * panel_width(),
                taps, columns, 4, reinterpret_cast<char *>(stage + r * (along_rows ? taps : run)),
                4 * (along_rows ? run : taps)});
    store_args args{};
    args.c = stage;
    args.c_cs = 1;
    args.c_xs = run;
    args.channels = run;
    args.count = along_rows ? columns : rows;
    args.out = static_cast<char *>(data.weights)
               + static_cast<dim>(size_of(p_.out_type))
                     * (group * p_.weights.g + row0 * row_stride + column * column_stride);
    args.type = p_.out_type;
    args.cs = 1;
    args.xs = along_rows ? column_stride : row_stride;
    args.accumulate = p_.accumulate;
    kernels_.store(args);
}

void tiled_weights::write_out(
    const conv::buffers &data, float *partials, char *memory, const executor &threads) const {
    const dim slices = div_up(rows_.channels, out_rows_);
    for_each_task(threads.limited(workers_), out_slices(), [&](int worker, dim index) {
        void *mine = memory + static_cast<std::size_t>(worker) * scratch_bytes();
        const dim row0 = index % slices * out_rows_;
        const dim panel = index / slices % panels(), group = index / slices / panels();
        write_panel(data, partials, static_cast<float *>(mine), group, panel, row0,
            std::min(row0 + out_rows_, rows_.channels));
    });
}

}  // namespace convgrad::cpu
