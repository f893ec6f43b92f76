// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "backend/backend_loader.h"

#include "../../backends/host/host_backend.h"

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>
#include <dlfcn.h>
#include <iterator>
#include <unistd.h>

using namespace ddphook;

/// Returns the directory of the library or program that contains the runtime,
/// with a trailing slash; empty if it is unknown.
static std::string ownDirectory() {
  Dl_info info = {};
  std::string path;
  if (::dladdr(reinterpret_cast<const void *>(&ddphook_status_name), &info) !=
          0 &&
      info.dli_fname)
    path = info.dli_fname;
  // A program that was found through PATH is known only by its name.
  if (path.find('/') == std::string::npos) {
    char target[PATH_MAX];
    const ssize_t size = ::readlink("/proc/self/exe", target, sizeof(target));
    path.assign(target, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  }
  return path.substr(0, path.rfind('/') + 1);
}

/// Returns the path of a backend's library: next to the runtime's library, in
/// `lib` if the program contains the runtime, or its name for a normal search.
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

namespace {
/// A function of the table, and the offset of its pointer.
struct Slot {
  const char *name;
  size_t offset;

  bool isIn(const ddphook_backend_t &table) const {
    void *pointer;
    std::memcpy(&pointer, reinterpret_cast<const char *>(&table) + offset,
                sizeof(pointer));
    return pointer != nullptr;
  }
};
} // namespace

#define SLOT(function) {#function, offsetof(ddphook_backend_t, function)}

/// The functions that every backend must have.
static constexpr Slot kFunctions[] = {SLOT(device_create),
                                      SLOT(device_destroy),
                                      SLOT(memory_alloc),
                                      SLOT(memory_free),
                                      SLOT(memory_write),
                                      SLOT(memory_read),
                                      SLOT(stream_set),
                                      SLOT(synchronize),
                                      SLOT(communicator_create),
                                      SLOT(communicator_destroy),
#define DDPHOOK_DEVICE_FUNCTION(name, ...) SLOT(name),
#include "ddphook/runtime/functions.inc"
                                      SLOT(is_finite),
                                      SLOT(matrices_create),
                                      SLOT(matrices_destroy),
                                      SLOT(collective),
                                      SLOT(wait),
                                      SLOT(abort)};

/// The functions of which a backend must have all or none.
static constexpr Slot kKernelFunctions[] = {SLOT(kernels_load),
                                            SLOT(kernels_unload), SLOT(launch)};

/// The functions that a backend may have.
static constexpr Slot kOptionalFunctions[] = {SLOT(sum_squares),
                                              SLOT(collective_staged)};

#undef SLOT

static_assert(offsetof(ddphook_backend_t, device_create) +
                      (std::size(kFunctions) + std::size(kKernelFunctions) +
                       std::size(kOptionalFunctions)) *
                          sizeof(void (*)()) ==
                  sizeof(ddphook_backend_t),
              "expected every function of the table in one of the lists");

Status ddphook::checkBackend(const std::string &file,
                             const ddphook_backend_t *table) {
  if (!table)
    return unsupported("%s provides no backend", file.c_str());
  if (table->abi_version != DDPHOOK_BACKEND_ABI_VERSION ||
      table->struct_size != sizeof(ddphook_backend_t) ||
      table->collective_size != sizeof(ddphook_collective_t))
    return unsupported(
        "expected %s to have version %d of the backend ABI, but got "
        "version %u of %zu bytes, with collectives of %zu bytes",
        file.c_str(), DDPHOOK_BACKEND_ABI_VERSION, table->abi_version,
        table->struct_size, table->collective_size);
  if (!table->name)
    return unsupported("%s has no name", file.c_str());
  const auto hasNot = [&](const Slot &slot) { return !slot.isIn(*table); };
  const auto missing =
      std::find_if(std::begin(kFunctions), std::end(kFunctions), hasNot);
  if (missing != std::end(kFunctions))
    return unsupported("%s lacks the function %s", file.c_str(), missing->name);
  const auto lacking = std::find_if(std::begin(kKernelFunctions),
                                    std::end(kKernelFunctions), hasNot);
  const bool hasKernels = !std::all_of(std::begin(kKernelFunctions),
                                       std::end(kKernelFunctions), hasNot);
  if (hasKernels && lacking != std::end(kKernelFunctions))
    return unsupported("%s has kernels, but lacks the function %s",
                       file.c_str(), lacking->name);
  return Status::ok();
}

Status ddphook::loadBackend(const std::string &name,
                            const ddphook_backend_t **backend) {
  if (name == "host") {
    *backend = &host::hostBackend();
    return Status::ok();
  }
  // Only a name, not a path: whoever sets it must not be able to load any file.
  const char *allowed = "abcdefghijklmnopqrstuvwxyz0123456789_";
  if (name.empty() || name.find_first_not_of(allowed) != std::string::npos)
    return invalid(
        "expected a backend's name of lower-case letters, digits and "
        "underscores, but got '%s'",
        name.c_str());
  const std::string file = "libddphook_backend_" + name + ".so";
  void *library = ::dlopen(findLibrary(file).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return unsupported(
        "the backend '%s' is not available ('host' is built in): %s%s",
        name.c_str(), ::dlerror(),
        name == "cuda" ? "; pip install 'ddphook[cuda]' brings it to a "
                         "wheel, DDPHOOK_CUDA=ON builds it"
                       : "");
  auto get = reinterpret_cast<ddphook_backend_get_t>(
      ::dlsym(library, DDPHOOK_BACKEND_GET_SYMBOL));
  Status status = get ? checkBackend(file, get())
                      : unsupported("%s has no function %s", file.c_str(),
                                    DDPHOOK_BACKEND_GET_SYMBOL);
  if (!status.isOk()) {
    ::dlclose(library);
    return status;
  }
  *backend = get();
  return status;
}
