# ddphook_compile_together(TARGET): compiles the files of a library together, ten
# at a time, if DDPHOOK_UNITY_BUILD is set.
#
# Each file pays for reading the headers and for compiling what it uses of them;
# ten files together pay once. But after a change ten are compiled instead of one,
# compile_commands.json lacks them, and ccache finds them only in checkouts with
# the same path. So this is for directories that are built once.
option(DDPHOOK_UNITY_BUILD
       "Compile the files of a library together: less work for a first build" OFF)

function(ddphook_compile_together target)
  if(DDPHOOK_UNITY_BUILD)
    set_target_properties(${target} PROPERTIES
      UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
  endif()
endfunction()
