# One interface target carries the warnings, hardening and sanitizers of all our own code.
add_library(convgrad_flags INTERFACE)
target_compile_options(convgrad_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  -Wno-sign-conversion -Wcast-align -Wnon-virtual-dtor -Wold-style-cast)
# GCC 12 sees overlaps inside std::string that are not there (bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(convgrad_flags INTERFACE -Wno-restrict)
endif()
# Where the compiler could fuse multiplications and additions by itself, it must not: the portable
# kernels have the same bits on every kind of processor, and others say so where they fuse.
if(NOT CONVGRAD_PROCESSOR STREQUAL "x86")
  target_compile_options(convgrad_flags INTERFACE -ffp-contract=off)
endif()
if(CONVGRAD_WARNINGS_AS_ERRORS)
  target_compile_options(convgrad_flags INTERFACE -Werror)
endif()
# No names of folders in what is built. (Release has neither debug information nor __FILE__.)
target_compile_options(convgrad_flags INTERFACE
  $<$<NOT:$<CONFIG:Release>>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.>)
if(CONVGRAD_SANITIZE)
  target_compile_options(convgrad_flags INTERFACE -fsanitize=${CONVGRAD_SANITIZE}
    -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(convgrad_flags INTERFACE -fsanitize=${CONVGRAD_SANITIZE})
else()
  target_compile_options(convgrad_flags INTERFACE -fstack-protector-strong
    $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=2>)
  target_link_options(convgrad_flags INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)
endif()

# For code that calls the library, reads and compares, but computes little: with sanitizers compiling
# it takes longer than running it. Fuzzers run for hours.
add_library(convgrad_caller_flags INTERFACE)
if(CONVGRAD_SANITIZE AND NOT CONVGRAD_FUZZ)
  target_compile_options(convgrad_caller_flags INTERFACE -O0)
endif()
