# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Cross-compiles for aarch64, with clang or with a g++ for it, in the sysroot that
# tools/test-aarch64.sh makes or that the environment's DDPHOOK_SYSROOT names.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
if(DEFINED ENV{DDPHOOK_SYSROOT})
  set(CMAKE_SYSROOT $ENV{DDPHOOK_SYSROOT})
else()
  set(CMAKE_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../../build-aarch64/sysroot)
endif()
set(CMAKE_C_COMPILER_TARGET aarch64-linux-gnu)
set(CMAKE_CXX_COMPILER_TARGET aarch64-linux-gnu)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(MLIR_DIR ${CMAKE_SYSROOT}/usr/lib/llvm-22/lib/cmake/mlir)
