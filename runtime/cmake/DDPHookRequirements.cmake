# Refuses what ddphook cannot be built with. Each message is one line: what is needed,
# what was found, what to do. Include it after project().
include_guard(GLOBAL)

# test/consumer/compilers.sh builds the runtime with each compiler from these on.
set(ddphook_least_GNU 11)
set(ddphook_least_Clang 14)
set(ddphook_least ${ddphook_least_${CMAKE_CXX_COMPILER_ID}})
if(ddphook_least AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS ddphook_least)
  message(FATAL_ERROR "ddphook needs g++ ${ddphook_least_GNU} or clang "
    "${ddphook_least_Clang} or later, but found ${CMAKE_CXX_COMPILER_ID} "
    "${CMAKE_CXX_COMPILER_VERSION} (${CMAKE_CXX_COMPILER}); name another compiler "
    "with -DCMAKE_CXX_COMPILER")
endif()

# ddphook_require(PACKAGE FOUND DEBIAN): refuses to go on unless the variable FOUND says
# that PACKAGE was found; Debian has it in the package DEBIAN.
function(ddphook_require package found debian)
  if(NOT ${found})
    message(FATAL_ERROR "the runtime needs ${package}, but found none; Debian has it "
      "in ${debian}, and -DCMAKE_PREFIX_PATH says where it is elsewhere")
  endif()
endfunction()
