# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Generates manual pages and completion for bash, zsh and fish from the tools'
# --help, so every build of the tools includes them. Builds with a sanitizer are not
# installed and have none.
if(DDPHOOK_SANITIZE)
  return()
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)

set(ddphook_tools ddphook-opt ddphook-cc ddphook-run ddphook-exec ddphook-trace
    ddphook-bench ddphook-report ddphook-lsp-server ddphook-reduce)
set(ddphook_manuals ${CMAKE_BINARY_DIR}/manuals)
set(ddphook_destinations ${CMAKE_INSTALL_MANDIR}/man1
    ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
    ${CMAKE_INSTALL_DATADIR}/zsh/site-functions
    ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
set(ddphook_paths)
set(ddphook_made)
foreach(tool IN LISTS ddphook_tools)
  list(APPEND ddphook_paths ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${tool})
  set(component tools)
  if(tool MATCHES "^ddphook-(exec|trace)$")
    set(component runtime)
  endif()
  set(files man1/${tool}.1 bash/${tool} zsh/_${tool} fish/${tool}.fish)
  list(TRANSFORM files PREPEND ${ddphook_manuals}/)
  list(APPEND ddphook_made ${files})
  foreach(file destination IN ZIP_LISTS files ddphook_destinations)
    install(FILES ${file} DESTINATION ${destination} COMPONENT ${component})
  endforeach()
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
