# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Generates manual pages and completion for bash, zsh and fish from the tools'
# --help, so every build of the tools includes them. Builds with a sanitizer are not
# installed and have none.
if(DDPHOOK_SANITIZE)
  return()
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)

set(ddphook_tools ddphook-opt ddphook-cc ddphook-run ddphook-exec ddphook-trace
    ddphook-bench ddphook-report ddphook-lsp-server)
set(ddphook_manuals ${CMAKE_BINARY_DIR}/manuals)
set(ddphook_paths)
set(ddphook_made)
foreach(tool IN LISTS ddphook_tools)
  if(TARGET ${tool})
    list(APPEND ddphook_paths $<TARGET_FILE:${tool}>)
  else() # a script
    list(APPEND ddphook_paths ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${tool})
  endif()
  list(APPEND ddphook_made
    ${ddphook_manuals}/man1/${tool}.1 ${ddphook_manuals}/bash/${tool}
    ${ddphook_manuals}/zsh/_${tool} ${ddphook_manuals}/fish/${tool}.fish)
endforeach()
add_custom_command(
  OUTPUT ${ddphook_made}
  COMMAND Python3::Interpreter
          ${PROJECT_SOURCE_DIR}/tools/generate-manuals.py
          --version=${PROJECT_VERSION} --out=${ddphook_manuals} ${ddphook_paths}
  DEPENDS ${ddphook_paths} ${PROJECT_SOURCE_DIR}/tools/generate-manuals.py
  COMMENT "Making manual pages and completion for shells"
  VERBATIM)
add_custom_target(ddphook-manuals ALL DEPENDS ${ddphook_made})

# These tools are in the runtime's component, and so are their files.
foreach(tool IN LISTS ddphook_tools)
  set(component tools)
  if(tool MATCHES "^ddphook-(exec|trace)$")
    set(component runtime)
  endif()
  install(FILES ${ddphook_manuals}/man1/${tool}.1
    DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
  install(FILES ${ddphook_manuals}/bash/${tool}
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
    COMPONENT ${component})
  install(FILES ${ddphook_manuals}/zsh/_${tool}
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions
    COMPONENT ${component})
  install(FILES ${ddphook_manuals}/fish/${tool}.fish
    DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
    COMPONENT ${component})
endforeach()
