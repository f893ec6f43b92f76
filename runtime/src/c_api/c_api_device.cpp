// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory of a context's device and the queue on which its work runs, for hosts
// that do not know the kind of device.

#include "c_api/c_api.h"

using namespace ddphook;

/// The alignment in bytes, enough for every vector load of a device's kernels.
static constexpr uint64_t alignment = 256;

ddphook_status_t ddphook_memory_alloc(ddphook_context_t *context, size_t bytes,
                                      void **memory) {
  return publish([&] {
    if (!context)
      return nullArgument("a context");
    if (!memory)
      return nullArgument("an output pointer for the address");
    *memory = nullptr;
    if (context->impl->hasFailed())
      return context->impl->failure();
    return context->impl->call(&ddphook_backend_t::memory_alloc, bytes,
                               alignment, memory);
  });
}

void ddphook_memory_free(ddphook_context_t *context, void *memory,
                         size_t bytes) {
  if (context && memory && !context->impl->isForked())
    context->impl->backend().memory_free(context->impl->device(), memory,
                                         bytes);
}

/// Copies between the host and the device after all earlier work.
template <typename FunctionT>
static ddphook_status_t copy(ddphook_context_t *context, FunctionT function,
                             void *to, const void *from, size_t bytes) {
  return publish([&] {
    if (!context)
      return nullArgument("a context");
    if (bytes == 0)
      return Status::ok();
    if (!to || !from)
      return nullArgument("two arrays");
    DDPHOOK_TRY(context->impl->synchronize());
    return context->impl->call(function, to, from, bytes);
  });
}

ddphook_status_t ddphook_memory_write(ddphook_context_t *context, void *memory,
                                      const void *host, size_t bytes) {
  return copy(context, &ddphook_backend_t::memory_write, memory, host, bytes);
}

ddphook_status_t ddphook_memory_read(ddphook_context_t *context, void *host,
                                     const void *memory, size_t bytes) {
  return copy(context, &ddphook_backend_t::memory_read, host, memory, bytes);
}

ddphook_status_t ddphook_context_set_stream(ddphook_context_t *context,
                                            void *stream) {
  return publish(context,
                 [&](Context &impl) { return impl.setStream(stream); });
}

ddphook_status_t ddphook_synchronize(ddphook_context_t *context) {
  return publish(context, [](Context &impl) { return impl.synchronize(); });
}
