# DDPHOOK_SANITIZE: builds all of ddphook's own code with a sanitizer, but not
# LLVM and other libraries. Must be included before the first target.
set(DDPHOOK_SANITIZE "" CACHE STRING
    "Build with a sanitizer: address (with undefined) or thread")
option(DDPHOOK_BUILD_FUZZERS
       "Build the libFuzzer targets; with a sanitizer, all for coverage, too" OFF)

set(ddphook_sanitizers)
if(DDPHOOK_SANITIZE STREQUAL "address")
  # vptr and function check type information that classes of LLVM and other
  # libraries may not have.
  set(ddphook_sanitizers -fsanitize=address,undefined -fno-sanitize=vptr,function
      -fno-sanitize-recover=all)
  # Without these, an index into a std::vector beyond its size but within its
  # capacity goes unnoticed.
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
elseif(DDPHOOK_SANITIZE STREQUAL "thread")
  set(ddphook_sanitizers -fsanitize=thread)
elseif(DDPHOOK_SANITIZE)
  message(FATAL_ERROR
          "expected DDPHOOK_SANITIZE to be address or thread, but got ${DDPHOOK_SANITIZE}")
endif()
if(DDPHOOK_BUILD_FUZZERS AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "expected clang to build the libFuzzer targets, but got "
                      "${CMAKE_CXX_COMPILER_ID}")
endif()
if(DDPHOOK_BUILD_FUZZERS AND DDPHOOK_SANITIZE)
  list(APPEND ddphook_sanitizers -fsanitize=fuzzer-no-link)
endif()
if(ddphook_sanitizers)
  add_compile_options(${ddphook_sanitizers} -fno-omit-frame-pointer)
  add_link_options(${ddphook_sanitizers})
endif()
