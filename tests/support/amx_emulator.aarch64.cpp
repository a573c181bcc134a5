// No AMX here, and nothing that would ask for it.
#include "support/amx_emulator.hpp"

namespace convgrad::testing::amx_emulator {

mode install() {
    return mode::native;
}

std::uint64_t executed() {
    return 0;
}

}  // namespace convgrad::testing::amx_emulator
