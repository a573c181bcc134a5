// Every allocation fails once: each request for memory that a call makes is refused in turn, alone
// and together with all that follow. The call must then throw out_of_memory, or still give the
// right result; nothing may leak, and the next call must work.
#include <cstdio>
#include <cstring>
#include <functional>

#include <sys/wait.h>
#include <unistd.h>

#include "conv/convert.hpp"
#include "cpu/parallel.hpp"
#include "cpu/pool.hpp"
#include "graph/helpers.hpp"
#include "memory/injector.hpp"
#include "support/eager_call.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

long refused_requests = 0;

class needs_injector : public testing::Environment {
    void SetUp() override {
        if (!injector::available) GTEST_SKIP() << "allocations cannot be made to fail here";
    }
    void TearDown() override { std::printf("%ld requests were refused\n", refused_requests); }
};
[[maybe_unused]] const auto *const needed = testing::AddGlobalTestEnvironment(new needs_injector);

using injector::mode;
constexpr mode modes[] = {mode::once, mode::from_then_on};

struct outcome {
    bool failed = false;
    long requests = 0;
};

/// Runs `work` with the k-th request refused. Fails the test for any exception but out_of_memory.
template <typename Work>
outcome attempt(long k, mode how, Work &&work) {
    outcome seen;
    injector::arm(k, how);
    try {
        work();
        seen.requests = injector::disarm();
    } catch (const error &e) {
        seen.requests = injector::disarm();
        seen.failed = true;
        EXPECT_EQ(to_string(e.code()), "out_of_memory") << e.what();
        EXPECT_NE(std::string(e.what()).find("alloca"), std::string::npos) << e.what();
    } catch (const std::exception &e) {
        seen.requests = injector::disarm();
        ADD_FAILURE() << "another exception: " << e.what();
    }
    if (seen.requests > k) ++refused_requests;
    return seen;
}

/// Fails each request of `work` in turn. `prepare` makes what the caller owns (its own allocations
/// are the caller's affair), `work` runs on it, `right` tells whether the result is right. Returns
/// how many runs failed.
template <typename Prepare, typename Work, typename Right>
int fail_each(Prepare &&prepare, Work &&work, Right &&right) {
    int failures = 0;
    for (const mode how : modes)
        for (long k = 0;; ++k) {
            SCOPED_TRACE(testing::Message() << "request " << k << (how == mode::once ? "" : " on"));
            outcome seen;
            release_scratch();
            const long before = injector::live();
            {
                auto state = prepare();
                seen = attempt(k, how, [&] { work(state); });
                EXPECT_TRUE(seen.failed || right(state));
            }
            release_scratch();
            EXPECT_EQ(injector::live(), before) << "leaked";
            {
                auto state = prepare();
                work(state);
                EXPECT_TRUE(right(state)) << "after a failure";
            }
            failures += seen.failed;
            if (testing::Test::HasFailure() || seen.requests <= k) break;
        }
    return failures;
}

/// Memory of any type with small whole numbers.
class typed_buffer {
public:
    typed_buffer(data_type type, dims shape, int seed)
        : type_(type), shape_(std::move(shape)), bytes_(count_of(shape_) * size_of(type)) {
        for (std::size_t i = 0; i < count_of(shape_); ++i) {
            const auto v =
                static_cast<float>((i * 7 + static_cast<std::size_t>(seed) * 3) % 5) - 2.0F;
            if (type == data_type::f32)
                store(i, v);
            else if (type == data_type::bf16)
                store(i, conv::round_to<bf16>(v));
            else
                store(i, conv::round_to<f16>(v));
        }
    }
    /// For either role.
    [[nodiscard]] tensor view() const {
        return {const_cast<std::byte *>(bytes_.data()), type_, shape_};
    }
    [[nodiscard]] logical_tensor described(std::size_t id) const { return {id, type_, shape_}; }
    [[nodiscard]] const dims &shape() const { return shape_; }
    std::vector<std::byte> &bytes() { return bytes_; }

private:
    template <typename T>
    void store(std::size_t i, T value) {
        std::memcpy(&bytes_[i * sizeof(T)], &value, sizeof(T));
    }

    data_type type_;
    dims shape_;
    std::vector<std::byte> bytes_;
};

/// Channels and strides that lead to each family of algorithms.
struct layer_kind {
    const char *name;
    dim groups, ic, oc, stride;
};
constexpr layer_kind layer_kinds[] = {{"depthwise", 6, 6, 6, 1}, {"narrow", 1, 3, 2, 2},
    {"tiled", 1, 20, 18, 1}, {"grouped", 2, 36, 20, 3}};

/// A layer's tensors, its attributes, and the results of an undisturbed run.
class typed_layer {
public:
    typed_layer(op_kind kind, data_type type, const layer_kind &k)
        : transpose_(kind >= op_kind::conv_transpose), which_((static_cast<int>(kind) - 13) % 3),
          kind_(kind), attrs_{.strides = {k.stride, k.stride},
                           .pads_begin = {1, 0},
                           .pads_end = {1, 0},
                           .groups = k.groups},
          large_(type, {2, 7, 8, transpose_ ? k.oc : k.ic}, 1),
          small_(type,
              {2, (7 + 2 - 2) / k.stride + 1, (8 - 2) / k.stride + 1, transpose_ ? k.ic : k.oc}, 2),
          weights_(type,
              transpose_ ? dims{2, 2, k.oc / k.groups, k.ic} : dims{2, 2, k.ic / k.groups, k.oc},
              3),
          bias_(type, {k.oc}, 4) {
        // A transposed layer's longer side follows from the shorter one.
        if (transpose_) {
            attributes longer = attrs_;
            large_ = typed_buffer(type,
                infer_shape(op_kind::conv_transpose, small_.shape(), weights_.shape(), longer), 1);
        }
    }

    [[nodiscard]] tensor src() const { return (transpose_ ? small_ : large_).view(); }
    [[nodiscard]] tensor dst() const { return (transpose_ ? large_ : small_).view(); }
    [[nodiscard]] tensor weights() const { return weights_.view(); }
    [[nodiscard]] tensor input(int i) const {
        if (i == 0) return which_ == 1 ? dst() : src();
        return which_ == 2 ? dst() : weights();
    }
    [[nodiscard]] typed_buffer output() const {
        typed_buffer out = which_ == 0   ? (transpose_ ? large_ : small_)
                           : which_ == 1 ? (transpose_ ? small_ : large_)
                                         : weights_;
        std::ranges::fill(out.bytes(), std::byte{0xff});
        return out;
    }
    [[nodiscard]] tensor bias() const { return which_ == 0 ? bias_.view() : tensor{}; }
    [[nodiscard]] const attributes &attrs() const { return attrs_; }
    [[nodiscard]] op_kind kind() const { return kind_; }
    [[nodiscard]] data_type type() const { return large_.view().type; }

private:
    bool transpose_;
    int which_;
    op_kind kind_;
    attributes attrs_;
    typed_buffer large_, small_, weights_, bias_;
};

// Without memory for it constant weights are used as they are.
TEST(allocation_failure_of_constants, executions_do_without) {
    const buffer src({1, 5, 6, 32}, 1), weights({3, 3, 32, 32}, 2);
    const buffer expected({1, 5, 6, 32}, 3);
    const attributes attrs{.pads_begin = {1, 1}, .pads_end = {1, 1}};
    const engine on(engine_options{.threads = 1});
    const stream queue(on);
    logical_tensor w = weights.described(1);
    w.is_constant = true;
    const compiled_partition compiled = compile(
        op_kind::convolution, {src.described(0), w}, {expected.described(2)}, attrs, {.on = &on});
    const std::vector<const_tensor> inputs = {src.view(), weights.view()};
    compiled.execute(queue, inputs, {expected.view()});
    ASSERT_NE(compiled.constants_size(), 0U);
    compiled.forget_constants();
    struct state {
        buffer out;
        std::vector<tensor> outputs;
        const compiled_partition &forgets;
        ~state() { forgets.forget_constants(); }
    };
    int without = 0;
    fail_each(
        [&] {
            auto made = std::make_unique<state>(
                state{buffer::filled(expected.shape(), 99.0F), {}, compiled});
            made->outputs = {made->out.view()};
            return made;
        },
        [&](const std::unique_ptr<state> &s) {
            compiled.execute(queue, inputs, s->outputs);
            without += compiled.constants_size() == 0 ? 1 : 0;
        },
        [&](const std::unique_ptr<state> &s) { return s->out.values() == expected.values(); });
    EXPECT_GT(without, 0);
}

class allocation_failure : public testing::TestWithParam<op_kind> {
protected:
    /// Every type, kind of layer and instruction set; also with several threads, where those
    /// matter.
    template <typename Body>
    void for_each_layer(Body &&body) {
        for (const isa set : usable_isas())
            for (const int threads : {1, 3}) {
                if (threads > 1 && set != isa::portable && set != detected_isa()) continue;
                const engine on(engine_options{.threads = threads, .max_isa = set});
                for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
                    for (const layer_kind &k : layer_kinds) {
                        SCOPED_TRACE(testing::Message()
                                     << to_string(set) << ' ' << threads << " threads "
                                     << to_string(type) << ' ' << k.name);
                        body(typed_layer(GetParam(), type, k), on);
                        if (HasFailure()) return;
                    }
            }
    }
};

/// An output and the tensors of an eager call, whose shapes the caller owns.
struct eager_state {
    tensor in0, in1, bias;
    typed_buffer out;
    tensor out_view = out.view();
};

TEST_P(allocation_failure, eager) {
    int failures = 0;
    for_each_layer([&](const typed_layer &l, const engine &on) {
        typed_buffer expected = l.output();
        const options opts{.on = &on};
        const auto prepare = [&] {
            return eager_state{l.input(0), l.input(1), l.bias(), l.output()};
        };
        const auto run = [&](eager_state &s) {
            call_eager(l.kind(), s.in0, s.in1, s.bias, s.out_view, l.attrs(), opts);
        };
        eager_state first = prepare();
        run(first);
        failures += fail_each(
            prepare, run, [&](eager_state &s) { return s.out.bytes() == first.out.bytes(); });
    });
    RecordProperty("failures", failures);
    EXPECT_GT(failures, 1000);
}

TEST_P(allocation_failure, compile_and_execute) {
    int failures = 0;
    for_each_layer([&](const typed_layer &l, const engine &on) {
        const compile_options opts{.on = &on};
        struct state {
            std::vector<tensor> ins;
            std::vector<logical_tensor> described_ins, described_outs;
            typed_buffer out;
            std::vector<tensor> outs = {out.view()};
        };
        const auto prepare = [&] {
            state s{{l.input(0), l.input(1)}, {}, {}, l.output()};
            for (std::size_t i = 0; i < 2; ++i)
                s.described_ins.emplace_back(i, l.type(), s.ins[i].shape);
            s.described_outs.push_back(s.out.described(2));
            return s;
        };
        const auto run = [&](state &s) {
            const compiled_partition c =
                compile(l.kind(), s.described_ins, s.described_outs, l.attrs(), opts);
            c.execute(stream(on), s.ins, s.outs);
            if (c.describe().empty()) throw std::logic_error("no description");
        };
        state first = prepare();
        run(first);
        failures +=
            fail_each(prepare, run, [&](state &s) { return s.out.bytes() == first.out.bytes(); });
    });
    RecordProperty("failures", failures);
    EXPECT_GT(failures, 1000);
}

INSTANTIATE_TEST_SUITE_P(all, allocation_failure, testing::ValuesIn(convolution_op_kinds),
    [](const auto &about) { return std::string(to_string(about.param)); });

/// Two gradients of one layer, as graphs join them.
struct graph_state {
    layer l;
    op data = padded(1, op_kind::convolution_backward_data, "a name too long for small strings");
    op weights = padded(2, op_kind::convolution_backward_weights);
    buffer diff_src{l.src.shape()}, diff_weights{l.weights.shape()};
    std::vector<tensor> ins = {l.diff_dst.view(), l.weights.view(), l.src.view()};
    std::vector<tensor> outs = {diff_src.view(), diff_weights.view()};

    graph_state() {
        data.add_input(l.diff_dst.described(0)).add_input(l.weights.described(1));
        data.add_output(f32(3));
        weights.add_input(l.src.described(2)).add_input(l.diff_dst.described(0));
        weights.add_output(l.weights.described(4));
        data.set("output_padding", dims{0, 0});
        data.add_input(logical_tensor::constant(5, l.src.shape()));
        ins.insert(ins.begin() + 2, tensor());
    }
    [[nodiscard]] bool right() const {
        return diff_src.values() == l.diff_src() && diff_weights.values() == l.diff_weights();
    }
};

TEST(allocation_failure_of, graphs) {
    const std::int32_t shape[] = {2, 5, 5, 3};
    for (const int threads : {1, 2}) {
        const engine on(engine_options{.threads = threads});
        const auto run = [&](graph_state &s) {
            graph g;
            g.add(s.data).add(s.weights);
            g.finalize();
            const std::vector<partition> parts = g.partitions();
            if (parts.size() != 1 || parts[0].ops().size() != 2) throw std::logic_error("parts");
            const compiled_partition c = parts[0].compile(on);
            s.ins[2].data = const_cast<std::int32_t *>(shape);
            c.execute(stream(on), s.ins, s.outs);
        };
        const int failures = fail_each(
            [&] {
                graph_state s;
                s.ins[2].type = data_type::s32;
                s.ins[2].shape = {4};
                return s;
            },
            run, [](graph_state &s) { return s.right(); });
        EXPECT_GT(failures, 50);
    }
}

TEST(allocation_failure_of, joint_gradients) {
    for (const int threads : {1, 2}) {
        const engine on(engine_options{.threads = threads});
        const layer l;
        const std::vector<float> diff_src = l.diff_src(), diff_weights = l.diff_weights();
        struct state {
            buffer diff_src, diff_weights;
            tensor src, diff_dst, weights, to_src, to_weights;
        };
        const auto prepare = [&] {
            state s{buffer(l.src.shape()), buffer(l.weights.shape()), l.src.view(),
                l.diff_dst.view(), l.weights.view(), {}, {}};
            s.to_src = s.diff_src.view();
            s.to_weights = s.diff_weights.view();
            return s;
        };
        const int failures = fail_each(
            prepare,
            [&](state &s) {
                convolution_backward(
                    s.src, s.diff_dst, s.weights, s.to_src, s.to_weights, l.attrs, {.on = &on});
            },
            [&](state &s) {
                return s.diff_src.values() == diff_src && s.diff_weights.values() == diff_weights;
            });
        EXPECT_GT(failures, 20);
    }
}

/// How many allocations of a layer's gradients, all three as one partition, could fail; whatever
/// fails, the next run has the results of the first.
int fail_gradients(const dims &shape, const dims &result, const dims &filter,
    const attributes &attrs, int threads) {
    const engine on(engine_options{.threads = threads});
    const buffer src(shape, 1), diff_dst(result, 2), weights(filter, 3);
    const dims channels{attrs.groups};
    const compiled_partition c = compile_backward(op_kind::convolution,
        {src.described(0), diff_dst.described(1), weights.described(2)},
        {src.described(3), weights.described(4), f32(5, channels)}, attrs, {.on = &on});
    const std::vector<tensor> ins = {src.view(), diff_dst.view(), weights.view()};
    struct state {
        buffer diff_src, diff_weights, diff_bias;
        std::vector<tensor> outs = {diff_src.view(), diff_weights.view(), diff_bias.view()};
    };
    const auto prepare = [&] { return state{buffer(shape), buffer(filter), buffer(channels)}; };
    const auto run = [&](state &s) { c.execute(stream(on), ins, s.outs); };
    state first = prepare();
    run(first);
    return fail_each(prepare, run, [&](state &s) {
        return s.diff_src.values() == first.diff_src.values()
               && s.diff_weights.values() == first.diff_weights.values()
               && s.diff_bias.values() == first.diff_bias.values();
    });
}

// Tensors beyond caches: one pass for both gradients and the bias gradient.
TEST(allocation_failure_of, joint_passes) {
    for (const std::string_view format : {"NXC", "NCX"})
        for (const int threads : {1, 3}) {
            const bool last = format == "NXC";
            // Planes of more channels would be turned, each gradient by itself.
            const std::int64_t channels = last ? 64 : 3;
            const dims shape = last ? dims{8, 56, 56, channels} : dims{43, channels, 112, 112};
            const dims filter = last ? dims{3, 3, 1, channels} : dims{channels, 1, 3, 3};
            const attributes attrs{.pads_begin = {1, 1},
                .pads_end = {1, 1},
                .groups = channels,
                .data_format = format,
                .weights_format = last ? "XIO" : "OIX"};
            EXPECT_GT(fail_gradients(shape, shape, filter, attrs, threads), 3);
        }
}

// Drivers inside the tasks of another: workers must not run out of memory. With a stride beyond the
// filter, some of diff_src is reached by no tap.
TEST(allocation_failure_of, turned_planes) {
    for (const std::int64_t stride : {1, 4})
        for (const int threads : {1, 3}) {
            const dims shape{8, 70, 9, 9}, result{8, 70, stride == 1 ? 9 : 3, stride == 1 ? 9 : 3};
            const attributes attrs{.strides = {stride, stride},
                .pads_begin = {1, 1},
                .pads_end = {1, 1},
                .groups = 70,
                .data_format = "NCX",
                .weights_format = "OIX"};
            EXPECT_GT(fail_gradients(shape, result, {70, 1, 3, 3}, attrs, threads), 0);
        }
}

// Large workspaces come straight from the kernel.
TEST(allocation_failure_of, large_workspaces) {
    const engine on(engine_options{.threads = 4});
    const buffer src({2, 28, 28, 64}, 1), diff_dst({2, 28, 28, 64}, 2);
    const attributes attrs{.pads_begin = {1, 1}, .pads_end = {1, 1}};
    const compiled_partition c = compile(op_kind::convolution_backward_weights,
        {src.described(0), diff_dst.described(1)}, {f32(2, {3, 3, 64, 64})}, attrs, {.on = &on});
    ASSERT_GT(c.workspace_size(), std::size_t{256} << 10);
    const std::vector<tensor> ins = {src.view(), diff_dst.view()};
    struct state {
        buffer out{{3, 3, 64, 64}};
        std::vector<tensor> outs = {out.view()};
    };
    const auto run = [&](state &s) { c.execute(stream(on), ins, s.outs); };
    state first;
    run(first);
    EXPECT_GT(fail_each([] { return state(); }, run,
                  [&](state &s) { return s.out.values() == first.out.values(); }),
        1);
}

TEST(allocation_failure_of, ops_and_questions) {
    struct state {
        dims strides = {1, 1}, src = {2, 5, 5, 3}, weights = {3, 3, 3, 4}, none, kernel = {3, 3};
        attribute_value groups = std::string("a value too long for small strings");
        logical_tensor in = f32(1, {2, 5, 5, 3}), out = f32(2, {2, 5, 5, 3});
        attributes attrs{.pads_begin = {1, 1}, .pads_end = {1, 1}};
        dims shape;
        std::size_t set = 0;
    };
    const int failures = fail_each([] { return state(); },
        [](state &s) {
            op node(1, "Convolution");
            node.set("strides", std::move(s.strides)).set("any_name", std::move(s.groups));
            node.set("data_format", "another value too long for small strings");
            node.add_input(std::move(s.in)).add_output(std::move(s.out));
            s.set = node.attributes().size() + node.inputs().size() + node.outputs().size();
            s.shape = infer_shape(op_kind::convolution, s.src, s.weights, s.attrs);
            if (resolve_pads(op_kind::convolution, s.src, s.none, s.kernel, s.attrs).begin
                != s.attrs.pads_begin)
                s.set = 0;
        },
        [](state &s) {
            return s.set == 5 && s.shape == dims{2, 5, 5, 4};
        });
    EXPECT_GT(failures, 10);
}

// Refusals allocate their messages: without memory for one, the code is out_of_memory.
TEST(allocation_failure_of, refusals) {
    for (const mode how : modes)
        for (long k = 0;; ++k) {
            injector::arm(k, how);
            error_code code{};
            std::string_view what;
            try {
                const op node(1, "Convolutoin");
            } catch (const error &e) {
                code = e.code();
                what = e.what();
                const long requests = injector::disarm();
                EXPECT_FALSE(what.empty());
                if (requests <= k) break;
            }
            injector::disarm();
            ASSERT_TRUE(code == error_code::out_of_memory || how == mode::once) << k;
        }
    expect_error(error_code::invalid_op, {"did you mean Convolution?"},
        [] { const op node(1, "Convolutoin"); });
}

TEST(allocation_failure_of, engines) {
    const engine warm(engine_options{.threads = 7});
    EXPECT_GT(fail_each([] { return std::optional<engine>(); },
                  [](std::optional<engine> &e) { e.emplace(engine_options{.threads = 6}); },
                  [](std::optional<engine> &e) { return e->threads() == 6; }),
        2);
}

// ---- Threads ----

TEST(allocation_failure_of, thread_start) {
    // Workers that cannot be had are done without.
    for (const mode how : modes)
        for (long k = 0;; ++k) {
            cpu::pool pool(4);
            const cpu::executor on(&pool, 4);
            std::atomic<int> bodies{0};
            const outcome seen = attempt(k, how, [&] { on.run(9, [&](int) { ++bodies; }); });
            EXPECT_FALSE(seen.failed);
            EXPECT_EQ(bodies, 9);
            // Now there is memory: all four threads run at the same time.
            std::atomic<int> arrived{0};
            on.run(4, [&](int) {
                ++arrived;
                while (arrived < 4) std::this_thread::yield();
            });
            EXPECT_EQ(arrived, 4);
            if (HasFailure() || seen.requests <= k) break;
        }
}

/// In a child, so that each attempt is the first thing that the library does in its process: what a
/// child exits with.
int first_use_in_child(long k, mode how) {
    const pid_t child = fork();
    if (child != 0) {
        int status = -1;
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    }
    const buffer src({2, 5, 5, 3}), weights({3, 3, 3, 4});
    buffer out({2, 5, 5, 4}), again({2, 5, 5, 4});
    const tensor in0 = src.view(), in1 = weights.view(), none, to = out.view();
    const attributes attrs{.pads_begin = {1, 1}, .pads_end = {1, 1}};
    setenv("CONVGRAD_NUM_THREADS", "3", 1);
    const outcome seen = attempt(k, how, [&] { convolution(in0, in1, none, to, attrs); });
    convolution(in0, in1, none, again.view(), attrs);
    if (testing::Test::HasFailure() || default_engine().threads() != 3) _exit(3);
    if (!seen.failed && out.values() != again.values()) _exit(4);
    _exit(seen.requests <= k ? 1 : 0);
}

TEST(allocation_failure_of, first_use) {
    if (testing::UnitTest::GetInstance()->test_to_run_count() > 1)
        GTEST_SKIP() << "needs a process that did not use the library yet, as ctest gives it";
    for (const mode how : modes) {
        long k = 0;
        int status = 0;
        while ((status = first_use_in_child(k, how)) == 0) ++k;
        EXPECT_EQ(status, 1) << "request " << k;
        EXPECT_GT(k, 20);
    }
}

}  // namespace
}  // namespace convgrad::test
