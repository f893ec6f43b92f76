# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ddphook_make_portable(TARGET): links a shared library such that it loads on systems
# with glibc 2.28 or later and without this machine's libstdc++.
include_guard(GLOBAL)

set(ddphook_glibc 2.28)
set(ddphook_glibc_source ${CMAKE_CURRENT_LIST_DIR}/../python/glibc)
set(ddphook_stubs ${CMAKE_BINARY_DIR}/glibc-${ddphook_glibc})
set(ddphook_stub_names c m dl rt pthread)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
separate_arguments(ddphook_c_flags NATIVE_COMMAND "${CMAKE_C_FLAGS}")
if(CMAKE_C_COMPILER_TARGET)
  list(APPEND ddphook_c_flags --target=${CMAKE_C_COMPILER_TARGET})
endif()
set(ddphook_glibc_libraries)
foreach(library libc.so.6 libm.so.6 ld-linux-x86-64.so.2 ld-linux-aarch64.so.1)
  execute_process(
    COMMAND ${CMAKE_C_COMPILER} ${ddphook_c_flags} -print-file-name=${library}
    OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(IS_ABSOLUTE "${path}")
    list(APPEND ddphook_glibc_libraries ${path})
  endif()
endforeach()
list(TRANSFORM ddphook_stub_names REPLACE "(.+)" "${ddphook_stubs}/\\1.c"
  OUTPUT_VARIABLE ddphook_stub_files)
file(MAKE_DIRECTORY ${ddphook_stubs})
add_custom_command(OUTPUT ${ddphook_stub_files}
  COMMAND ${Python3_EXECUTABLE} ${ddphook_glibc_source}/stubs.py ${ddphook_glibc}
    ${CMAKE_READELF} ${ddphook_stubs} ${ddphook_glibc_libraries}
  DEPENDS ${ddphook_glibc_source}/stubs.py ${ddphook_glibc_libraries}
  VERBATIM)
add_custom_target(ddphook_glibc_sources DEPENDS ${ddphook_stub_files})
add_custom_target(ddphook_glibc_stubs)
set(ddphook_stub_versions 6 6 2 1 0)
foreach(name version IN ZIP_LISTS ddphook_stub_names ddphook_stub_versions)
  add_library(ddphook_glibc_${name} SHARED EXCLUDE_FROM_ALL ${ddphook_stubs}/${name}.c)
  set_target_properties(ddphook_glibc_${name} PROPERTIES
    OUTPUT_NAME ${name} SOVERSION ${version} C_COMPILER_LAUNCHER ""
    LIBRARY_OUTPUT_DIRECTORY ${ddphook_stubs})
  target_link_options(ddphook_glibc_${name} PRIVATE -nostdlib
    LINKER:--version-script=${ddphook_stubs}/${name}.map)
  add_dependencies(ddphook_glibc_${name} ddphook_glibc_sources)
  add_dependencies(ddphook_glibc_stubs ddphook_glibc_${name})
endforeach()

add_library(ddphook_glibc_newer OBJECT EXCLUDE_FROM_ALL ${ddphook_glibc_source}/newer.c)
set_target_properties(ddphook_glibc_newer PROPERTIES
  C_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
target_compile_options(ddphook_glibc_newer PRIVATE -Wall -Wextra -ffunction-sections
  -fdata-sections $<$<BOOL:${DDPHOOK_WARNINGS_AS_ERRORS}>:-Werror>)

function(ddphook_make_portable target)
  if(DDPHOOK_SANITIZE)
    return()
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:ddphook_glibc_newer>)
  add_dependencies(${target} ddphook_glibc_stubs)
  target_link_options(${target} PRIVATE -L${ddphook_stubs} -static-libstdc++
    LINKER:--gc-sections LINKER:--strip-all LINKER:--as-needed LINKER:-z,defs)
  target_link_libraries(${target} PRIVATE -lpthread -ldl -lrt -lm)
endfunction()
