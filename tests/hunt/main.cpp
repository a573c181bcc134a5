// The hunt: random problems of all kinds against an f64 evaluation that shares nothing with the
// library, its tests or its command. See CONTRIBUTING.
//   convgrad_hunt [PROBLEMS [FIRST_SEED]]     many problems, seeds one after the other
//   convgrad_hunt --one SEED                  one of them again, with its description
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trial.hpp"

namespace hunt {
namespace {

/// A pool whose bodies run one after the other in random order: any number of threads on one core.
class shuffling_pool : public convgrad::thread_pool {
public:
    explicit shuffling_pool(int concurrency) : concurrency_(concurrency) {}
    [[nodiscard]] int concurrency() const noexcept override { return concurrency_; }
    void run(int count, void (*body)(void *context, int i), void *context) override {
        std::vector<int> order;
        for (int i = 0; i < count; ++i) order.push_back(i);
        for (int i = count; i > 1; --i)
            std::swap(order[static_cast<std::size_t>(i - 1)],
                order[static_cast<std::size_t>(random_.between(0, i - 1))]);
        for (int i : order) body(context, i);
    }

private:
    int concurrency_;
    draw random_{7};
};

struct setting {
    convgrad::isa set;
    convgrad::math_mode math;
    int threads;  // negative: of a pool
    std::size_t limit;
    auto operator<=>(const setting &) const = default;
    [[nodiscard]] std::string text() const {
        std::string s = std::string(to_string(set)) + " " + std::string(to_string(math))
                        + " threads " + std::to_string(threads);
        if (limit != SIZE_MAX) s += " limit " + std::to_string(limit);
        return s;
    }
};

const convgrad::engine &engine_of(const setting &s) {
    static std::map<setting, convgrad::engine> engines;
    static std::map<int, std::unique_ptr<shuffling_pool>> pools;
    const auto known = engines.find(s);
    if (known != engines.end()) return known->second;
    convgrad::engine_options options;
    options.max_isa = s.set;
    options.math = s.math;
    options.workspace_limit = s.limit;
    if (s.threads < 0) {
        auto &pool = pools[s.threads];
        if (!pool) pool = std::make_unique<shuffling_pool>(-s.threads);
        options.pool = pool.get();
    } else {
        options.threads = s.threads;
    }
    return engines.emplace(s, convgrad::engine(options)).first->second;
}

/// Shared with the process that watches.
struct tally {
    long next = 0;  // the problem at work
    long problems = 0, calls = 0, refusals = 0, values = 0, finds = 0;
    long by_path[4] = {}, by_isa[8] = {}, by_kind[8] = {}, by_type[4] = {};
    long in_place = 0, overlapping = 0, limited = 0, real_threads = 0;
};

struct hunter {
    tally &count;
    bool verbose = false;
    bool drop_in = false;
    std::uint64_t seed = 0;

    void find(const problem &p, const std::string &how, const std::string &what) {
        ++count.finds;
        std::printf("FIND --one %llu: %s\n     %s\n     %s\n",
            static_cast<unsigned long long>(seed), what.c_str(), how.c_str(), p.text().c_str());
        std::fflush(stdout);
    }

    /// Empty: as it must be. Each product and sum rounds once, in any order, and then the result.
    /// Where tiles of 3×3 layers may be computed at once, the largest sum of the map counts for
    /// all.
    std::string judge(const trial &t, const output &o, const setting &s) {
        constexpr double u = 0x1p-24;
        const data_type type = o.where.type();
        const bool tiles = s.math != convgrad::math_mode::strict && t.p.may_be_tiled();
        const double terms = t.p.terms();
        double largest = 0;
        for (const double size : o.want.size)
            if (std::isfinite(size)) largest = std::max(largest, size);
        for (std::size_t i = 0; i < o.order.size(); ++i) {
            const double want = o.want.sum[i], got = o.where.get(o.order[i]);
            if (got == want || (std::isnan(want) && std::isnan(got))) continue;
            double bound = u * (terms + 4) * o.want.size[i] * 1.0001;
            if (tiles) bound += u * 4 * (6 * std::sqrt(terms) + 2) * largest;
            if (s.math == convgrad::math_mode::fast && t.p.type == data_type::f32)
                bound += (2 * 0x1p-8 + 0x1p-16) * o.want.size[i];
            if (t.p.exact && !tiles) bound = 0;
            if (std::abs(got - want) < bound) continue;
            const double nearest = rounded(want, type);
            if (got == nearest) continue;
            if (bound > 0 && std::isfinite(want)) {
                const double most = format_of(type).largest * 0.9995;
                if (std::isinf(got) && std::abs(want) + bound > most) continue;
                if (std::abs(got - want) <= bound + half_unit(std::abs(want) + bound, type))
                    continue;
            }
            return "element " + std::to_string(i) + " is " + std::to_string(got) + ", not "
                   + std::to_string(nearest) + " (bound " + std::to_string(bound) + ")";
        }
        return {};
    }

    /// One call and everything that must hold after it; the bits of the outputs.
    std::vector<std::uint32_t> attempt(trial &t, path way, const setting &s, draw &random) {
        ++count.calls;
        ++count.by_path[static_cast<int>(way)];
        ++count.by_isa[static_cast<int>(s.set)];
        if (s.threads > 1) ++count.real_threads;
        const std::string how = std::string(path_names[static_cast<int>(way)]) + ", " + s.text();
        std::vector<std::vector<std::uint8_t>> before, outputs_before;
        for (memory *m : t.inputs()) before.push_back(m->bytes());
        for (output &o : t.outputs) outputs_before.push_back(o.where.bytes());
        std::string refusal;
        try {
            call(way, t, engine_of(s), random);
        } catch (const convgrad::error &e) {
            refusal = e.what();
            // No plan need fit into a limit.
            if (s.limit != SIZE_MAX && e.code() == convgrad::error_code::out_of_memory) return {};
        } catch (const std::exception &e) {
            refusal = e.what();
        }
        if (!t.refused && !refusal.empty()) find(t.p, how, "refused: " + refusal);
        if (t.refused && refusal.empty()) find(t.p, how, "an output that overlaps itself is taken");
        std::size_t next = 0;
        for (memory *m : t.inputs()) {
            const auto &old = before[next++];
            const bool written = t.p.in_place && m == &t.outputs[0].where;
            if (!written && m->bytes() != old) find(t.p, how, "an input was written to");
        }
        std::vector<std::uint32_t> bits;
        for (std::size_t i = 0; i < t.outputs.size(); ++i) {
            const output &o = t.outputs[i];
            if (!refusal.empty()) {
                if (o.where.bytes() != outputs_before[i]) find(t.p, how, "refused, yet written to");
                continue;
            }
            if (t.refused) continue;
            count.values += static_cast<long>(o.order.size());
            if (!o.where.gaps_are_as(outputs_before[i]))
                find(t.p, how, "written beside output " + std::to_string(i));
            const std::string wrong = judge(t, o, s);
            if (!wrong.empty()) find(t.p, how, "output " + std::to_string(i) + ": " + wrong);
            const auto own = o.where.bits();
            bits.insert(bits.end(), own.begin(), own.end());
        }
        return bits;
    }

    path draw_path(const problem &p, draw &random) {
        for (;;) {
            const path way =
                random.one_of({path::eager, path::compiled, path::graph, path::drop_in});
            if (way == path::drop_in && !drop_in) continue;
            if (can_take(way, p)) return way;
        }
    }

    static int draw_threads(draw &random) {
        if (random.percent(4)) return random.one_of({2, 3});
        return random.percent(40) ? 1 : -random.one_of({1, 2, 3, 4, 7, 16, 64});
    }

    void hunt_one(std::uint64_t which) {
        seed = which;
        draw random(seed * 0x2545f4914f6cdd1dULL + 1);
        const problem p = draw_problem(random);
        if (verbose) std::printf("%s\n", p.text().c_str());
        trial t(p, random);
        ++count.problems;
        ++count.by_kind[p.what == gradient::both ? (p.transposed ? 7 : 6)
                                                 : static_cast<int>(p.kind()) - 13];
        ++count.by_type[static_cast<int>(p.type)];
        if (p.in_place) ++count.in_place;
        if (t.refused) ++count.refusals;
        for (memory *m : t.inputs()) count.overlapping += m->elements_overlap() ? 1 : 0;
        const std::string shape = random.percent(15) ? complaint_of_inference(p, random) : "";
        if (!shape.empty()) find(p, "infer_shape", shape);
        setting s{random.one_of({convgrad::isa::portable, convgrad::isa::avx2,
                      convgrad::isa::avx512, convgrad::isa::avx512_bf16, convgrad::isa::amx_bf16}),
            random.one_of({convgrad::math_mode::strict, convgrad::math_mode::accurate,
                convgrad::math_mode::accurate, convgrad::math_mode::fast}),
            draw_threads(random), SIZE_MAX};
        s.set = convgrad::engine({.max_isa = s.set}).instruction_set();
        path way = draw_path(p, random);
        if (way == path::drop_in)
            s = {convgrad::detected_isa(), convgrad::math_mode::accurate, 1, SIZE_MAX};
        if (verbose) std::printf("%s, %s\n", path_names[static_cast<int>(way)], s.text().c_str());
        const auto first = attempt(t, way, s, random);
        if (t.refused) return;
        // Again, some other way, on other threads, with other garbage around: the same bits.
        t.refill(random);
        s.threads = draw_threads(random);
        const path other = can_take(path::graph, p)
                               ? random.one_of({path::eager, path::compiled, path::graph})
                               : random.one_of({path::eager, path::compiled});
        if (verbose) std::printf("%s, %s\n", path_names[static_cast<int>(other)], s.text().c_str());
        const auto second = attempt(t, other, s, random);
        if (first != second && first.size() == second.size())  // else one was refused
            find(p,
                std::string(path_names[static_cast<int>(way)]) + " and then "
                    + path_names[static_cast<int>(other)] + ", " + s.text(),
                "other bits");
        if (!random.percent(25)) return;
        t.refill(random);
        s.limit = random.one_of<std::size_t>({0, 256, 4096, 65536});
        s.threads = draw_threads(random);
        ++count.limited;
        attempt(t, random.one_of({path::eager, path::compiled}), s, random);
    }
};

void print(const tally &c, double seconds) {
    std::printf("%ld problems, %ld calls, %ld values, %ld finds; %.0f s, %.0f problems/s\n",
        c.problems, c.calls, c.values, c.finds, seconds,
        static_cast<double>(c.problems) / std::max(seconds, 1e-9));
    std::printf("  by path: eager %ld, compiled %ld, graph %ld, drop-in %ld\n", c.by_path[0],
        c.by_path[1], c.by_path[2], c.by_path[3]);
    const auto of = [&](convgrad::isa set) { return c.by_isa[static_cast<int>(set)]; };
    std::printf(
        "  by instruction set: portable %ld, avx2 %ld, avx512 %ld, avx512_bf16 %ld, amx_bf16 %ld\n",
        of(convgrad::isa::portable), of(convgrad::isa::avx2), of(convgrad::isa::avx512),
        of(convgrad::isa::avx512_bf16), of(convgrad::isa::amx_bf16));
    std::printf(
        "  by op: convolution %ld, its gradients %ld %ld, both %ld; transposed %ld, %ld %ld, %ld\n",
        c.by_kind[0], c.by_kind[1], c.by_kind[2], c.by_kind[6], c.by_kind[3], c.by_kind[4],
        c.by_kind[5], c.by_kind[7]);
    std::printf(
        "  by type: f32 %ld, bf16 %ld, f16 %ld; add in place %ld, overlapping inputs %ld, "
        "overlapping outputs refused %ld, limited workspace %ld, several real threads %ld\n",
        c.by_type[1], c.by_type[2], c.by_type[3], c.in_place, c.overlapping, c.refusals, c.limited,
        c.real_threads);
    std::fflush(stdout);
}

/// In a process of its own, so that a crash is a find and the hunt goes on.
int hunt_many(long problems, std::uint64_t first, bool drop_in) {
    void *shared =
        mmap(nullptr, sizeof(tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 2;
    auto &count = *new (shared) tally;
    const auto start = std::chrono::steady_clock::now();
    const auto seconds = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    constexpr long part = 50000;
    while (count.next < problems) {
        const long end = std::min(problems, count.next + part);
        const pid_t child = fork();
        if (child < 0) return 2;
        if (child == 0) {
            hunter h{count, false, drop_in, 0};
            for (; count.next < end; ++count.next) {
                alarm(300);  // longer than any of them takes
                h.hunt_one(first + static_cast<std::uint64_t>(count.next));
            }
            std::_Exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (status != 0) {
            ++count.finds;
            std::printf("FIND --one %llu: %s %d\n",
                static_cast<unsigned long long>(first)
                    + static_cast<unsigned long long>(count.next),
                WIFSIGNALED(status) ? "signal" : "exit status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            ++count.next;
        }
        std::fflush(stdout);  // or the next process would have it too
        if (count.next % part == 0 || count.next >= problems) print(count, seconds());
    }
    return count.finds > 0 ? 1 : 0;
}

}  // namespace
}  // namespace hunt

int main(int argc, char **argv) {
    const char *library = std::getenv("CONVGRAD_HUNT_DROP_IN");
    const bool drop_in = library != nullptr && hunt::open_drop_in(library);
    if (library != nullptr && !drop_in) std::printf("cannot open %s\n", library);
    if (argc == 3 && std::string(argv[1]) == "--one") {
        hunt::tally count;
        hunt::hunter h{count, true, drop_in, 0};
        h.hunt_one(std::strtoull(argv[2], nullptr, 10));
        std::printf("%ld finds\n", count.finds);
        return count.finds > 0 ? 1 : 0;
    }
    const long problems = argc > 1 ? std::atol(argv[1]) : 1000000;
    const std::uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    return hunt::hunt_many(problems, first, drop_in);
}
