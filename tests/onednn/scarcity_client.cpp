// A client whose memory runs out, for oneDNN alone and with the drop-in in front: prints what
// becomes of a few graphs when the n-th request to the client's allocator gets nothing or throws,
// and when the process may have no more memory. scarcity.sh says what is expected.
//
//   convolution null 0: compile 0 execute 1 again (compile 0 execute 0) held 0
//
// Statuses are oneDNN's; "thrown" is the allocator's own exception. Each line is made by a process
// of its own, since oneDNN may not survive it.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.hpp"

namespace convgrad::test {
namespace {

/// The client's allocator, of which request `fails` fails.
struct scarce {
    static inline long requests = 0, fails = -1, held = 0;
    static inline bool throws = false;

    static void *allocate(std::size_t size, std::size_t alignment) {
        if (requests++ == fails) {
            if (throws) throw std::length_error("the client has no memory for this");
            return nullptr;
        }
        const std::size_t unit = std::max<std::size_t>(alignment, 64);
        ++held;
        return std::aligned_alloc(unit, (size + unit) / unit * unit);
    }
    static void deallocate(void *memory) {
        if (memory == nullptr) return;
        --held;
        std::free(memory);
    }
};

/// A graph of one partition.
struct subject {
    const char *name;
    std::vector<dg::op> ops;
    std::vector<operand> inputs;
    operand output;
};

dg::op make(
    std::size_t id, dg::op::kind what, const std::vector<const operand *> &in, const operand &out) {
    dg::op op(id, what, "op" + std::to_string(id));
    for (const operand *o : in) op.add_input(o->described());
    op.add_output(out.described());
    return op;
}

subject matmul() {
    const operand a(0, data_type::f32, {64, 96}), b(1, data_type::f32, {96, 80}),
        c(2, data_type::f32, {64, 80});
    return {"matmul", {make(10, dg::op::kind::MatMul, {&a, &b}, c)}, {a, b}, c};
}

subject softmax() {
    const operand a(0, data_type::f32, {64, 96}), b(1, data_type::f32, {64, 96});
    dg::op op = make(10, dg::op::kind::SoftMax, {&a}, b);
    op.set_attr<std::int64_t>(dg::op::attr::axis, 1);
    return {"softmax", {op}, {a}, b};
}

subject convolution(const char *name, data_type type, bool sigmoid) {
    layer l = make_layer(false, 2, "NCX", "OIX", 1, "None");
    const operand src(0, type, l.src), weights(1, type, l.weights), sum(2, type, l.dst),
        dst(3, type, l.dst);
    dg::op op = make_op(10, op_kind::convolution, l.attrs);
    op.set_attr<std::string>(dg::op::attr::auto_pad, "None");  // as oneDNN spells it
    op.add_inputs({src.described(), weights.described()});
    op.add_output((sigmoid ? sum : dst).described());
    std::vector<dg::op> ops = {op};
    if (sigmoid) ops.push_back(make(11, dg::op::kind::Sigmoid, {&sum}, dst));
    return {name, ops, {src, weights}, dst};
}

/// "0", "1", "thrown": what a call ends with.
std::string outcome(const std::function<void()> &call) {
    try {
        return std::to_string(status_of(call));
    } catch (const std::length_error &) {
        return "thrown";
    } catch (const std::bad_alloc &) {
        return "bad_alloc";
    }
}

std::string compile_and_execute(
    const dg::partition &partition, subject &s, const dnnl::engine &engine) {
    std::vector<dg::logical_tensor> described;
    for (const operand &o : s.inputs) described.push_back(o.described());
    dg::compiled_partition compiled;
    const std::string made =
        outcome([&] { compiled = partition.compile(described, {s.output.described()}, engine); });
    if (made != "0") return "compile " + made;
    std::vector<dg::tensor> tensors;
    for (operand &o : s.inputs) tensors.push_back(o.on(engine));
    dnnl::stream stream(engine);
    return "compile 0 execute " + outcome([&] {
        compiled.execute(stream, tensors, {s.output.on(engine)});
        stream.wait();
    });
}

/// One line. 3: there was no such request.
int try_without(subject s, long request, bool throws) {
    std::string line;
    {
        const dg::partition partition = partitions_of(s.ops).at(0);
        const dnnl::engine engine = dg::make_engine_with_allocator(
            dnnl::engine::kind::cpu, 0, {scarce::allocate, scarce::deallocate});
        scarce::throws = throws;
        scarce::fails = request;
        line = compile_and_execute(partition, s, engine);
        if (scarce::requests <= request) return 3;
        scarce::fails = -1;
        line += " again (" + compile_and_execute(partition, s, engine) + ")";
    }
    std::printf("%s %s %ld: %s held %ld\n", s.name, throws ? "throw" : "null", request,
        line.c_str(), scarce::held);
    return 0;
}

/// What the process has now, and `more` bytes.
void limit_memory(std::size_t more) {
    long pages = 0;
    if (std::FILE *file = std::fopen("/proc/self/statm", "r")) {
        if (std::fscanf(file, "%ld", &pages) != 1) pages = 0;
        std::fclose(file);
    }
    const rlim_t bytes = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE)) + more;
    const rlimit limit = {bytes, bytes};
    setrlimit(RLIMIT_AS, &limit);
}

/// A tensor that the process may not have, then work as ever.
int try_large(subject s) {
    const dg::partition partition = partitions_of(s.ops).at(0);
    const dnnl::engine engine = cpu_engine();
    compile_and_execute(partition, s, engine);  // threads and code are there
    limit_memory(std::size_t{256} << 20);
    const dg::logical_tensor large(7, lt_type::f32, {1 << 10, 1 << 20}, lt_layout::strided);
    const std::string made = outcome([&] { const dg::tensor tensor(large, engine); });
    std::printf("%s limit: tensor %s again (%s)\n", s.name, made.c_str(),
        compile_and_execute(partition, s, engine).c_str());
    return 0;
}

/// The exit status, or minus the signal.
int in_child(const std::function<int()> &work) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const int code = work();
        std::fflush(stdout);
        _exit(code);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void try_all(const subject &s) {
    for (const bool throws : {false, true})
        for (long request = 0; request < 32; ++request) {
            const int code = in_child([&] { return try_without(s, request, throws); });
            if (code == 3) break;
            if (code != 0)
                std::printf(
                    "%s %s %ld: ends with %d\n", s.name, throws ? "throw" : "null", request, code);
        }
    if (const int code = in_child([&] { return try_large(s); }); code != 0)
        std::printf("%s limit: ends with %d\n", s.name, code);
}

}  // namespace
}  // namespace convgrad::test

int main() {
    using namespace convgrad::test;
    using convgrad::data_type;
    // Ops are oneDNN's objects, made where threads are not yet: that asks nothing of a process.
    try_all(matmul());
    try_all(softmax());
    try_all(convolution("convolution", data_type::f32, false));
    try_all(convolution("convolution_bf16", data_type::bf16, false));
    try_all(convolution("convolution_sigmoid", data_type::f32, true));
}
