// Marks what the shared library exports; everything else is hidden.
#pragma once

#include <convgrad/version.hpp>  // CONVGRAD_ABI

#define CONVGRAD_API __attribute__((visibility("default")))
