# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compiles MLIR modules as a part of a CMake project. find_package(DDPHook)
# defines this function; ddphook's own build includes the file.

# ddphook_compile(TARGET SOURCE
#                 [NAME identifier] [PIPELINE options] [OPTIONS option...])
#
# Adds a static library TARGET that contains the module SOURCE, compiled by
# ddphook-cc with `--ddp-pipeline=options` and the other given options. NAME
# (default: TARGET) is the prefix of its C functions and the name of its header:
# users of TARGET can `#include "NAME.h"`, and are linked with the runtime.
function(ddphook_compile target source)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "NAME;PIPELINE" "OPTIONS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR
      "ddphook_compile: unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_NAME)
    set(arg_NAME ${target})
  endif()
  if(TARGET DDPHook::ddphook-cc)
    set(compiler DDPHook::ddphook-cc)
  else()
    set(compiler ddphook-cc)
  endif()
  get_filename_component(source ${source} ABSOLUTE)
  # One directory per target, because several may have one NAME.
  set(directory ${CMAKE_CURRENT_BINARY_DIR}/${target}.ddphook)
  set(object ${directory}/${arg_NAME}${CMAKE_C_OUTPUT_EXTENSION})
  set(header ${directory}/${arg_NAME}.h)
  file(MAKE_DIRECTORY ${directory})
  add_custom_command(
    OUTPUT ${object} ${header}
    COMMAND ${compiler} ${source} -o ${object} --header=${header}
            --name=${arg_NAME} "--ddp-pipeline=${arg_PIPELINE}" ${arg_OPTIONS}
    DEPENDS ${source} ${compiler}
    COMMENT "Compiling ${target} (${arg_PIPELINE})"
    VERBATIM)
  add_library(${target} STATIC ${object} ${header})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
  set_source_files_properties(${object} PROPERTIES
    EXTERNAL_OBJECT ON GENERATED ON)
  target_include_directories(${target} PUBLIC ${directory})
  # Functions such as expf come from the math library.
  target_link_libraries(${target} PUBLIC DDPHook::Runtime m)
endfunction()
