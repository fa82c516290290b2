# macOS 14 on arm64, built on Linux with ziglang's clang and linker. What it refers to in build/cross is made by
# build_wheels.py.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_VERSION 23.0) # the kernel of macOS 14
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_OSX_SYSROOT "")

set(CMAKE_CXX_COMPILER "${CMAKE_CURRENT_LIST_DIR}/zig_cxx.py")
set(CMAKE_CXX_COMPILER_TARGET aarch64-macos.14.0)
set(CMAKE_AR "${CMAKE_CURRENT_LIST_DIR}/zig-ar")
set(CMAKE_RANLIB true) # zig-ar has written the index
# Both would edit the linked file, and void its signature.
set(CMAKE_STRIP true)
set(CMAKE_INSTALL_NAME_TOOL true)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)

cmake_path(SET build NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../../build/cross")
set(MLX_ROOT "${build}/macos-14/mlx/share/cmake/MLX")
set(CMAKE_CXX_STANDARD_LIBRARIES "${build}/lib/libc++.tbd ${build}/lib/libobjc.tbd")
# Zig switches libc++'s availability off; with it, functions that macOS 14 lacks stay inline instead of becoming imports.
string(JOIN " " CMAKE_CXX_FLAGS_INIT
  "-isystem ${CMAKE_CURRENT_LIST_DIR}/include"
  -U_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS
  -D_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS=1
  -fno-sized-deallocation) # as in Apple's clang, so that operator delete is one that MLX's binaries import, too
