// Allocators, tensors, scratchpads, threads and the trace.
#include <atomic>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "client.hpp"

namespace convgrad::test {
namespace {

/// A client's allocator that counts, and throws when told to.
struct counted {
    static inline std::atomic<int> live = 0, calls = 0;
    static inline std::atomic<std::size_t> largest_alignment = 0;
    static inline bool refuse = false, have_none = false;

    static void *allocate(std::size_t size, std::size_t alignment) {
        if (refuse) throw std::runtime_error("the client has no memory for this");
        if (have_none) return nullptr;
        ++live;
        ++calls;
        largest_alignment = std::max(largest_alignment.load(), alignment);
        return std::aligned_alloc(64, (size + 127) / 64 * 64);
    }
    static void deallocate(void *p) {
        --live;
        std::free(p);
    }
    static dnnl::engine engine() {
        refuse = have_none = false;
        live = calls = 0;
        // The allocator itself ends here: the engine keeps a copy.
        const dg::allocator allocator(allocate, deallocate);
        return dg::make_engine_with_allocator(dnnl::engine::kind::cpu, 0, allocator);
    }
};

/// A partition that surely needs scratch memory: the tensor to add is broadcast.
struct scratch_user {
    layer l = make_layer(false, 2, "NCX", "OIX", 1, "None");
    operand src{0, data_type::f32, l.src}, weights{1, data_type::f32, l.weights};
    operand added{2, data_type::f32, {1, 1, 1, 1}};
    operand between{3, data_type::f32, l.dst}, out{4, data_type::f32, l.dst};
    operand expected = out.blank();

    scratch_user() {
        src.fill(1);
        weights.fill(2);
        compute_reference(op_kind::convolution, l.attrs, src, weights, expected);  // adds zero
    }
    [[nodiscard]] dg::compiled_partition compile(const dnnl::engine &engine) const {
        dg::op convolution = make_op(0, op_kind::convolution, l.attrs);
        convolution.add_inputs({src.described(), weights.described()});
        convolution.add_output(between.described());
        dg::op add(1, dg::op::kind::Add, "add");
        add.add_inputs({between.described(), added.described()});
        add.add_output(out.described());
        return partitions_of({convolution, add})[0].compile(
            {src.described(), weights.described(), added.described()}, {out.described()}, engine);
    }
    void execute(const dg::compiled_partition &compiled, const dnnl::engine &engine) {
        dnnl::stream stream(engine);
        compiled.execute(
            stream, {src.on(engine), weights.on(engine), added.on(engine)}, {out.on(engine)});
        stream.wait();
    }
};

TEST(MemoryClient, ExecutionTakesMemoryFromTheClientsAllocator) {
    const dnnl::engine engine = counted::engine();
    scratch_user user;
    user.execute(user.compile(engine), engine);
    EXPECT_EQ(user.out.bytes, user.expected.bytes);
    EXPECT_GT(counted::calls, 0);
    EXPECT_EQ(counted::live, 0);
    EXPECT_EQ(counted::largest_alignment, 64U);
}

TEST(MemoryClient, TheAllocatorsExceptionReachesTheClient) {
    const dnnl::engine engine = counted::engine();
    scratch_user user;
    const auto compiled = user.compile(engine);
    counted::refuse = true;
    EXPECT_THROW(user.execute(compiled, engine), std::runtime_error);
    EXPECT_THROW(dg::tensor(user.src.described(), engine), std::runtime_error);
    counted::refuse = false;
    user.execute(compiled, engine);
    EXPECT_EQ(user.out.bytes, user.expected.bytes);
    EXPECT_EQ(counted::live, 0);
}

TEST(MemoryClient, AnAllocatorWithoutMemory) {
    const dnnl::engine engine = counted::engine();
    scratch_user user;
    const auto compiled = user.compile(engine);
    counted::have_none = true;
    EXPECT_EQ(status_of([&] { user.execute(compiled, engine); }), dnnl_out_of_memory);
    EXPECT_EQ(status_of([&] { dg::tensor(user.src.described(), engine); }), dnnl_out_of_memory);
}

TEST(MemoryClient, TensorsOwnWhatTheyAskFor) {
    const dnnl::engine engine = counted::engine();
    const operand o(0, data_type::f32, {3, 5});
    {
        const dg::tensor owner(o.described(), engine);
        ASSERT_NE(owner.get_data_handle(), nullptr);
        std::memset(owner.get_data_handle(), 0, o.bytes.size());
        EXPECT_EQ(counted::live, 1);
        EXPECT_EQ(owner.get_engine().get(), engine.get());
        EXPECT_TRUE(owner.get_logical_tensor().is_equal(o.described()));
    }
    EXPECT_EQ(counted::live, 0);
    dg::tensor swapped(o.described(), engine);
    float here = 0;
    swapped.set_data_handle(&here);
    EXPECT_EQ(swapped.get_data_handle(), &here);
    EXPECT_EQ(counted::live, 0);
    // Not a size that can be had.
    const dg::logical_tensor open(0, lt_type::f32, lt_layout::any);
    EXPECT_EQ(status_of([&] { dg::tensor(open, engine); }), dnnl_invalid_arguments);
}

TEST(MemoryClient, InterleavedAxesFitIntoTheirMemory) {
    // Elements at 0, 2, 3, 4, 5 and 7.
    const dg::logical_tensor lt(0, lt_type::f32, {3, 2}, dg::logical_tensor::dims{2, 3});
    EXPECT_EQ(lt.get_mem_size(), 8 * sizeof(float));
}

TEST(MemoryClient, HostScalars) {
    using property = dg::logical_tensor::property_type;
    const dg::logical_tensor lt(0, lt_type::s32, 0, lt_layout::strided, property::host_scalar);
    std::int32_t value = 42;
    dg::tensor scalar = dg::tensor::make_scalar_tensor(lt, &value);
    EXPECT_EQ(scalar.get_data_handle(), nullptr);
    EXPECT_EQ(status_of([&] { scalar.set_data_handle(&value); }), dnnl_invalid_arguments);
    EXPECT_EQ(status_of([&] { dg::tensor(lt, cpu_engine(), &value); }), dnnl_invalid_arguments);
    EXPECT_EQ(status_of([&] {
        const dg::logical_tensor bad(0, lt_type::f16, 0, lt_layout::strided, property::host_scalar);
    }),
        dnnl_invalid_arguments);
}

TEST(MemoryClient, ScratchpadOfTheClient) {
    const dnnl::engine engine = counted::engine();
    scratch_user user;
    const auto compiled = user.compile(engine);
    const auto needed = compiled.get_scratchpad_logical_tensor();
    EXPECT_EQ(needed.get_data_type(), lt_type::u8);
    ASSERT_GE(needed.get_mem_size(), user.out.bytes.size());
    // At an odd address, with nothing to spare.
    std::vector<std::byte> memory(needed.get_mem_size() + 1);
    const dg::tensor scratchpad(needed, engine, memory.data() + 1);
    dnnl::stream stream(engine);
    const auto run_with = [&](const dg::tensor &pad) {
        compiled.execute(stream,
            {user.src.on(engine), user.weights.on(engine), user.added.on(engine)},
            {user.out.on(engine)}, pad);
    };
    run_with(scratchpad);
    EXPECT_EQ(user.out.bytes, user.expected.bytes);
    EXPECT_EQ(counted::calls, 0);
    const dg::logical_tensor small(9, lt_type::u8, dims{8}, lt_layout::strided);
    EXPECT_EQ(status_of([&] { run_with({small, engine, memory.data()}); }), dnnl_invalid_arguments);
}

TEST(MemoryClient, ManyThreadsExecuteOneCompiledPartition) {
    const dnnl::engine engine = counted::engine();
    const scratch_user shared;
    const auto compiled = shared.compile(engine);
    std::vector<std::thread> threads;
    std::atomic<int> right = 0;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            scratch_user mine;
            for (int i = 0; i < 20; ++i) {
                mine.out = mine.out.blank();
                mine.execute(compiled, engine);
                right += mine.out.bytes == mine.expected.bytes ? 1 : 0;
            }
        });
    for (std::thread &t : threads) t.join();
    EXPECT_EQ(right, 80);
    EXPECT_EQ(counted::live, 0);
}

/// A layer on which `fast` rounds differently than `accurate` on every instruction set: Winograd's
/// larger tiles, or operands rounded to bf16.
struct layer_of_reals {
    operand src{0, data_type::f32, {1, 64, 24, 24}}, weights{1, data_type::f32, {64, 64, 3, 3}};
    operand out{2, data_type::f32, {1, 64, 24, 24}};
    attributes attrs{.strides = {1, 1},
        .pads_begin = {1, 1},
        .pads_end = {1, 1},
        .dilations = {1, 1},
        .data_format = "NCX",
        .weights_format = "OIX"};

    layer_of_reals() {
        rng random(1);
        for (operand *o : {&src, &weights})
            for (std::size_t at = 0; at < o->bytes.size(); at += sizeof(float)) {
                const auto value = static_cast<float>(random.between(-1000, 1000)) / 777;
                std::memcpy(&o->bytes[at], &value, sizeof value);
            }
    }
    [[nodiscard]] std::vector<std::byte> by_eager_call(math_mode math) {
        const engine on(engine_options{.math = math});
        const auto tensor_of = [](operand &o) {
            return tensor(static_cast<void *>(o.bytes.data()), data_type::f32, *o.lt.shape);
        };
        operand result = out.blank();
        convolution(tensor_of(src), tensor_of(weights), {}, tensor_of(result), attrs, {.on = &on});
        return result.bytes;
    }
};

// strict, f16 and tf32 keep more bits than bf16, so they are computed as `accurate`.
TEST(MemoryClient, FloatingPointModesChooseTheMathMode) {
    layer_of_reals user;
    const std::vector<std::byte> accurate = user.by_eager_call(math_mode::accurate),
                                 fast = user.by_eager_call(math_mode::fast);
    ASSERT_NE(accurate, fast) << "nothing to tell the modes apart by";
    const auto computed = [&](dnnl::fpmath_mode mode) {
        dg::graph graph(dnnl::engine::kind::cpu, mode);
        dg::op op = make_op(0, op_kind::convolution, user.attrs);
        op.add_inputs({user.src.described(), user.weights.described()});
        op.add_output(user.out.described());
        graph.add_op(op);
        graph.finalize();
        user.out = user.out.blank();
        run(graph.get_partitions()[0], {&user.src, &user.weights}, {&user.out});
        return user.out.bytes;
    };
    for (const auto mode :
        {dnnl::fpmath_mode::strict, dnnl::fpmath_mode::f16, dnnl::fpmath_mode::tf32})
        EXPECT_TRUE(computed(mode) == accurate) << static_cast<int>(mode);
    for (const auto mode : {dnnl::fpmath_mode::bf16, dnnl::fpmath_mode::any})
        EXPECT_TRUE(computed(mode) == fast) << static_cast<int>(mode);
}

/// Threads of this process.
int existing_threads() {
    const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
    return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

// In a process of its own (see CMakeLists.txt): a client that computes with OpenMP has its threads
// already, and the drop-in starts no others.
TEST(OpenMpClient, ComputesOnTheThreadsThatThereAre) {
    const char *name = std::getenv("CONVGRAD_TEST_OPENMP");
    if (name == nullptr) GTEST_SKIP() << "CONVGRAD_TEST_OPENMP does not name a runtime";
    void *runtime = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (runtime == nullptr) GTEST_SKIP() << dlerror();
    const auto set_threads = reinterpret_cast<void (*)(int)>(dlsym(runtime, "omp_set_num_threads"));
    const auto parallel = reinterpret_cast<void (*)(void (*)(void *), void *, unsigned, unsigned)>(
        dlsym(runtime, "GOMP_parallel"));
    ASSERT_TRUE(set_threads != nullptr && parallel != nullptr);
    set_threads(3);
    parallel([](void *) {}, nullptr, 0, 0);
    ASSERT_GE(existing_threads(), 3);  // LLVM's runtime has one of its own beside

    const int before = existing_threads();
    layer_of_reals user;
    dg::op op = make_op(0, op_kind::convolution, user.attrs);
    op.add_inputs({user.src.described(), user.weights.described()});
    op.add_output(user.out.described());
    run(partitions_of({op})[0], {&user.src, &user.weights}, {&user.out});
    EXPECT_EQ(existing_threads(), before);
    EXPECT_TRUE(user.out.bytes == user.by_eager_call(math_mode::accurate));
}

TEST(MemoryClient, EnginesBelongToTheOneDnnBehind) {
    auto *live = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "stub_dnnl_live_engines"));
    if (live == nullptr) GTEST_SKIP() << "the drop-in is alone, or before a real oneDNN";
    const int others = live();
    {
        const dnnl::engine plain = cpu_engine(), with_allocator = counted::engine();
        EXPECT_EQ(live(), others + 2);
        EXPECT_EQ(dnnl::stream(plain).get_engine().get(), plain.get());
    }
    EXPECT_EQ(live(), others);
}

TEST(MemoryClient, SettingsAreKept) {
    EXPECT_EQ(dg::get_compiled_partition_cache_capacity(), 1024);
    dg::set_compiled_partition_cache_capacity(7);
    EXPECT_EQ(dg::get_compiled_partition_cache_capacity(), 7);
    EXPECT_EQ(dnnl_graph_set_compiled_partition_cache_capacity(-1), dnnl_invalid_arguments);
    dg::set_compiled_partition_cache_capacity(1024);

    const auto cpu = dnnl::engine::kind::cpu;
    EXPECT_EQ(dg::get_constant_tensor_cache_capacity(cpu), 0U);
    EXPECT_EQ(dg::get_constant_tensor_cache(), 0);
    dg::set_constant_tensor_cache_capacity(cpu, 16);
    EXPECT_EQ(dg::get_constant_tensor_cache_capacity(cpu), 16U);
    EXPECT_EQ(dg::get_constant_tensor_cache(), 1);
    dg::set_constant_tensor_cache_capacity(cpu, SIZE_MAX);
    EXPECT_EQ(dg::get_constant_tensor_cache_capacity(cpu), SIZE_MAX >> 20);
    dg::set_constant_tensor_cache(0);
    EXPECT_EQ(dg::get_constant_tensor_cache_capacity(cpu), 0U);
    EXPECT_EQ(dnnl_graph_set_constant_tensor_cache(-1), dnnl_invalid_arguments);

    for (const unsigned mode : {0U, 1U, 2U, 3U})
        EXPECT_EQ(
            dnnl_graph_set_dump_mode(static_cast<dnnl_graph_dump_mode_t>(mode)), dnnl_success);
    EXPECT_EQ(dnnl_graph_set_dump_mode(dnnl_graph_dump_mode_none), dnnl_success);
}

}  // namespace
}  // namespace convgrad::test
