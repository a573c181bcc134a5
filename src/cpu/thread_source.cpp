#include "cpu/thread_source.hpp"

#include <algorithm>
#include <string>

#include <convgrad/error.hpp>

#include "cpu/process_team.hpp"

namespace convgrad::cpu {
namespace {

/// The number of threads that somebody asked for, or 0.
int asked_for(const engine_options &options) {
    if (options.threads < 0 || options.threads > max_threads)
        throw error(error_code::invalid_argument,
            "engine: threads is " + std::to_string(options.threads) + "; it must be between 0 and "
                + std::to_string(max_threads));
    if (options.threads > 0 || options.pool != nullptr) return options.threads;
    return threads_by_environment();
}

}  // namespace

thread_source::thread_source(const engine_options &options)
    : given_(options.pool), own_only_(options.own_threads) {
    const int asked = asked_for(options);
    most_ = asked > 0 ? asked : max_threads;
    if (given_ != nullptr) return;
    own_ = pool::shared(asked > 0 ? asked : available_cores());
    process_team::look();
}

thread_pool *thread_source::pool_now() const noexcept {
    if (given_ != nullptr) return given_;
    process_team *team = own_only_ ? nullptr : process_team::found();
    return team != nullptr ? static_cast<thread_pool *>(team) : own_.get();
}

executor thread_source::now() const {
    thread_pool *pool = pool_now();
    return {pool, std::min(pool->concurrency(), most_)};
}

bool thread_source::is_shared() const noexcept {
    return given_ == nullptr && pool_now() != own_.get();
}

}  // namespace convgrad::cpu
