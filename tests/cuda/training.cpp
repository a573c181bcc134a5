// Training with convolutions on the GPU, as `convgrad train --engine cuda` does it.
#include <cmath>

#include "cuda/machine.hpp"
#include "train/trainer.hpp"
#include "train_device.hpp"

namespace convgrad::test {
namespace {

using train::model_kind;
using train::trainer;

/// Enough to learn something within a second.
const train::dataset &few_digits() {
    static const train::dataset data = [] {
        train::dataset d = train::embedded_digits();
        d.training.labels.resize(640);
        d.training.pixels.resize(640 * 64);
        return d;
    }();
    return data;
}

struct outcome {
    std::vector<float> losses;
    train::score test;
    std::uint64_t weights;
};

outcome train_on(const train::settings &chosen, const engine_options &where) {
    const engine on(where);
    std::optional<cli::gpu_device> gpu;
    if (on.kind() == engine_kind::cuda) gpu.emplace(on);
    trainer t(chosen, few_digits(), {on, gpu ? &*gpu : nullptr});
    while (!t.finished()) t.run_epoch({});
    EXPECT_EQ(t.transfers().bytes > 0, gpu.has_value());
    for (const train::op_time &op : t.op_times()) EXPECT_GT(op.seconds, 0) << op.layer;
    return {t.step_losses(), t.history().back().test, t.weights_fingerprint()};
}

// The first steps lose the same but for rounding; later ones amplify it (the optimiser divides by
// the gradient's size), so that only what was learnt is compared there.
TEST(cuda_train, the_same_bits_every_time_and_what_the_cpu_learns) {
    CONVGRAD_NEEDS_GPU();
    for (const model_kind model : {model_kind::classifier, model_kind::autoencoder})
        for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16}) {
            const train::settings chosen{model, type, 1, 4, 32};
            const outcome cpu = train_on(chosen, {});
            const outcome gpu = train_on(chosen, {.kind = engine_kind::cuda});
            const outcome again = train_on(chosen, {.kind = engine_kind::cuda});
            const std::string what =
                std::string(to_string(model)) + " " + std::string(to_string(type));
            EXPECT_EQ(gpu.losses, again.losses) << what;
            EXPECT_EQ(gpu.weights, again.weights) << what;
            const float bound = type == data_type::f32 ? 1e-4F : 0.02F;
            for (std::size_t i = 0; i < 5; ++i)
                EXPECT_NEAR(gpu.losses[i], cpu.losses[i], bound * cpu.losses[i])
                    << what << ", step " << i;
            EXPECT_NEAR(gpu.test.loss, cpu.test.loss, 0.25 * cpu.test.loss) << what;
        }
}

TEST(cuda_train, every_math_mode_learns) {
    CONVGRAD_NEEDS_GPU();
    const train::settings chosen{model_kind::classifier, data_type::f32, 2, 4, 32};
    for (const math_mode math : {math_mode::strict, math_mode::accurate, math_mode::fast}) {
        const outcome gpu = train_on(chosen, {.kind = engine_kind::cuda, .math = math});
        EXPECT_GT(gpu.test.accuracy, 0.8) << to_string(math);
    }
}

}  // namespace
}  // namespace convgrad::test
