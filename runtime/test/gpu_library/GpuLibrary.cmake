# ddphook_test_on_gpu_library(NAME CHECKS COMMAND…): a test of a program for a GPU as
# NAME-library, which runs it on the GPU library, with the label "library". CHECKS are
# the emulated device's (EMULATED_CUDA_CHECKS).
include_guard(GLOBAL)

function(ddphook_test_on_gpu_library name checks)
  add_test(NAME ${name}-library COMMAND ${ARGN})
  set(libraries ${DDPHOOK_GPU_LIBRARY_DIR}:$<TARGET_FILE_DIR:ddphook_rt>)
  set_tests_properties(${name}-library PROPERTIES
    TIMEOUT ${ddphook_test_seconds}
    LABELS library
    ENVIRONMENT "LD_LIBRARY_PATH=${libraries};DDPHOOK_REQUIRE_GPU=1;EMULATED_CUDA_DEVICES=4;EMULATED_CUDA_CHECKS=${checks}")
endfunction()
