// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The host backend behind memory that has no permissions outside of the table's
// functions: a runtime or compiled code that reads or writes what belongs to
// the device dies where it does so. And every array that a function is given
// must lie in such memory: one that was allocated elsewhere is an error, as it
// would be on a GPU. Collectives that are started end at once.
//
// Options: limit=BYTES of memory; streams=1 takes any address as a stream;
// fail=N lets the Nth synchronize() fail; abort_ms=N lets abort() take N ms
// more.

#include "host_backend.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <type_traits>
#include <unistd.h>

namespace {

using Error = ddphook_backend_error_t;

const ddphook_backend_t &host() { return ddphook::host::hostBackend(); }

ddphook_status_t fail(ddphook_status_t status, Error *error,
                      const std::string &message) {
  std::snprintf(error->message, sizeof(error->message), "%s", message.c_str());
  return status;
}

/// What options say; of the process's one device.
struct Options {
  uint64_t limit = std::numeric_limits<uint64_t>::max();
  bool hasStreams = false;
  int64_t failAt = 0; // 0: never
  int64_t abortMilliseconds = 0;
};

/// All memory of the process's devices.
class Memory {
public:
  /// Lets the calling thread at it while it lives.
  class Access {
  public:
    explicit Access(Memory &memory) : memory(memory), lock(memory.mutex) {
      if (memory.depth++ == 0)
        memory.protect(PROT_READ | PROT_WRITE);
    }
    ~Access() {
      if (--memory.depth == 0)
        memory.protect(PROT_NONE);
    }
    Access(const Access &) = delete;
    Access &operator=(const Access &) = delete;

  private:
    Memory &memory;
    std::lock_guard<std::recursive_mutex> lock;
  };

  void *allocate(uint64_t bytes, uint64_t alignment) {
    const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const uint64_t unit = alignment > page ? alignment : page;
    const uint64_t size = (bytes / page + 1) * page;
    void *mapped = ::mmap(nullptr, size + unit, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED)
      return nullptr;
    char *begin = static_cast<char *>(mapped);
    char *aligned = begin + (unit - reinterpret_cast<uintptr_t>(begin) % unit);
    std::lock_guard<std::recursive_mutex> lock(mutex);
    // The address behind the last byte belongs to it: an array of nothing may
    // be there.
    blocks[aligned] = {begin, size + unit, size};
    return aligned;
  }

  void release(void *memory) {
    std::lock_guard<std::recursive_mutex> lock(mutex);
    auto block = blocks.find(static_cast<char *>(memory));
    if (block == blocks.end())
      return;
    ::munmap(block->second.mapped, block->second.mappedSize);
    blocks.erase(block);
  }

  bool contains(const void *address) {
    std::lock_guard<std::recursive_mutex> lock(mutex);
    const char *at = static_cast<const char *>(address);
    auto next = blocks.upper_bound(const_cast<char *>(at));
    if (next == blocks.begin())
      return false;
    --next;
    return at < next->first + next->second.size;
  }

private:
  struct Block {
    void *mapped;
    uint64_t mappedSize;
    uint64_t size;
  };

  void protect(int protection) {
    for (auto &[address, block] : blocks)
      ::mprotect(address, block.size, protection);
  }

  std::recursive_mutex mutex;
  int depth = 0;
  std::map<char *, Block> blocks;
};

Options options;
Memory memory;
uint64_t allocatedBytes = 0;
int64_t synchronizations = 0;
int64_t tickets = 0;

bool isGuarded(const void *array) { return !array || memory.contains(array); }
template <typename T>
bool isGuarded(T) {
  return true;
}

/// The last of a function's parameters, which is where its error goes.
template <typename... Args>
Error *errorOf(Args... args) {
  Error *error = nullptr;
  ((error =
        [&] {
          if constexpr (std::is_same_v<Args, Error *>)
            return args;
          else
            return error;
        }()),
   ...);
  return error;
}

/// A function of the host backend, given arrays of this one.
template <auto Member>
struct Forward;
template <typename... Args, ddphook_status_t (*ddphook_backend_t::*Member)(
                                ddphook_device_t *, Args...)>
struct Forward<Member> {
  static ddphook_status_t call(ddphook_device_t *device, Args... args) {
    if (!(isGuarded(args) && ...))
      return fail(DDPHOOK_INVALID_ARGUMENT, errorOf(args...),
                  "expected arrays in the device's memory, but got another "
                  "address");
    Memory::Access access(memory);
    return (host().*Member)(device, args...);
  }
};

ddphook_status_t parseOption(const std::string &name, const std::string &value,
                             Error *error) {
  if (name == "limit")
    options.limit = std::stoull(value);
  else if (name == "streams")
    options.hasStreams = value == "1";
  else if (name == "fail")
    options.failAt = std::stoll(value);
  else if (name == "abort_ms")
    options.abortMilliseconds = std::stoll(value);
  else
    return fail(DDPHOOK_INVALID_ARGUMENT, error,
                "the guarded backend has no option '" + name + "'");
  return DDPHOOK_OK;
}

ddphook_status_t parseOptions(const std::string &text, Error *error) {
  options = Options();
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string option = text.substr(at, end - at);
    const size_t equals = std::min(option.find('='), option.size() - 1);
    const ddphook_status_t status =
        parseOption(option.substr(0, equals), option.substr(equals + 1), error);
    if (status != DDPHOOK_OK)
      return status;
    at = end + 1;
  }
  return DDPHOOK_OK;
}

ddphook_status_t createDevice(const ddphook_device_config_t *config,
                              ddphook_device_t **device, Error *error) {
  const ddphook_status_t status = parseOptions(config->options, error);
  if (status != DDPHOOK_OK)
    return status;
  synchronizations = 0;
  ddphook_device_config_t hostConfig = *config;
  hostConfig.options = "";
  return host().device_create(&hostConfig, device, error);
}

ddphook_status_t allocate(ddphook_device_t *, uint64_t bytes,
                          uint64_t alignment, void **result, Error *error) {
  if (bytes > options.limit - allocatedBytes ||
      !(*result = memory.allocate(bytes, alignment)))
    return fail(DDPHOOK_RESOURCE_EXHAUSTED, error,
                "cannot allocate " + std::to_string(bytes) +
                    " bytes of guarded memory");
  allocatedBytes += bytes;
  return DDPHOOK_OK;
}

void release(ddphook_device_t *, void *array, uint64_t bytes) {
  allocatedBytes -= bytes;
  memory.release(array);
}

ddphook_status_t write(ddphook_device_t *, void *array, const void *from,
                       uint64_t bytes, Error *error) {
  if (!memory.contains(array) || memory.contains(from))
    return fail(DDPHOOK_INVALID_ARGUMENT, error,
                "expected to copy from the host to the device");
  Memory::Access access(memory);
  std::memcpy(array, from, bytes);
  return DDPHOOK_OK;
}

ddphook_status_t read(ddphook_device_t *, void *to, const void *array,
                      uint64_t bytes, Error *error) {
  if (!memory.contains(array) || memory.contains(to))
    return fail(DDPHOOK_INVALID_ARGUMENT, error,
                "expected to copy from the device to the host");
  Memory::Access access(memory);
  std::memcpy(to, array, bytes);
  return DDPHOOK_OK;
}

ddphook_status_t setStream(ddphook_device_t *, void *stream, Error *error) {
  if (stream && !options.hasStreams)
    return fail(DDPHOOK_UNSUPPORTED, error,
                "the guarded backend has no streams without streams=1");
  return DDPHOOK_OK;
}

ddphook_status_t synchronize(ddphook_device_t *device, Error *error) {
  if (++synchronizations == options.failAt)
    return fail(DDPHOOK_INTERNAL, error, "the device failed as it was told to");
  return host().synchronize(device, error);
}

/// Runs also what is started.
ddphook_status_t runCollective(ddphook_device_t *device,
                               ddphook_communicator_t *communicator,
                               const ddphook_collective_t *operation,
                               const void *in, void *out, int64_t *ticket,
                               Error *error) {
  if (ticket)
    *ticket = ++tickets;
  return Forward<&ddphook_backend_t::collective>::call(
      device, communicator, operation, in, out, /*ticket=*/nullptr, error);
}

ddphook_status_t wait(ddphook_device_t *, int64_t ticket, Error *error) {
  return ticket <= tickets ? DDPHOOK_OK
                           : fail(DDPHOOK_INVALID_ARGUMENT, error,
                                  "no collective has that ticket");
}

void abortDevice(ddphook_device_t *device, ddphook_status_t status,
                 const char *message) {
  std::this_thread::sleep_for(
      std::chrono::milliseconds(options.abortMilliseconds));
  host().abort(device, status, message);
}

ddphook_backend_t makeBackend() {
  ddphook_backend_t table = host();
  table.name = "guarded";
  table.memory_is_host = 0;
  table.device_create = createDevice;
  table.memory_alloc = allocate;
  table.memory_free = release;
  table.memory_write = write;
  table.memory_read = read;
  table.stream_set = setStream;
  table.synchronize = synchronize;
  table.abort = abortDevice;
  table.collective = runCollective;
  table.wait = wait;
#define DDPHOOK_DEVICE_FUNCTION(name, ...)                                     \
  table.name = Forward<&ddphook_backend_t::name>::call;
#include "ddphook/runtime/functions.inc"
  table.is_finite = Forward<&ddphook_backend_t::is_finite>::call;
  table.sum_squares = Forward<&ddphook_backend_t::sum_squares>::call;
  return table;
}

} // namespace

extern "C" __attribute__((visibility("default"))) const ddphook_backend_t *
ddphook_backend_get() {
  static const ddphook_backend_t table = makeBackend();
  return &table;
}
