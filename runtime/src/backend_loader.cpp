//===- backend_loader.cpp - finds a backend by its name -------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loads a backend's shared library and checks its table.
//
//===----------------------------------------------------------------------===//
#include "backend_loader.h"

#include "../backends/host/host_backend.h"

#include <algorithm>
#include <climits>
#include <dlfcn.h>
#include <unistd.h>

using namespace ddphook;

/// The directory of the library or program that holds the runtime, with a slash
/// behind it; empty when nobody knows.
static std::string ownDirectory() {
  Dl_info info = {};
  std::string path;
  if (::dladdr(reinterpret_cast<const void *>(&ddphook_status_name), &info) !=
          0 &&
      info.dli_fname)
    path = info.dli_fname;
  // A program that was found through PATH is known by its name alone.
  if (path.find('/') == std::string::npos) {
    char target[PATH_MAX];
    const ssize_t size = ::readlink("/proc/self/exe", target, sizeof(target));
    path.assign(target, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  }
  return path.substr(0, path.rfind('/') + 1);
}

/// Where a backend's library is: beside the runtime's, or, for a program that
/// holds the runtime, among the libraries; else wherever the system looks.
static std::string findLibrary(const std::string &file) {
  const std::string own = ownDirectory();
  if (own.empty())
    return file;
  for (const char *directory : {"", "../lib/", DDPHOOK_LIBRARY_DIRECTORY}) {
    const std::string path = own + directory + file;
    if (::access(path.c_str(), R_OK) == 0)
      return path;
  }
  return file;
}

static Status checkTable(const std::string &file,
                         const ddphook_backend_t *table) {
  if (!table)
    return error(DDPHOOK_UNSUPPORTED, "%s provides no backend", file.c_str());
  if (table->abi_version != DDPHOOK_BACKEND_ABI_VERSION ||
      table->struct_size < sizeof(ddphook_backend_t))
    return error(DDPHOOK_UNSUPPORTED,
                 "expected %s to have version %d of the backend ABI, but got "
                 "version %u of %zu bytes",
                 file.c_str(), DDPHOOK_BACKEND_ABI_VERSION, table->abi_version,
                 table->struct_size);
  bool isWhole =
      table->name && table->device_create && table->device_destroy &&
      table->memory_alloc && table->memory_free && table->memory_write &&
      table->memory_read && table->memory_copy && table->stream_set &&
      table->synchronize && table->communicator_create &&
      table->communicator_destroy && table->cast && table->divide &&
      table->scale && table->add && table->subtract && table->is_finite &&
      table->matrices_create && table->all_reduce && table->all_reduce_start &&
      table->wait && table->abort;
  if (!isWhole)
    return error(DDPHOOK_UNSUPPORTED, "%s lacks a function", file.c_str());
  return Status::ok();
}

Status ddphook::loadBackend(const std::string &name,
                            const ddphook_backend_t **backend) {
  if (name == "host") {
    *backend = &host::hostBackend();
    return Status::ok();
  }
  // A name, not a path: whoever sets it may not choose any file.
  const char *allowed = "abcdefghijklmnopqrstuvwxyz0123456789_";
  if (name.empty() || name.find_first_not_of(allowed) != std::string::npos)
    return error(DDPHOOK_INVALID_ARGUMENT,
                 "expected a backend's name of lower-case letters, digits and "
                 "underscores, but got '%s'",
                 name.c_str());
  const std::string file = "libddphook_backend_" + name + ".so";
  void *library = ::dlopen(findLibrary(file).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return error(DDPHOOK_UNSUPPORTED,
                 "the backend '%s' is not available ('host' is built in): %s",
                 name.c_str(), ::dlerror());
  auto get = reinterpret_cast<ddphook_backend_get_t>(
      ::dlsym(library, DDPHOOK_BACKEND_GET_SYMBOL));
  Status status = get ? checkTable(file, get())
                      : error(DDPHOOK_UNSUPPORTED, "%s has no function %s",
                              file.c_str(), DDPHOOK_BACKEND_GET_SYMBOL);
  if (!status.isOk()) {
    ::dlclose(library);
    return status;
  }
  *backend = get();
  return status;
}
