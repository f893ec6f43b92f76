# ddphook_add_cuda_kernels(NAME [EMULATED]): builds a static library of the CUDA
# kernels with the CUDA language. EMULATED compiles the same files as C++ against
# the target emulated_cuda instead.
#
# The build stores ptxas's report on each kernel in NAME.ptxas.txt next to the
# library, and fails if a kernel spills registers with the version of ptxas that
# check_spills.cmake names.
include_guard(GLOBAL)

function(ddphook_add_cuda_kernels name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "EMULATED" "" "")
  set(dir ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  set(runtime ${dir}/../../..)
  file(GLOB kernels CONFIGURE_DEPENDS ${dir}/*.cu ${dir}/*.cpp)
  set(sources)
  if(arg_EMULATED)
    # Use other names, so that the same file can also be CUDA in this build.
    foreach(kernel IN LISTS kernels)
      get_filename_component(stem ${kernel} NAME_WE)
      set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}/${stem}.cpp)
      file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${kernel}\"\n")
      list(APPEND sources ${source})
    endforeach()
  else()
    set(sources ${kernels})
  endif()
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC
    ${dir}
    ${runtime}/src
    ${runtime}/include)
  target_compile_features(${name} PUBLIC cxx_std_17)
  set_target_properties(${name} PROPERTIES
    POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden
    CUDA_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  if(arg_EMULATED)
    target_link_libraries(${name} PUBLIC emulated_cuda)
    # Every rounding counts, and kernels are nested loops.
    target_compile_options(${name} PRIVATE -ffp-contract=off -O2
      -Wall -Wextra $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>
      $<$<CXX_COMPILER_ID:GNU>:-Wno-unknown-pragmas>
      $<$<BOOL:${DDPHOOK_WARNINGS_AS_ERRORS}>:-Werror>)
    return()
  endif()

  set_target_properties(${name} PROPERTIES
    CUDA_STANDARD 17
    CUDA_STANDARD_REQUIRED ON
    CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}"
    RULE_LAUNCH_COMPILE ${dir}/ptxas_log.sh)
  target_compile_options(${name} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false -Xptxas=-v
      -Xcompiler=-Wall,-Wextra,-ffp-contract=off>
    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${DDPHOOK_WARNINGS_AS_ERRORS}>>:-Werror=all-warnings>)
  add_custom_command(TARGET ${name} POST_BUILD
    COMMAND ${CMAKE_COMMAND}
      -DCOMPILER=${CMAKE_CUDA_COMPILER_VERSION}
      -DOBJECTS=$<JOIN:$<TARGET_OBJECTS:${name}>,|>
      -DREPORT=$<TARGET_FILE_DIR:${name}>/${name}.ptxas.txt
      -P ${dir}/check_spills.cmake
    VERBATIM)
endfunction()
