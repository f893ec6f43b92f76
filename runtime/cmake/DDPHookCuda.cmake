# Finds the dependencies of the CUDA backend, and enables the CUDA language.
#
#   DDPHOOK_CUDA       AUTO (build it if all are found), ON (fail otherwise), OFF
#   DDPHOOK_CUDA_ROOT  the toolkit, or site-packages/nvidia/cu13 of a virtual
#                      environment with NVIDIA's packages; also an environment
#                      variable. Default: nvcc on PATH, /usr/local/cuda, and the
#                      active virtual environment
#   DDPHOOK_NCCL_ROOT  NCCL, if it is not in the toolkit or the system
#
# Sets DDPHOOK_HAS_CUDA and, if it is on, defines the target ddphook_cuda_toolkit.
# tools/cuda-toolkit.sh prints a root, and creates one if there is none.
set(DDPHOOK_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO, ON or OFF")
set_property(CACHE DDPHOOK_CUDA PROPERTY STRINGS AUTO ON OFF)
set(DDPHOOK_CUDA_ROOT "$ENV{DDPHOOK_CUDA_ROOT}" CACHE PATH
    "CUDA toolkit for the CUDA backend")
set(DDPHOOK_NCCL_ROOT "$ENV{DDPHOOK_NCCL_ROOT}" CACHE PATH
    "NCCL for the CUDA backend")
set(DDPHOOK_LEAST_CUDA 12.8)
set(DDPHOOK_LEAST_NCCL 2.28)

set(DDPHOOK_HAS_CUDA OFF)

# Sets `result` to the reason why the backend cannot be built; empty if it can.
function(ddphook_find_cuda result)
  if(DDPHOOK_SANITIZE)
    set(${result} "sanitizers do not know device code" PARENT_SCOPE)
    return()
  endif()
  set(roots)
  if(DDPHOOK_CUDA_ROOT)
    set(roots ${DDPHOOK_CUDA_ROOT})
    set(only NO_DEFAULT_PATH)
  else()
    file(GLOB packages "$ENV{VIRTUAL_ENV}/lib/python3*/site-packages/nvidia/cu1?")
    if("$ENV{VIRTUAL_ENV}" STREQUAL "")
      set(packages)
    endif()
    set(roots ${packages} /usr/local/cuda)
    set(only)
  endif()
  find_program(DDPHOOK_NVCC nvcc HINTS ${roots} PATH_SUFFIXES bin ${only})
  if(NOT DDPHOOK_NVCC)
    set(${result} "no nvcc was found" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${DDPHOOK_NVCC} --version
    OUTPUT_VARIABLE text ERROR_QUIET)
  if(NOT text MATCHES "release ([0-9]+\\.[0-9]+)")
    set(${result} "${DDPHOOK_NVCC} does not tell its version" PARENT_SCOPE)
    return()
  endif()
  set(version ${CMAKE_MATCH_1})
  if(version VERSION_LESS DDPHOOK_LEAST_CUDA)
    set(${result} "${DDPHOOK_NVCC} is CUDA ${version}, but ${DDPHOOK_LEAST_CUDA} or later is needed"
        PARENT_SCOPE)
    return()
  endif()
  string(REGEX MATCH "^[0-9]+" major ${version})
  get_filename_component(root ${DDPHOOK_NVCC} REALPATH)
  get_filename_component(root ${root}/../.. ABSOLUTE)
  set(DDPHOOK_CUDA_FOUND_ROOT ${root} PARENT_SCOPE)
  set(DDPHOOK_CUDA_FOUND_VERSION ${version} PARENT_SCOPE)

  # The packages only have versioned names.
  find_path(DDPHOOK_CUDART_INCLUDE cuda_runtime_api.h
    HINTS ${root}/include NO_DEFAULT_PATH)
  find_path(DDPHOOK_CUBLAS_INCLUDE cublas_v2.h HINTS ${root}/include)
  foreach(library IN ITEMS cudart cublas)
    string(TOUPPER ${library} upper)
    find_library(DDPHOOK_${upper}_LIBRARY
      NAMES ${library} lib${library}.so.${major} NAMES_PER_DIR HINTS ${root}
      PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib)
  endforeach()
  find_path(DDPHOOK_NCCL_INCLUDE nccl.h
    HINTS ${DDPHOOK_NCCL_ROOT} ${root} ${root}/../nccl PATH_SUFFIXES include)
  find_library(DDPHOOK_NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR
    HINTS ${DDPHOOK_NCCL_ROOT} ${root} ${root}/../nccl
    PATH_SUFFIXES lib64 lib lib/x86_64-linux-gnu)
  foreach(part IN ITEMS CUDART_INCLUDE CUDART_LIBRARY CUBLAS_INCLUDE
          CUBLAS_LIBRARY NCCL_INCLUDE NCCL_LIBRARY)
    if(NOT DDPHOOK_${part})
      string(REPLACE "_" "'s " missing ${part})
      string(TOLOWER ${missing} missing)
      set(${result} "${missing} was not found beside ${DDPHOOK_NVCC}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  file(STRINGS ${DDPHOOK_NCCL_INCLUDE}/nccl.h lines
    REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9]+" "." nccl "${lines}")
  string(REGEX REPLACE "^\\.|\\.$" "" nccl "${nccl}")
  if(nccl VERSION_LESS DDPHOOK_LEAST_NCCL)
    set(${result} "NCCL is ${nccl}, but ${DDPHOOK_LEAST_NCCL} or later is needed"
        PARENT_SCOPE)
    return()
  endif()
  set(DDPHOOK_NCCL_FOUND_VERSION ${nccl} PARENT_SCOPE)
  set(${result} "" PARENT_SCOPE)
endfunction()

if(DDPHOOK_CUDA)
  ddphook_find_cuda(ddphook_no_cuda)
  if(NOT ddphook_no_cuda)
    set(DDPHOOK_HAS_CUDA ON)
    message(STATUS "CUDA backend: CUDA ${DDPHOOK_CUDA_FOUND_VERSION} in ${DDPHOOK_CUDA_FOUND_ROOT}, NCCL ${DDPHOOK_NCCL_FOUND_VERSION}")
  elseif(DDPHOOK_CUDA STREQUAL AUTO)
    message(STATUS "CUDA backend: not built, ${ddphook_no_cuda}")
  else()
    message(FATAL_ERROR
      "DDPHOOK_CUDA is ${DDPHOOK_CUDA}, but ${ddphook_no_cuda}. Install the CUDA "
      "toolkit ${DDPHOOK_LEAST_CUDA} or later and NCCL ${DDPHOOK_LEAST_NCCL} or "
      "later, or set DDPHOOK_CUDA_ROOT to what tools/cuda-toolkit.sh prints: it "
      "makes a virtual environment with NVIDIA's packages. DDPHOOK_CUDA=OFF "
      "builds without the CUDA backend.")
  endif()
else()
  message(STATUS "CUDA backend: not built, DDPHOOK_CUDA is ${DDPHOOK_CUDA}")
endif()

if(DDPHOOK_HAS_CUDA)
  set(CMAKE_CUDA_COMPILER ${DDPHOOK_NVCC})
  # A100; H100 and H200; B200.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90 100 CACHE STRING
        "Kinds of GPUs that kernels are built for")
  endif()
  # nvcc looks for libraries in lib64, which the packages do not have.
  if(NOT EXISTS ${DDPHOOK_CUDA_FOUND_ROOT}/lib64)
    string(APPEND CMAKE_CUDA_FLAGS_INIT " -L${DDPHOOK_CUDA_FOUND_ROOT}/lib")
  endif()
  if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
  # nvcc links its test program with g++, which does not know -fuse-ld=lld-22. The
  # C++ compiler links everything here.
  set(ddphook_linker_flags "${CMAKE_EXE_LINKER_FLAGS}")
  string(REGEX REPLACE "-fuse-ld=[^ ]+" "" CMAKE_EXE_LINKER_FLAGS
         "${CMAKE_EXE_LINKER_FLAGS}")
  enable_language(CUDA)
  set(CMAKE_EXE_LINKER_FLAGS "${ddphook_linker_flags}")

  add_library(ddphook_cuda_toolkit INTERFACE)
  target_include_directories(ddphook_cuda_toolkit SYSTEM INTERFACE
    ${DDPHOOK_CUDART_INCLUDE} ${DDPHOOK_CUBLAS_INCLUDE} ${DDPHOOK_NCCL_INCLUDE})
  target_link_libraries(ddphook_cuda_toolkit INTERFACE
    ${DDPHOOK_CUDART_LIBRARY} ${DDPHOOK_CUBLAS_LIBRARY} ${DDPHOOK_NCCL_LIBRARY})
endif()
