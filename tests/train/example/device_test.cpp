// Training with convolutions on a device whose memory the host must not touch.
#include <cmath>
#include <map>
#include <memory>

#include <gtest/gtest.h>

#include "support/late_backend.hpp"
#include "train/trainer.hpp"

using namespace convgrad;
using namespace convgrad::train;

namespace {

/// The memory of the tests' asynchronous engine. Its clock says a thousandth for everything.
class late_device final : public device {
public:
    [[nodiscard]] void *allocate(std::size_t bytes) override {
        auto made = std::make_unique<test::device_memory>(bytes);
        void *const data = made->data();
        memory_.emplace(data, std::move(made));
        return data;
    }
    void release(void *memory) noexcept override { memory_.erase(memory); }
    void copy_in(void *to, const void *from, std::size_t bytes) override {
        memory_.at(to)->copy_in(from, bytes);
    }
    void copy_out(void *to, const void *from, std::size_t bytes) override {
        memory_.at(const_cast<void *>(from))->copy_out(to, bytes);
    }
    double run(const stream &on, const std::function<void()> &work) override {
        work();
        on.wait();
        return 0.001;
    }
    [[nodiscard]] std::size_t held() const { return memory_.size(); }

private:
    std::map<void *, std::unique_ptr<test::device_memory>> memory_;
};

dataset some_digits(std::size_t training, std::size_t tested) {
    dataset d = embedded_digits();
    d.training.labels.resize(training);
    d.training.pixels.resize(training * 64);
    d.test.labels.resize(tested);
    d.test.pixels.resize(tested * 64);
    return d;
}

TEST(train_device, losses_are_those_of_the_host_but_for_rounding) {
    const dataset data = some_digits(32, 16);
    for (const model_kind model : {model_kind::classifier, model_kind::autoencoder})
        for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16}) {
            const settings chosen{model, type, 1, 1, 16};
            trainer here(chosen, data, engine());
            here.run_epoch({});
            EXPECT_EQ(here.transfers().bytes, 0);

            late_device device;
            {
                trainer there(chosen, data, {test::late_engine(), &device});
                there.run_epoch({});
                const double bound = type == data_type::f32 ? 1e-4 : 0.05;
                for (std::size_t i = 0; i < 2; ++i) {
                    const auto expected = static_cast<double>(here.step_losses()[i]);
                    EXPECT_NEAR(
                        static_cast<double>(there.step_losses()[i]), expected, bound * expected)
                        << to_string(model) << ' ' << to_string(type) << ", step " << i;
                }
                EXPECT_GT(device.held(), 0U);
                // Forward and weights gradient of each layer in each of two steps.
                for (const op_time &t : there.op_times()) {
                    EXPECT_EQ(t.calls, 2);
                    EXPECT_DOUBLE_EQ(t.seconds, 0.002);
                    EXPECT_DOUBLE_EQ(t.fastest, 0.001);
                }
            }
            EXPECT_EQ(device.held(), 0U);  // all was given back
        }
}

// Every tensor travels once in each step: src, weights and diff_dst to the device, dst and the
// gradients back. Evaluation does not count.
TEST(train_device, copies_are_counted_in_training_steps_alone) {
    double bytes[2];
    for (const std::size_t tested : {16U, 32U}) {
        const dataset data = some_digits(16, tested);
        late_device device;
        trainer there({model_kind::autoencoder, data_type::f32, 1, 1, 16}, data,
            {test::late_engine(), &device});
        there.run_epoch({});
        bytes[tested / 32] = there.transfers().bytes;
    }
    EXPECT_EQ(bytes[0], bytes[1]);
    // Pixels and channels between the layers of the autoencoder, for 16 images of 8 × 8.
    constexpr double planes[] = {64 * 1, 16 * 32, 4 * 64, 4 * 4, 4 * 64, 16 * 64, 64 * 32, 64 * 1};
    constexpr double weights[] = {
        9 * 32, 9 * 32 * 64, 64 * 4 + 4, 9 * 4 * 64, 16 * 64 * 64, 16 * 64 * 32, 9 * 32 + 1};
    double expected = 0;
    for (std::size_t i = 0; i < 7; ++i) {
        expected += 16 * (planes[i] * (i == 0 ? 1 : 2) + 2 * planes[i + 1]);  // values, gradients
        expected += 2 * weights[i];
    }
    EXPECT_EQ(bytes[0], 4 * expected);
}

/// Has no memory from the third tensor on.
class full_device final : public device {
public:
    [[nodiscard]] void *allocate(std::size_t bytes) override {
        if (++taken_ > 2) throw error(error_code::out_of_memory, "the device is full");
        return ::operator new(bytes);
    }
    void release(void *memory) noexcept override {
        ++released_;
        ::operator delete(memory);
    }
    void copy_in(void *, const void *, std::size_t) override {}
    void copy_out(void *, const void *, std::size_t) override {}
    double run(const stream &, const std::function<void()> &) override { return 0; }
    [[nodiscard]] int released() const { return released_; }

private:
    int taken_ = 0, released_ = 0;
};

TEST(train_device, a_full_device_is_told_and_nothing_is_lost) {
    const dataset data = some_digits(16, 16);
    full_device device;
    {
        trainer there({model_kind::classifier, data_type::f32, 1, 1, 16}, data,
            {test::late_engine(), &device});
        try {
            there.run_epoch({});
            FAIL();
        } catch (const error &e) {
            EXPECT_EQ(e.code(), error_code::out_of_memory);
        }
    }
    EXPECT_EQ(device.released(), 2);
}

}  // namespace
