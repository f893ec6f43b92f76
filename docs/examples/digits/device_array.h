// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory of the context's device. On the host it is memory as any other, so
// that the same program trains on CPUs and on GPUs.

#ifndef DIGITS_DEVICE_ARRAY_H
#define DIGITS_DEVICE_ARRAY_H

#include "checkpoint.h" // check()

#include "ddphook/runtime/runtime.h"

#include <cstddef>

// Must be gone before its context.
template <typename T>
class DeviceArray {
public:
  DeviceArray(ddphook_context_t *context, size_t size)
      : context(context), bytes(size * sizeof(T)) {
    check(ddphook_memory_alloc(context, bytes, &memory), "allocating memory");
  }
  ~DeviceArray() { ddphook_memory_free(context, memory, bytes); }
  DeviceArray(const DeviceArray &) = delete;
  DeviceArray &operator=(const DeviceArray &) = delete;

  T *data() const { return static_cast<T *>(memory); }

  // Copies all of it from or to the host.
  void write(const T *values) {
    check(ddphook_memory_write(context, memory, values, bytes),
          "copying to the device");
  }
  void read(T *values) const {
    check(ddphook_memory_read(context, values, memory, bytes),
          "copying from the device");
  }

private:
  ddphook_context_t *context;
  size_t bytes;
  void *memory = nullptr;
};

#endif // DIGITS_DEVICE_ARRAY_H
