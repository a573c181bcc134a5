// Stands in for XLA: calls a handler with buffers, and runs its tasks as XLA might.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <xla_abi.hpp>
#include <xla_call.hpp>

#include <convgrad/types.hpp>

namespace convgrad::xla {

/// XLA's error.
struct error {
    error_kind kind;
    std::string message;
};

namespace test {

/// When a task runs that a handler schedules.
enum class scheduling : std::uint8_t { none, refused, at_once, on_threads, late };

/// One runtime per test; its context is its own address.
class fake_runtime {
public:
    fake_runtime(int threads, scheduling how) : threads_(threads), how_(how) {}
    ~fake_runtime() { finish(); }
    fake_runtime(const fake_runtime &) = delete;
    fake_runtime &operator=(const fake_runtime &) = delete;

    /// Ends all threads, and runs what was to run late.
    void finish() {
        for (std::thread &t : running_) t.join();
        running_.clear();
        for (auto &task : late_) task();
        late_.clear();
    }
    [[nodiscard]] int scheduled() const { return scheduled_; }
    [[nodiscard]] int errors_alive() const { return errors_alive_; }
    /// The table without its last function, as old versions have it.
    void forget_thread_count() { table_.struct_size = offsetof(api, thread_count); }

    [[nodiscard]] call_frame frame() {
        call_frame made{};
        made.struct_size = sizeof made;
        made.api = &table_;
        made.context = reinterpret_cast<execution_context *>(this);
        return made;
    }

    std::optional<error> take(error *result) {
        if (result == nullptr) return std::nullopt;
        error copy = *result;
        delete result;
        --errors_alive_;
        return copy;
    }

private:
    static fake_runtime &self(execution_context *context) {
        return *reinterpret_cast<fake_runtime *>(context);
    }
    // Only one runtime makes errors at a time; the table's functions know no context.
    static inline std::atomic<int> errors_alive_ = 0;

    static error *create(error_create_args *args) {
        ++errors_alive_;
        return new error{args->kind, args->message};
    }
    static void destroy(error_destroy_args *args) {
        --errors_alive_;
        delete args->what;
    }
    static error *refusal() {
        ++errors_alive_;
        return new error{error_kind::unimplemented, "no threads"};
    }
    static error *count(thread_count_args *args) {
        if (self(args->context).how_ == scheduling::none) return refusal();
        *args->count = self(args->context).threads_;
        return nullptr;
    }
    static error *schedule(schedule_args *args) {
        fake_runtime &me = self(args->context);
        const auto task = [run = args->task, data = args->data] { run(data); };
        switch (me.how_) {
        case scheduling::none:
        case scheduling::refused:
            return refusal();
        case scheduling::at_once:
            task();
            break;
        case scheduling::on_threads:
            me.running_.emplace_back(task);
            break;
        case scheduling::late:
            me.late_.emplace_back(task);
            break;
        }
        ++me.scheduled_;
        return nullptr;
    }

    api make_table() {
        api made{};
        made.struct_size = sizeof made;
        made.api_version = {sizeof(version), nullptr, major_version, newest_minor_version};
        made.error_create = create;
        made.error_destroy = destroy;
        made.schedule = schedule;
        made.thread_count = count;
        return made;
    }

    int threads_;
    scheduling how_;
    int scheduled_ = 0;
    api table_ = make_table();
    std::vector<std::thread> running_;
    std::deque<std::function<void()>> late_;
};

/// A custom call in the making.
class custom_call {
public:
    using attribute = std::variant<dim, dims, std::string>;

    void input(element_type type, const void *data, dims shape) {
        add(inputs_, type, const_cast<void *>(data), std::move(shape));
    }
    void output(element_type type, void *data, dims shape) {
        add(outputs_, type, data, std::move(shape));
    }
    void set(std::string name, attribute value) {
        attributes_.emplace_back(std::move(name), std::move(value));
    }

    std::optional<error> run(fake_runtime &on, std::string_view name) {
        call_frame frame = on.frame();
        std::vector<void *> in = pointers(inputs_), out = pointers(outputs_), values;
        frame.arguments = {sizeof(value_list), nullptr, std::ssize(in), nullptr, in.data()};
        frame.results = {sizeof(value_list), nullptr, std::ssize(out), nullptr, out.data()};
        encode();
        for (span &n : names_) name_pointers_.push_back(&n);
        for (auto &v : encoded_) values.push_back(address(v));
        frame.attributes = {sizeof(attribute_list), nullptr, std::ssize(values), types_.data(),
            name_pointers_.data(), values.data()};
        for (const target &t : all_targets())
            if (name == t.name) return on.take(t.call(&frame));
        return error{error_kind::internal, "no such target"};
    }

private:
    struct described_buffer {
        dims shape;
        buffer as_xla;
    };
    using list = std::vector<std::unique_ptr<described_buffer>>;
    using encoded = std::variant<scalar, array, span>;

    static void add(list &to, element_type type, void *data, dims shape) {
        auto made = std::make_unique<described_buffer>();
        made->shape = std::move(shape);
        made->as_xla = {
            sizeof(buffer), nullptr, type, data, std::ssize(made->shape), made->shape.data()};
        to.push_back(std::move(made));
    }
    static std::vector<void *> pointers(const list &of) {
        std::vector<void *> made;
        for (const auto &b : of) made.push_back(&b->as_xla);
        return made;
    }
    static void *address(encoded &of) {
        return std::visit([](auto &v) { return static_cast<void *>(&v); }, of);
    }
    void encode() {
        for (auto &[name, value] : attributes_) {
            names_.push_back({name.data(), name.size()});
            if (auto *number = std::get_if<dim>(&value)) {
                types_.push_back(attribute_type::scalar);
                encoded_.emplace_back(scalar{element_type::s64, number});
            } else if (auto *numbers = std::get_if<dims>(&value)) {
                types_.push_back(attribute_type::array);
                encoded_.emplace_back(array{element_type::s64, numbers->size(), numbers->data()});
            } else {
                auto &text = std::get<std::string>(value);
                types_.push_back(attribute_type::string);
                encoded_.emplace_back(span{text.data(), text.size()});
            }
        }
    }

    list inputs_, outputs_;
    std::deque<std::pair<std::string, attribute>> attributes_;
    std::vector<attribute_type> types_;
    std::vector<span> names_;
    std::vector<span *> name_pointers_;
    std::vector<encoded> encoded_;
};

}  // namespace test
}  // namespace convgrad::xla
