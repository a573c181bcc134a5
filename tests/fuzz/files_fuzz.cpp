// Files that `convgrad train` reads: IDX data and checkpoints, damaged ones and ones whose checksum
// was made to fit. The answer is a result or a std::runtime_error.
#include <array>
#include <cmath>
#include <fstream>

#include <convgrad/engine.hpp>

#include "fuzz/input.hpp"
#include "fuzz/scratch_directory.hpp"
#include "train/checkpoint.hpp"
#include "train/dataset.hpp"
#include "train/fingerprint.hpp"
#include "train/idx.hpp"
#include "train/trainer.hpp"

namespace convgrad::fuzz {
namespace {

using bytes = std::vector<std::uint8_t>;

const std::filesystem::path &here() {
    static const scratch_directory made;
    return made.path();
}

void write(const std::string &name, std::span<const std::uint8_t> content) {
    std::ofstream(here() / name, std::ios::binary)
        .write(reinterpret_cast<const char *>(content.data()),
            static_cast<std::streamsize>(content.size()));
}

/// An IDX file whose header fits, of `count` images or labels.
bytes fitting_idx(input &in, std::size_t rank, std::uint8_t count, std::uint8_t side) {
    bytes file = {0, 0, 8, static_cast<std::uint8_t>(rank), 0, 0, 0, count};
    std::size_t values = count;
    for (std::size_t i = 1; i < rank; ++i) {
        file.insert(file.end(), {0, 0, 0, side});
        values *= side;
    }
    for (std::size_t i = 0; i < values; ++i) file.push_back(in.byte());
    return file;
}

void check_directory(input &in) {
    const auto count = static_cast<std::uint8_t>(in.between(0, 4));
    const auto side = static_cast<std::uint8_t>(in.between(0, 5));
    for (const char *which : {"train", "t10k"}) {
        bytes images = fitting_idx(in, 3, count, side), labels = fitting_idx(in, 1, count, side);
        for (bytes *file : {&images, &labels})
            if (in.chance(4)) (*file)[in.byte() % file->size()] = in.byte();
        write(std::string(which) + "-images-idx3-ubyte", images);
        write(std::string(which) + "-labels-idx1-ubyte", labels);
    }
    const train::dataset read = train::read_directory(here().string());
    require(read.training.size() * read.training.area() == read.training.pixels.size(),
        "images and pixels do not agree");
    require(read.classes > 0 && read.classes <= 256, "a strange number of classes");
}

train::dataset tiny_data() {
    train::dataset data;
    data.name = "tiny";
    data.classes = 3;
    data.fingerprint = 7;
    for (train::images *set : {&data.training, &data.test}) {
        set->height = set->width = 4;
        set->labels = {0, 1, 2, 1};
        for (int i = 0; i < 64; ++i) set->pixels.push_back(static_cast<float>(i % 5) / 4.0F);
    }
    return data;
}

const engine &one_thread() {
    static const engine made({.threads = 1});
    return made;
}

/// A state as the trainer itself writes it.
const bytes &true_state(train::model_kind model) {
    static const train::dataset data = tiny_data();
    static const auto make = [](train::model_kind kind) {
        train::trainer t({.model = kind, .epochs = 2, .batch = 2}, data, one_thread());
        t.run_epoch({});
        return t.save();
    };
    static const std::array<bytes, 2> states = {
        make(train::model_kind::classifier), make(train::model_kind::autoencoder)};
    return states[static_cast<std::size_t>(model)];
}

/// What the command does with a state: settings, network, restoring, and one epoch more.
void resume(input &in, const bytes &state) {
    static const train::dataset data = tiny_data();
    const train::settings saved = train::trainer::saved_settings(state);
    train::trainer t(saved, data, one_thread());
    t.restore(state);
    if (in.chance(8) && !t.finished()) t.run_epoch({});
}

/// A true state with changes near the front, where the settings and the sizes of lists are, or
/// anywhere.
bytes changed_state(input &in) {
    bytes state =
        true_state(in.chance(2) ? train::model_kind::autoencoder : train::model_kind::classifier);
    for (auto changes = in.between(0, 4); changes > 0; --changes) {
        const std::size_t at = in.chance(4) ? in.word() % state.size() : in.byte();
        state[at] = in.byte();
    }
    if (in.chance(4)) state.resize(in.word() % state.size());
    for (auto more = in.chance(4) ? in.byte() : 0; more > 0; --more) state.push_back(in.byte());
    return state;
}

/// A file whose checksum fits is read as it was written.
void check_file(const bytes &state) {
    train::byte_writer file;
    file.put(std::array<char, 8>{'c', 'o', 'n', 'v', 'g', 'r', 'd', '1'});
    file.put(static_cast<std::uint64_t>(state.size()));
    file.put(train::fingerprint(state.data(), state.size()));
    bytes whole = file.bytes();
    whole.insert(whole.end(), state.begin(), state.end());
    write("state", whole);
    const bytes read = train::read_checkpoint((here() / "state").string());
    require(read == state, "a checkpoint changed on its way");
}

void check_checkpoint(input &in) {
    if (in.chance(2)) {
        write("state", in.remaining());
        return resume(in, train::read_checkpoint((here() / "state").string()));
    }
    const bytes state = changed_state(in);
    if (in.chance(16)) check_file(state);
    resume(in, state);
}

void run(input &in) {
    const std::uint8_t what = in.byte() % 4;
    try {
        if (what == 0) {
            const auto rest = in.remaining();
            const std::size_t rank = rest.size() > 3 && rest[3] == 1 ? 1 : 3;
            const train::idx_array read = train::parse_idx(rest, rank, "bytes");
            require(read.shape.size() == rank, "a rank that was not asked for");
        } else if (what == 1) {
            check_directory(in);
        } else {
            check_checkpoint(in);
        }
    } catch (const std::runtime_error &e) {
        require(e.what()[0] != '\0', "an error without a message");
    }
}

}  // namespace
}  // namespace convgrad::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    convgrad::fuzz::input in(data, size);
    convgrad::fuzz::run(in);
    return 0;
}
