/* A client in plain C: every function of the interface, on a small convolution and its gradients
 * that can be checked by hand. Exits with 0 if all is well. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <oneapi/dnnl/dnnl_graph.h>

static int failures = 0;

static void expect(int condition, const char *text, int line) {
    if (condition) return;
    printf("line %d: %s\n", line, text);
    ++failures;
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)
#define OK(call) expect((call) == dnnl_success, #call, __LINE__)
#define REFUSED(call) expect((call) == dnnl_invalid_arguments, #call, __LINE__)

/* src (1, 2, 4), weights (3, 2, 2), stride 1, no padding: dst (1, 3, 3). */
enum { ic = 2, oc = 3, length = 4, kernel = 2, out_length = 3 };
static const dnnl_dims_t src_dims = {1, ic, length};
static const dnnl_dims_t weights_dims = {oc, ic, kernel};
static const dnnl_dims_t dst_dims = {1, oc, out_length};
static float src[ic * length], weights[oc * ic * kernel], dst[oc * out_length];

enum { src_id, weights_id, dst_id, diff_src_id, diff_weights_id, relu_id };

static dnnl_graph_logical_tensor_t described(size_t id, const int64_t *dims) {
    dnnl_graph_logical_tensor_t lt;
    OK(dnnl_graph_logical_tensor_init_with_dims(&lt, id, dnnl_f32, 3, dims,
        dnnl_graph_layout_type_strided, dnnl_graph_tensor_property_variable));
    return lt;
}

static dnnl_graph_op_t make_op(size_t id, dnnl_graph_op_kind_t kind) {
    const int64_t one = 1, zero = 0;
    dnnl_graph_op_t op = NULL;
    OK(dnnl_graph_op_create(&op, id, kind, "op"));
    OK(dnnl_graph_op_set_attr_s64(op, dnnl_graph_op_attr_strides, &one, 1));
    OK(dnnl_graph_op_set_attr_s64(op, dnnl_graph_op_attr_dilations, &one, 1));
    OK(dnnl_graph_op_set_attr_s64(op, dnnl_graph_op_attr_pads_begin, &zero, 1));
    OK(dnnl_graph_op_set_attr_s64(op, dnnl_graph_op_attr_pads_end, &zero, 1));
    OK(dnnl_graph_op_set_attr_s64(op, dnnl_graph_op_attr_groups, &one, 0));
    OK(dnnl_graph_op_set_attr_str(op, dnnl_graph_op_attr_data_format, "NCX", 1));
    OK(dnnl_graph_op_set_attr_str(op, dnnl_graph_op_attr_weights_format, "OIX", 3));
    return op;
}

static void fill(float *values, int count, int seed) {
    for (int i = 0; i < count; ++i) values[i] = (float)((i * 7 + seed) % 5 - 2);
}

static void check_logical_tensors(void) {
    dnnl_graph_logical_tensor_t a, b;
    const dnnl_dims_t strides = {8, 1, 2};
    size_t size = 0;
    uint8_t equal = 9;
    OK(dnnl_graph_logical_tensor_init(&a, 5, dnnl_bf16, DNNL_GRAPH_UNKNOWN_NDIMS,
        dnnl_graph_layout_type_any, dnnl_graph_tensor_property_undef));
    EXPECT(a.id == 5 && a.ndims == -1 && a.data_type == dnnl_bf16);
    OK(dnnl_graph_logical_tensor_get_mem_size(&a, &size));
    EXPECT(size == SIZE_MAX);
    a = described(1, src_dims);
    EXPECT(a.layout.strides[0] == 8 && a.layout.strides[1] == 4 && a.layout.strides[2] == 1);
    OK(dnnl_graph_logical_tensor_get_mem_size(&a, &size));
    EXPECT(size == sizeof(src));
    OK(dnnl_graph_logical_tensor_init_with_strides(
        &b, 1, dnnl_f32, 3, src_dims, strides, dnnl_graph_tensor_property_variable));
    OK(dnnl_graph_logical_tensor_is_equal(&a, &b, &equal));
    EXPECT(equal == 0);
    OK(dnnl_graph_logical_tensor_is_equal(&a, &a, &equal));
    EXPECT(equal == 1);
    REFUSED(dnnl_graph_logical_tensor_init(
        NULL, 0, dnnl_f32, 1, dnnl_graph_layout_type_any, dnnl_graph_tensor_property_undef));
    REFUSED(dnnl_graph_logical_tensor_init(
        &a, 0, dnnl_f32, 13, dnnl_graph_layout_type_any, dnnl_graph_tensor_property_undef));
    REFUSED(dnnl_graph_logical_tensor_get_mem_size(NULL, &size));
    REFUSED(dnnl_graph_logical_tensor_is_equal(&a, NULL, &equal));
}

static void check_settings(void) {
    int value = 0;
    size_t capacity = 0;
    OK(dnnl_graph_set_compiled_partition_cache_capacity(3));
    OK(dnnl_graph_get_compiled_partition_cache_capacity(&value));
    EXPECT(value == 3);
    OK(dnnl_graph_set_constant_tensor_cache(1));
    OK(dnnl_graph_get_constant_tensor_cache(&value));
    EXPECT(value == 1);
    OK(dnnl_graph_set_constant_tensor_cache_capacity(dnnl_cpu, 64));
    OK(dnnl_graph_get_constant_tensor_cache_capacity(dnnl_cpu, &capacity));
    EXPECT(capacity == 64);
    OK(dnnl_graph_set_dump_mode(dnnl_graph_dump_mode_none));
    REFUSED(dnnl_graph_get_compiled_partition_cache_capacity(NULL));
    REFUSED(dnnl_graph_get_constant_tensor_cache(NULL));
    REFUSED(dnnl_graph_get_constant_tensor_cache_capacity(dnnl_cpu, NULL));
}

static void check_null_arguments(void) {
    size_t number = 0;
    uint8_t flag = 0;
    float real = 0;
    const int64_t whole = 0;
    void *handle = NULL;
    dnnl_engine_t engine = NULL;
    dnnl_graph_op_t op = NULL;
    dnnl_graph_op_kind_t kind;
    dnnl_graph_tensor_t tensor = NULL;
    dnnl_graph_logical_tensor_t lt = described(0, src_dims);
    REFUSED(dnnl_graph_op_create(&op, 0, dnnl_graph_op_convolution, NULL));
    REFUSED(dnnl_graph_op_add_input(NULL, &lt));
    REFUSED(dnnl_graph_op_add_output(NULL, &lt));
    REFUSED(dnnl_graph_op_set_attr_f32(NULL, dnnl_graph_op_attr_alpha, &real, 1));
    REFUSED(dnnl_graph_op_set_attr_bool(NULL, dnnl_graph_op_attr_keep_dims, &flag, 1));
    REFUSED(dnnl_graph_op_set_attr_s64(NULL, dnnl_graph_op_attr_axis, &whole, 1));
    REFUSED(dnnl_graph_op_set_attr_str(NULL, dnnl_graph_op_attr_mode, "", 1));
    REFUSED(dnnl_graph_op_get_id(NULL, &number));
    REFUSED(dnnl_graph_op_get_kind(NULL, &kind));
    REFUSED(dnnl_graph_graph_create(NULL, dnnl_cpu));
    REFUSED(dnnl_graph_graph_create_with_fpmath_mode(NULL, dnnl_cpu, dnnl_fpmath_mode_strict));
    REFUSED(dnnl_graph_add_op(NULL, NULL));
    REFUSED(dnnl_graph_graph_finalize(NULL));
    REFUSED(dnnl_graph_graph_is_finalized(NULL, &flag));
    EXPECT(dnnl_graph_graph_filter(NULL, dnnl_graph_partition_policy_fusion) == dnnl_invalid_graph);
    EXPECT(dnnl_graph_graph_get_partition_num(NULL, &number) == dnnl_invalid_graph);
    EXPECT(dnnl_graph_graph_get_partitions(NULL, 1, NULL) == dnnl_invalid_graph);
    REFUSED(dnnl_graph_graph_set_fpmath_mode(NULL, dnnl_fpmath_mode_any, 0));
    REFUSED(dnnl_graph_graph_get_fpmath_mode(NULL, NULL, NULL));
    REFUSED(dnnl_graph_partition_create_with_op(NULL, NULL, dnnl_cpu));
    REFUSED(dnnl_graph_partition_get_op_num(NULL, &number));
    REFUSED(dnnl_graph_partition_get_ops(NULL, 1, &number));
    REFUSED(dnnl_graph_partition_get_id(NULL, &number));
    REFUSED(dnnl_graph_partition_get_input_ports_num(NULL, &number));
    REFUSED(dnnl_graph_partition_get_input_ports(NULL, 1, &lt));
    REFUSED(dnnl_graph_partition_get_output_ports_num(NULL, &number));
    REFUSED(dnnl_graph_partition_get_output_ports(NULL, 1, &lt));
    REFUSED(dnnl_graph_partition_is_supported(NULL, &flag));
    REFUSED(dnnl_graph_partition_get_engine_kind(NULL, NULL));
    REFUSED(dnnl_graph_partition_compile(NULL, NULL, 0, NULL, 0, NULL, NULL));
    REFUSED(dnnl_graph_compiled_partition_create(NULL, NULL));
    REFUSED(dnnl_graph_compiled_partition_execute(NULL, NULL, 0, NULL, 0, NULL));
    REFUSED(dnnl_graph_compiled_partition_execute_v2(NULL, NULL, 0, NULL, 0, NULL, NULL));
    REFUSED(dnnl_graph_compiled_partition_query_logical_tensor(NULL, 0, &lt));
    REFUSED(dnnl_graph_compiled_partition_get_inplace_ports(NULL, &number, NULL));
    REFUSED(dnnl_graph_compiled_partition_get_scratchpad_logical_tensor(NULL, &lt));
    REFUSED(dnnl_graph_tensor_create(&tensor, &lt, NULL, src));
    REFUSED(dnnl_graph_tensor_create_scalar(&tensor, &lt, src));
    REFUSED(dnnl_graph_tensor_get_data_handle(NULL, &handle));
    REFUSED(dnnl_graph_tensor_set_data_handle(NULL, src));
    REFUSED(dnnl_graph_tensor_get_engine(NULL, &engine));
    REFUSED(dnnl_graph_tensor_get_logical_tensor(NULL, &lt));
    REFUSED(dnnl_graph_allocator_create(NULL, NULL, NULL));
    REFUSED(dnnl_graph_allocator_destroy(NULL));
    REFUSED(dnnl_graph_make_engine_with_allocator(NULL, dnnl_cpu, 0, NULL));
    /* The other destructors take null. */
    OK(dnnl_graph_op_destroy(NULL));
    OK(dnnl_graph_graph_destroy(NULL));
    OK(dnnl_graph_partition_destroy(NULL));
    OK(dnnl_graph_compiled_partition_destroy(NULL));
    OK(dnnl_graph_tensor_destroy(NULL));
}

/* The one partition of a finalized graph. */
static dnnl_graph_partition_t only_partition(dnnl_graph_graph_t graph) {
    size_t count = 0;
    uint8_t flag = 0;
    dnnl_graph_partition_t partition = NULL;
    OK(dnnl_graph_graph_finalize(graph));
    OK(dnnl_graph_graph_is_finalized(graph, &flag));
    EXPECT(flag == 1);
    OK(dnnl_graph_graph_filter(graph, dnnl_graph_partition_policy_fusion));
    OK(dnnl_graph_graph_get_partition_num(graph, &count));
    EXPECT(count == 1);
    OK(dnnl_graph_graph_get_partitions(graph, count, &partition));
    OK(dnnl_graph_partition_is_supported(partition, &flag));
    EXPECT(flag == 1);
    return partition;
}

/* Compiles and executes a partition on tensors in the order of their ids. */
static void run(dnnl_graph_partition_t partition, dnnl_engine_t engine, int in_count,
    const dnnl_graph_logical_tensor_t *in, float *const *in_data, int out_count,
    const dnnl_graph_logical_tensor_t *out, float *const *out_data) {
    const dnnl_graph_logical_tensor_t *ins[4], *outs[4];
    dnnl_graph_tensor_t made[8];
    const_dnnl_graph_tensor_t in_tensors[4], out_tensors[4];
    dnnl_graph_compiled_partition_t compiled = NULL;
    dnnl_graph_logical_tensor_t queried;
    dnnl_stream_t stream = NULL;
    for (int i = 0; i < in_count; ++i) ins[i] = &in[i];
    for (int i = 0; i < out_count; ++i) outs[i] = &out[i];
    OK(dnnl_graph_compiled_partition_create(&compiled, partition));
    OK(dnnl_graph_partition_compile(
        partition, compiled, (size_t)in_count, ins, (size_t)out_count, outs, engine));
    OK(dnnl_graph_compiled_partition_query_logical_tensor(compiled, out[0].id, &queried));
    EXPECT(queried.ndims == 3);
    for (int i = 0; i < in_count; ++i) {
        OK(dnnl_graph_tensor_create(&made[i], &in[i], engine, in_data[i]));
        in_tensors[i] = made[i];
    }
    for (int i = 0; i < out_count; ++i) {
        OK(dnnl_graph_tensor_create(&made[in_count + i], &out[i], engine, NULL));
        OK(dnnl_graph_tensor_set_data_handle(made[in_count + i], out_data[i]));
        out_tensors[i] = made[in_count + i];
    }
    OK(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
    OK(dnnl_graph_compiled_partition_execute(
        compiled, stream, (size_t)in_count, in_tensors, (size_t)out_count, out_tensors));

    /* Again, with a scratchpad as it is asked for. */
    dnnl_graph_logical_tensor_t scratch_lt;
    dnnl_graph_tensor_t scratch = NULL;
    dnnl_engine_t same_engine = NULL;
    void *handle = NULL;
    size_t pairs = 9;
    const dnnl_graph_inplace_pair_t *pair_list = NULL;
    OK(dnnl_graph_compiled_partition_get_scratchpad_logical_tensor(compiled, &scratch_lt));
    OK(dnnl_graph_tensor_create(&scratch, &scratch_lt, engine, DNNL_MEMORY_ALLOCATE));
    OK(dnnl_graph_compiled_partition_execute_v2(
        compiled, stream, (size_t)in_count, in_tensors, (size_t)out_count, out_tensors, scratch));
    OK(dnnl_stream_wait(stream));
    OK(dnnl_graph_compiled_partition_get_inplace_ports(compiled, &pairs, &pair_list));
    EXPECT(pairs == 0);
    OK(dnnl_graph_tensor_get_data_handle(in_tensors[0], &handle));
    EXPECT(handle == in_data[0]);
    OK(dnnl_graph_tensor_get_engine(in_tensors[0], &same_engine));
    EXPECT(same_engine == engine);
    OK(dnnl_graph_tensor_get_logical_tensor(in_tensors[0], &queried));
    EXPECT(queried.id == in[0].id);

    OK(dnnl_stream_destroy(stream));
    OK(dnnl_graph_tensor_destroy(scratch));
    for (int i = 0; i < in_count + out_count; ++i) OK(dnnl_graph_tensor_destroy(made[i]));
    OK(dnnl_graph_compiled_partition_destroy(compiled));
}

static void check_forward(dnnl_engine_t engine) {
    dnnl_graph_graph_t graph = NULL;
    dnnl_graph_logical_tensor_t in[2], between, out;
    dnnl_graph_op_t op = make_op(1, dnnl_graph_op_convolution), relu = NULL;
    dnnl_graph_op_kind_t kind = dnnl_graph_op_abs;
    dnnl_fpmath_mode_t mode = dnnl_fpmath_mode_any;
    int for_integers = 9;
    size_t id = 0;
    in[0] = described(src_id, src_dims);
    in[1] = described(weights_id, weights_dims);
    between = described(dst_id, dst_dims);
    out = described(relu_id, dst_dims);
    OK(dnnl_graph_op_add_input(op, &in[0]));
    OK(dnnl_graph_op_add_input(op, &in[1]));
    OK(dnnl_graph_op_add_output(op, &between));
    OK(dnnl_graph_op_get_id(op, &id));
    OK(dnnl_graph_op_get_kind(op, &kind));
    EXPECT(id == 1 && kind == dnnl_graph_op_convolution);
    OK(dnnl_graph_op_create(&relu, 2, dnnl_graph_op_relu, "relu"));
    OK(dnnl_graph_op_add_input(relu, &between));
    OK(dnnl_graph_op_add_output(relu, &out));

    OK(dnnl_graph_graph_create_with_fpmath_mode(&graph, dnnl_cpu, dnnl_fpmath_mode_tf32));
    OK(dnnl_graph_graph_set_fpmath_mode(graph, dnnl_fpmath_mode_strict, 1));
    OK(dnnl_graph_graph_get_fpmath_mode(graph, &mode, &for_integers));
    EXPECT(mode == dnnl_fpmath_mode_strict && for_integers == 1);
    OK(dnnl_graph_add_op(graph, op));
    OK(dnnl_graph_add_op(graph, relu));
    dnnl_graph_partition_t partition = only_partition(graph);
    /* Everything that made the partition may go. */
    OK(dnnl_graph_op_destroy(op));
    OK(dnnl_graph_op_destroy(relu));
    OK(dnnl_graph_graph_destroy(graph));

    size_t count = 0, ids[2] = {0, 0};
    dnnl_engine_kind_t engine_kind = dnnl_any_engine;
    dnnl_graph_logical_tensor_t ports[2];
    OK(dnnl_graph_partition_get_op_num(partition, &count));
    EXPECT(count == 2);
    OK(dnnl_graph_partition_get_ops(partition, 2, ids));
    EXPECT(ids[0] == 1 && ids[1] == 2);
    OK(dnnl_graph_partition_get_id(partition, &count));
    OK(dnnl_graph_partition_get_engine_kind(partition, &engine_kind));
    EXPECT(engine_kind == dnnl_cpu);
    OK(dnnl_graph_partition_get_input_ports_num(partition, &count));
    EXPECT(count == 2);
    OK(dnnl_graph_partition_get_input_ports(partition, 2, ports));
    EXPECT(ports[0].id == src_id && ports[1].id == weights_id);
    OK(dnnl_graph_partition_get_output_ports_num(partition, &count));
    EXPECT(count == 1);
    OK(dnnl_graph_partition_get_output_ports(partition, 1, ports));
    EXPECT(ports[0].id == relu_id);

    float *in_data[] = {src, weights}, *out_data[] = {dst};
    run(partition, engine, 2, in, in_data, 1, &out, out_data);
    OK(dnnl_graph_partition_destroy(partition));
    for (int o = 0; o < oc; ++o)
        for (int y = 0; y < out_length; ++y) {
            float sum = 0;
            for (int i = 0; i < ic; ++i)
                for (int k = 0; k < kernel; ++k)
                    sum += src[i * length + y + k] * weights[(o * ic + i) * kernel + k];
            EXPECT(dst[o * out_length + y] == (sum > 0 ? sum : 0));
        }
}

static void check_gradients(dnnl_engine_t engine) {
    float diff_dst[oc * out_length], diff_src[ic * length], diff_weights[oc * ic * kernel];
    float expected_src[ic * length] = {0}, expected_weights[oc * ic * kernel] = {0};
    dnnl_graph_graph_t graph = NULL;
    dnnl_graph_logical_tensor_t in[3], out[2];
    dnnl_graph_op_t data = make_op(1, dnnl_graph_op_convolution_backward_data);
    dnnl_graph_op_t filter = make_op(2, dnnl_graph_op_convolution_backward_weights);
    fill(diff_dst, oc * out_length, 3);
    in[0] = described(src_id, src_dims);
    in[1] = described(weights_id, weights_dims);
    in[2] = described(dst_id, dst_dims);
    out[0] = described(diff_src_id, src_dims);
    out[1] = described(diff_weights_id, weights_dims);
    OK(dnnl_graph_op_add_input(data, &in[2]));
    OK(dnnl_graph_op_add_input(data, &in[1]));
    OK(dnnl_graph_op_add_output(data, &out[0]));
    OK(dnnl_graph_op_add_input(filter, &in[0]));
    OK(dnnl_graph_op_add_input(filter, &in[2]));
    OK(dnnl_graph_op_add_output(filter, &out[1]));
    OK(dnnl_graph_graph_create(&graph, dnnl_cpu));
    OK(dnnl_graph_add_op(graph, data));
    OK(dnnl_graph_add_op(graph, filter));
    dnnl_graph_partition_t partition = only_partition(graph);
    float *in_data[] = {src, weights, diff_dst}, *out_data[] = {diff_src, diff_weights};
    run(partition, engine, 3, in, in_data, 2, out, out_data);

    for (int o = 0; o < oc; ++o)
        for (int y = 0; y < out_length; ++y)
            for (int i = 0; i < ic; ++i)
                for (int k = 0; k < kernel; ++k) {
                    const int w = (o * ic + i) * kernel + k, s = i * length + y + k;
                    expected_src[s] += diff_dst[o * out_length + y] * weights[w];
                    expected_weights[w] += diff_dst[o * out_length + y] * src[s];
                }
    EXPECT(memcmp(diff_src, expected_src, sizeof(diff_src)) == 0);
    EXPECT(memcmp(diff_weights, expected_weights, sizeof(diff_weights)) == 0);
    OK(dnnl_graph_partition_destroy(partition));
    OK(dnnl_graph_op_destroy(data));
    OK(dnnl_graph_op_destroy(filter));
    OK(dnnl_graph_graph_destroy(graph));
}

static void check_single_op_and_scalars(void) {
    dnnl_graph_op_t op = NULL;
    dnnl_graph_partition_t partition = NULL;
    dnnl_graph_logical_tensor_t lt;
    dnnl_graph_tensor_t tensor = NULL;
    const float alpha = 1.0F;
    const uint8_t yes = 1;
    uint8_t supported = 9;
    int32_t value = 3;
    OK(dnnl_graph_op_create(&op, 1, dnnl_graph_op_wildcard, "anything"));
    OK(dnnl_graph_op_set_attr_f32(op, dnnl_graph_op_attr_alpha, &alpha, 0));
    OK(dnnl_graph_op_set_attr_bool(op, dnnl_graph_op_attr_keep_dims, &yes, 1));
    OK(dnnl_graph_partition_create_with_op(&partition, op, dnnl_cpu));
    OK(dnnl_graph_partition_is_supported(partition, &supported));
    EXPECT(supported == 0);
    OK(dnnl_graph_partition_destroy(partition));
    OK(dnnl_graph_op_destroy(op));
    OK(dnnl_graph_logical_tensor_init(&lt, 1, dnnl_s32, 0, dnnl_graph_layout_type_strided,
        dnnl_graph_tensor_property_host_scalar));
    OK(dnnl_graph_tensor_create_scalar(&tensor, &lt, &value));
    OK(dnnl_graph_tensor_destroy(tensor));
}

static int allocations = 0;
static void *allocate(size_t size, size_t alignment) {
    ++allocations;
    return aligned_alloc(alignment, (size + alignment) / alignment * alignment);
}

int main(void) {
    dnnl_graph_allocator_t allocator = NULL;
    dnnl_engine_t plain = NULL, with_allocator = NULL, of_stream = NULL;
    dnnl_stream_t stream = NULL;
    dnnl_engine_kind_t kind = dnnl_any_engine;
    fill(src, ic * length, 0);
    fill(weights, oc * ic * kernel, 1);
    EXPECT(dnnl_engine_get_count(dnnl_cpu) == 1);
    OK(dnnl_engine_create(&plain, dnnl_cpu, 0));
    OK(dnnl_engine_get_kind(plain, &kind));
    EXPECT(kind == dnnl_cpu);
    OK(dnnl_stream_create(&stream, plain, dnnl_stream_default_flags));
    OK(dnnl_stream_get_engine(stream, &of_stream));
    EXPECT(of_stream == plain);
    OK(dnnl_stream_destroy(stream));
    OK(dnnl_graph_allocator_create(&allocator, allocate, free));
    OK(dnnl_graph_make_engine_with_allocator(&with_allocator, dnnl_cpu, 0, allocator));
    OK(dnnl_graph_allocator_destroy(allocator));

    check_logical_tensors();
    check_settings();
    check_null_arguments();
    check_single_op_and_scalars();
    check_forward(plain);
    check_gradients(plain);
    EXPECT(allocations == 0);
    check_forward(with_allocator);
    check_gradients(with_allocator);
    EXPECT(allocations > 0);

    OK(dnnl_engine_destroy(plain));
    OK(dnnl_engine_destroy(with_allocator));
    printf("%s\n", failures == 0 ? "all as expected" : "FAILED");
    return failures == 0 ? 0 : 1;
}
