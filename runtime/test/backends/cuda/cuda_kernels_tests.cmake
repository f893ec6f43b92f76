# ddphook_add_cuda_kernels_tests(PREFIX KERNELS [LABEL]): the tests of the CUDA
# kernels in the library KERNELS, as ddphook-PREFIXcuda_kernels_*_test.
set(DDPHOOK_CUDA_KERNELS_TESTS_DIR ${CMAKE_CURRENT_LIST_DIR})

function(ddphook_add_cuda_kernels_tests prefix kernels)
  set(areas affine elementwise encode lowrank orthogonalize)
  if(prefix STREQUAL "emulated_")
    # What is counted there is no business of a device.
    list(APPEND areas accesses traffic)
  endif()
  foreach(area IN LISTS areas)
    set(name cuda_kernels_${area}_test)
    set(target ddphook-${prefix}${name})
    add_executable(${target} ${DDPHOOK_CUDA_KERNELS_TESTS_DIR}/${name}.cpp)
    ddphook_set_up_tests(${target})
    target_link_libraries(${target} PRIVATE ${kernels})
    add_test(NAME runtime-${prefix}${name} COMMAND ${target})
    set_tests_properties(runtime-${prefix}${name} PROPERTIES
      TIMEOUT ${ddphook_test_seconds} LABELS "${ARGN}")
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
    if("gpu" IN_LIST ARGN)
      set_tests_properties(runtime-${prefix}${name} PROPERTIES
        SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\] [0-9]+ test")
      ddphook_test_on_gpu_library(runtime-${prefix}${name} races ${target})
    endif()
    if(prefix STREQUAL "emulated_")
      # Threads and blocks the other way round: barriers that are missing show.
      add_test(NAME runtime-${prefix}${name}-reverse COMMAND ${target})
      set_tests_properties(runtime-${prefix}${name}-reverse PROPERTIES
        TIMEOUT ${ddphook_test_seconds} ENVIRONMENT EMULATED_CUDA_ORDER=reverse
        LABELS full)
      # The small tier of tools/test.sh has the shipped kernels, on the GPU library.
      if(DDPHOOK_HAS_CUDA AND NOT area MATCHES "accesses|traffic")
        set_tests_properties(runtime-${prefix}${name} PROPERTIES LABELS full)
      endif()
    endif()
  endforeach()
endfunction()
