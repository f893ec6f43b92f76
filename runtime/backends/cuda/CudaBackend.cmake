# ddphook_add_cuda_backend(NAME KERNELS DEVICE): builds the CUDA backend as a
# loadable library, libNAME.so, from the kernels' target KERNELS and from DEVICE,
# which provides headers and libraries: those of a toolkit or emulated ones.
# NAME_core has everything except the table, for tests of parts.
include_guard(GLOBAL)

function(ddphook_add_cuda_backend name kernels device)
  set(dir ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  set(runtime ${dir}/../..)
  add_library(${name}_core STATIC
    ${dir}/cuda_communicator.cpp
    ${dir}/cuda_device.cpp
    ${dir}/cuda_error.cpp
    ${dir}/cuda_options.cpp
    ${dir}/device_allocations.cpp
    ${dir}/device_choice.cpp
    ${dir}/group_bootstrap.cpp
    ${dir}/in_flight.cpp
    ${dir}/kernel_library.cpp
    ${dir}/memory_sources.cpp
    ${dir}/nccl_communicator.cpp
    ${dir}/thread_state.cpp
    ${dir}/watchdog.cpp)
  target_include_directories(${name}_core PUBLIC
    ${dir} ${runtime}/src ${runtime}/include)
  target_link_libraries(${name}_core PUBLIC
    ${kernels} ${device} Threads::Threads)

  # The runtime hides its C++ symbols, so the common files are compiled in.
  add_library(${name} MODULE
    ${dir}/cuda_backend.cpp
    ${runtime}/src/backend/backend_store.cpp
    ${runtime}/src/base/log.cpp
    ${runtime}/src/base/status.cpp)
  target_link_libraries(${name} PRIVATE ${name}_core)
  target_link_options(${name} PRIVATE
    LINKER:--version-script=${dir}/cuda_backend.map)
  set_target_properties(${name} PROPERTIES
    LINK_DEPENDS ${dir}/cuda_backend.map
    # Kernels are linked like any object; no device code needs linking.
    LINKER_LANGUAGE CXX)

  foreach(target ${name}_core ${name})
    target_compile_features(${target} PUBLIC cxx_std_17)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra
        $<$<BOOL:${DDPHOOK_WARNINGS_AS_ERRORS}>:-Werror>>)
    set_target_properties(${target} PROPERTIES
      POSITION_INDEPENDENT_CODE ON
      CXX_VISIBILITY_PRESET hidden
      VISIBILITY_INLINES_HIDDEN ON)
  endforeach()
endfunction()
