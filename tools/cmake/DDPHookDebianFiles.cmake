# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# cpack runs this before it writes packages. It adds the copyright, the changelog and
# overrides of lintian to each Debian package, compresses manual pages, and moves zsh's
# functions to the directory that Debian's zsh searches for those of packages.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()

function(compress file)
  execute_process(COMMAND gzip -9nf ${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# The maintainer, as Debian's own tools find it.
if(NOT "$ENV{DEBEMAIL}" STREQUAL "")
  set(CPACK_PACKAGE_CONTACT "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()

set(overrides_tools
"# libMLIR lies in no system directory.
ddphook-tools: custom-library-search-path
# mlir-opt loads the plugin by its path.
ddphook-tools: sharedobject-in-library-directory-missing-soname\n")
set(overrides_cuda
"# CUDA and NCCL lie in no system directory.
ddphook-cuda: custom-library-search-path
# The runtime loads the backend by its path.
ddphook-cuda: sharedobject-in-library-directory-missing-soname\n")

# Obeys SOURCE_DATE_EPOCH.
string(TIMESTAMP today "%a, %d %b %Y %H:%M:%S +0000" UTC)

# Debian has one copy of the Apache License for all packages.
file(READ ${CPACK_DDPHOOK_SOURCE_DIR}/LICENSE license)
file(READ ${CPACK_DDPHOOK_SOURCE_DIR}/NOTICE notice)
string(FIND "${license}" "LLVM Exceptions to the Apache" exceptions)
if(exceptions LESS 0)
  message(FATAL_ERROR "expected the LLVM Exceptions in ddphook's LICENSE")
endif()
string(SUBSTRING "${license}" ${exceptions} -1 exceptions)

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  set(root ${CPACK_TEMPORARY_DIRECTORY}/${component}${CPACK_PACKAGING_INSTALL_PREFIX})
  if(NOT IS_DIRECTORY ${root})
    message(FATAL_ERROR "expected the files of ${component} in ${root}")
  endif()
  set(doc ${root}/share/doc/ddphook-${component})
  file(WRITE ${doc}/copyright
    "${notice}\n==============================================================================\n"
    "The Apache License v2.0 is /usr/share/common-licenses/Apache-2.0. To it come:\n\n"
    "${exceptions}")
  configure_file(${CPACK_DDPHOOK_SOURCE_DIR}/CHANGELOG.md ${doc}/changelog COPYONLY)
  compress(${doc}/changelog)
  file(WRITE ${doc}/changelog.Debian
    "ddphook (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium\n\n"
    "  * What is new in this version: changelog.gz.\n\n"
    " -- ${CPACK_PACKAGE_CONTACT}  ${today}\n")
  compress(${doc}/changelog.Debian)
  if(overrides_${component})
    file(WRITE ${root}/share/lintian/overrides/ddphook-${component}
         "${overrides_${component}}")
  endif()
  file(GLOB pages ${root}/share/man/man1/*.1)
  foreach(page IN LISTS pages)
    compress(${page})
  endforeach()
  if(IS_DIRECTORY ${root}/share/zsh/site-functions)
    file(RENAME ${root}/share/zsh/site-functions
         ${root}/share/zsh/vendor-completions)
  endif()
endforeach()
