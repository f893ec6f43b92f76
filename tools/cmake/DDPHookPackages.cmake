# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Packages, by `cpack` in the build directory: one .deb for each component, or an
# archive (`cpack -G TGZ`). Include it after all install rules.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ddphook)
set(CPACK_PACKAGE_CONTACT "ddphook developers <ddphook@localhost>" CACHE STRING
    "Name and address of who makes packages, unless DEBEMAIL is set")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)

set(CPACK_COMPONENTS_ALL runtime dev tools)
if(TARGET ddphook_backend_cuda)
  list(APPEND CPACK_COMPONENTS_ALL cuda)
endif()
set(CPACK_COMPONENT_DEV_DEPENDS runtime)
set(CPACK_COMPONENT_TOOLS_DEPENDS runtime)
set(CPACK_COMPONENT_CUDA_DEPENDS runtime)

set(CPACK_DEB_COMPONENT_INSTALL ON)
# Packages of several releases may lie together: 0.1.0-1~deb12, 0.1.0-1~deb13.
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
if(EXISTS /etc/os-release)
  file(STRINGS /etc/os-release ddphook_release REGEX "^(ID|VERSION_ID)=")
  list(SORT ddphook_release)
  string(REGEX REPLACE "ID=|VERSION_ID=|[;\"]" "" ddphook_release "${ddphook_release}")
  string(REPLACE debian deb ddphook_release "${ddphook_release}")
  string(APPEND CPACK_DEBIAN_PACKAGE_RELEASE "~${ddphook_release}")
endif()
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# dpkg determines the packages of Debian's libraries. It does not know ours yet,
# but the components above depend on each other.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS
    ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
file(WRITE ${CMAKE_BINARY_DIR}/control/triggers "activate-noawait ldconfig\n")
foreach(component RUNTIME TOOLS)
  set(CPACK_DEBIAN_${component}_PACKAGE_CONTROL_EXTRA
      ${CMAKE_BINARY_DIR}/control/triggers)
endforeach()

set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION
"gradient compression for data-parallel training: runtime
The shared library that compiled training steps call, and ddphook-exec, which
runs them with tensors from files. It needs no compiler.")

# Compilers use its static libraries with MLIR's headers; programs that only call
# compiled steps need none of them.
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_RECOMMENDS "ddphook-tools")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS
    "libmlir-${LLVM_VERSION_MAJOR}-dev, llvm-${LLVM_VERSION_MAJOR}-dev, liblld-${LLVM_VERSION_MAJOR}-dev")
set(CPACK_DEBIAN_DEV_DESCRIPTION
"gradient compression for data-parallel training: development files
The C headers of the runtime, the dialect and the passes as static libraries
for MLIR ${LLVM_VERSION_MAJOR}, and the CMake package DDPHook.")

# ddphook-cc writes headers that include the runtime's.
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "python3") # ddphook-reduce
set(CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS "ddphook-dev")
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS "mlir-${LLVM_VERSION_MAJOR}-tools")
set(CPACK_DEBIAN_TOOLS_DESCRIPTION
"gradient compression for data-parallel training: compiler
ddphook-opt, ddphook-cc, ddphook-run, ddphook-report, ddphook-reduce, the
language server, and the plugin for stock mlir-opt, with manual pages and
completion for shells.")

# NVIDIA's packages of CUDA have many names, and dpkg may not know them. The
# backend finds the libraries at the paths that it was linked with.
set(CPACK_DEBIAN_CUDA_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_CUDA_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_CUDA_PACKAGE_GENERATE_SHLIBS OFF)
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "libc6, libgcc-s1, libstdc++6")
set(CPACK_DEBIAN_CUDA_DESCRIPTION
"gradient compression for data-parallel training: CUDA backend
The library that the runtime loads for NVIDIA's GPUs. It needs the CUDA toolkit
and NCCL, which are not Debian's.")

# Adds files that Debian requires in addition to an installation's.
set(CPACK_PRE_BUILD_SCRIPTS
    ${CMAKE_CURRENT_LIST_DIR}/DDPHookDebianFiles.cmake)
set(CPACK_DDPHOOK_SOURCE_DIR ${PROJECT_SOURCE_DIR})
include(CPack)
