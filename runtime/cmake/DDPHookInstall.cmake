# How ddphook is installed, whole or runtime/ alone: directories, how programs
# find libraries, licences, and the target `uninstall`. Must be included before
# the first target.
#
# The components: `runtime` (for machines that run compiled programs), `cuda` (the
# backend for NVIDIA's GPUs), `dev` (headers, libraries and the CMake package),
# and, for the whole project, `tools` (the compiler).
include_guard(GLOBAL)
include(GNUInstallDirs)
set(DDPHOOK_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/DDPHook)

# An install tree may be moved: its own libraries are found relative to the
# program, others, such as MLIR's, where they were when ddphook was configured.
# System directories need no entry and get none.
file(RELATIVE_PATH ddphook_libraries
  ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set(DDPHOOK_TOOL_RPATH "$ORIGIN/${ddphook_libraries}")
if(NOT DEFINED CMAKE_INSTALL_RPATH_USE_LINK_PATH)
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
endif()

# The default component is the runtime; tools/ sets its own.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME runtime)

set(ddphook_root ${CMAKE_CURRENT_LIST_DIR}/../..)
install(FILES
  ${ddphook_root}/LICENSE ${ddphook_root}/NOTICE ${ddphook_root}/CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/ddphook COMPONENT runtime)

# If ddphook is a part of another project, that may have a target of this name.
if(NOT TARGET uninstall)
  add_custom_target(uninstall
    COMMAND ${CMAKE_COMMAND} -DMANIFEST=${CMAKE_BINARY_DIR}/install_manifest.txt
            -P ${CMAKE_CURRENT_LIST_DIR}/DDPHookUninstall.cmake
    COMMENT "Removing what the last installation wrote"
    VERBATIM)
endif()
