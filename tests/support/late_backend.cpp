#include "support/late_backend.hpp"

#include <cstring>
#include <map>
#include <stdexcept>
#include <thread>

#include <sys/mman.h>
#include <unistd.h>

#include <convgrad/error.hpp>

#include "tools/reference.hpp"

namespace convgrad::test {
namespace {

/// What scratch is full of.
constexpr unsigned char fresh = 0xff, in_use = 0x22, used = 0x11;

/// All memory of the device, by address.
std::map<std::byte *, std::size_t> regions;

std::size_t whole_pages(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return (bytes + page) / page * page;
}

/// The device's access to its memory.
struct access {
    access() { protect(PROT_READ | PROT_WRITE); }
    ~access() { protect(PROT_NONE); }
    access(const access &) = delete;
    access &operator=(const access &) = delete;
    static void protect(int how) {
        for (const auto &[start, bytes] : regions) mprotect(start, bytes, how);
    }
};

class late_plan final : public engines::plan {
public:
    late_plan(const conv::problem &p, std::size_t workspace) : problem_(p) {
        facts_.algorithm = "late.loops";
        facts_.uses = "late";
        facts_.workspace = workspace;
    }
    [[nodiscard]] std::string describe() const override { return "one element at a time"; }
    void execute(
        std::span<const conv::buffers> data, void *workspace, engines::lane &on) const override {
        const std::size_t bytes = facts().workspace;
        // Everything by value: neither the plan nor its arguments live until this runs.
        static_cast<late_lane &>(on).put(
            "late.loops", [p = problem_, mine = data[0], workspace, bytes] {
                // Full of NaN when it is taken, or as an execution before left it; in use now.
                auto *scratch = static_cast<unsigned char *>(workspace);
                for (std::size_t i = 0; i < bytes; ++i)
                    if (scratch[i] != fresh && scratch[i] != used)
                        throw std::logic_error("scratch is shared");
                std::memset(scratch, in_use, bytes);
                conv::reference(p, mine);
                std::memset(scratch, used, bytes);
            });
    }

private:
    conv::problem problem_;
};

class late_backend final : public engines::backend {
public:
    late_backend(int device, std::size_t workspace)
        : engines::backend({.kind = engine_kind::cuda, .device = device, .alignment = 256}),
          workspace_(workspace) {}

    [[nodiscard]] std::unique_ptr<const engines::plan> make_plan(const conv::problem &p,
        const engines::plan_limits &limits,
        std::vector<engines::verdict> * /*verdicts*/) const override {
        if (workspace_ > limits.workspace)
            throw error(error_code::out_of_memory, "the workspace limit is too small");
        return std::make_unique<late_plan>(p, workspace_);
    }
    [[nodiscard]] std::unique_ptr<const engines::plan> join(const engines::plan & /*data*/,
        const engines::plan & /*weights*/, const engines::plan_limits & /*limits*/) const override {
        return nullptr;
    }
    [[nodiscard]] bool accepts(const engines::backend &other) const override {
        return other.facts().kind == facts().kind && other.facts().device == facts().device;
    }
    [[nodiscard]] const char *refuse_memory(const void *data) const noexcept override {
        const auto *at = static_cast<const std::byte *>(data);
        for (const auto &[start, bytes] : regions)
            if (at >= start && at < start + bytes) return nullptr;
        return "it is memory of the host";
    }
    [[nodiscard]] std::shared_ptr<engines::lane> open(void *native) const override {
        auto made = std::make_shared<late_lane>();
        made->native = native;
        return made;
    }
    [[nodiscard]] std::string name() const override {
        return "late device " + std::to_string(facts().device);
    }

private:
    std::size_t workspace_;
};

}  // namespace

device_memory::device_memory(std::size_t bytes) : bytes_(whole_pages(bytes)) {
    data_ = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
    regions.emplace(static_cast<std::byte *>(data_), bytes_);
}

device_memory::~device_memory() {
    regions.erase(static_cast<std::byte *>(data_));
    munmap(data_, bytes_);
}

void device_memory::copy_in(const void *from, std::size_t bytes) {
    const access open;
    std::memcpy(data_, from, bytes);
}

void device_memory::copy_out(void *to, std::size_t bytes) const {
    const access open;
    std::memcpy(to, data_, bytes);
}

late_lane::~late_lane() {
    for (const device_memory *m : scratch_) delete m;
}

void late_lane::put(std::string name, std::function<void()> work) {
    if (!name.empty() && left_-- <= 0)
        throw error(error_code::device_failure, "late device: launching " + name + ": refused");
    queue_.push_back({std::move(name), std::move(work)});
}

void late_lane::run() {
    std::thread device([&] {
        for (; !queue_.empty(); queue_.pop_front()) {
            if (!failure_.empty()) continue;
            try {
                if (fail_ && !queue_.front().name.empty()) throw std::runtime_error("a fault");
                const access open;
                queue_.front().work();
            } catch (const std::exception &e) {
                failure_ = e.what();
            }
        }
    });
    device.join();
}

void late_lane::check() const {
    if (!failure_.empty())
        throw error(error_code::device_failure,
            "late device: " + failure_ + "; at or after the work of this stream");
}

void late_lane::wait() {
    run();
    check();
}

void *late_lane::take(std::size_t bytes) {
    if (empty_) throw error(error_code::out_of_memory, "late device: taking scratch: none left");
    scratch_.push_back(new device_memory(bytes));
    taken += bytes;
    void *const data = scratch_.back()->data();
    put("", [data, bytes] { std::memset(data, fresh, bytes); });
    return data;
}

void late_lane::give_back(void *scratch, std::size_t bytes) noexcept {
    taken -= bytes;
    put("", [scratch, bytes] { std::memset(scratch, fresh, bytes); });
}

engine late_engine(int device, std::size_t workspace) {
    auto made = std::make_shared<engine::impl>();
    made->backend = std::make_shared<late_backend>(device, workspace);
    made->workspace_limit = std::size_t{1} << 30;
    return engine(std::move(made));
}

late_lane &lane_of(const stream &s) {
    return static_cast<late_lane &>(s.get());
}

}  // namespace convgrad::test
