# Toolchain file: builds with zig (`pip install ziglang`), whose headers and symbol versions are those
# of an old glibc, so that the library runs on every Linux from Debian 10, Ubuntu 20.04 and RHEL 8 on.
find_program(GAPSCOPE_ZIG python-zig)
if(NOT GAPSCOPE_ZIG)
  message(FATAL_ERROR "no zig: `pip install ziglang`, and activate where it went")
endif()
set(target -target x86_64-linux-gnu.2.28)
set(CMAKE_C_COMPILER ${GAPSCOPE_ZIG} cc ${target})
set(CMAKE_CXX_COMPILER ${GAPSCOPE_ZIG} c++ ${target})
# zig brings its own C++ library, and links it statically whatever it is told.
add_link_options(-s)
