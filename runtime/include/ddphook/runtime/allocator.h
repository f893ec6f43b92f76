/*===- allocator.h - memory of a device from the caller -----------*- C -*-===*
 *
 * Part of the ddphook project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * How a host program that has an allocator of its own, as PyTorch has, lends
 * the runtime memory of a device: ddphook_options_t.allocator in runtime.h.
 *
 *===----------------------------------------------------------------------===*/
#ifndef DDPHOOK_RUNTIME_ALLOCATOR_H
#define DDPHOOK_RUNTIME_ALLOCATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where all memory of a context's device comes from: the arena and the states
 * of modules, staging buffers, matrix lists, scratch memory, and what
 * ddphook_memory_alloc() gives. What CUDA, cuBLAS and NCCL allocate for
 * themselves is not a part of it, nor is memory of the host.
 *
 * Calls. Both functions are called by threads that call the runtime, during
 * such a call, with the device as their current one and with a relaxed capture
 * mode. A context calls one at a time; contexts that share an allocator may
 * call it at the same time. They must not throw, must not call the runtime
 * for the same context, and must not wait for other ranks. Steps allocate
 * nothing.
 *
 * Order. `device` is the device's number as CUDA counts, `stream` the
 * cudaStream_t that the memory belongs to: always the same one of a context,
 * which has no other work and is gone when the context is. The memory may
 * become usable, and may be freed, in the order of that stream, as that of
 * cudaMallocAsync() is. The runtime waits for the stream before it uses the
 * memory anywhere else, and all work on the memory has ended when it is freed.
 *
 * Ownership. The context frees what it was given, each address once, at the
 * latest in ddphook_context_destroy(), and calls neither function afterwards.
 * Two things it never frees: memory that the device may still use because its
 * work did not end after a failure (the log says so), and memory of which the
 * allocator gave a part twice. */
typedef struct ddphook_allocator {
  size_t struct_size; /* sizeof(ddphook_allocator_t) */
  void *user;         /* passed to the functions */
  /* Gives at least `bytes` bytes, which are at least 1, of memory of `device`
   * at an address that 256 divides, or null where there is not as much:
   * RESOURCE_EXHAUSTED. Its contents do not matter. Other memory is given back
   * at once and is INVALID_ARGUMENT: an address that 256 does not divide,
   * memory of the host or of another device. */
  void *(*alloc)(void *user, size_t bytes, int32_t device, void *stream);
  /* Takes back memory that alloc() gave for these `bytes`. */
  void (*free)(void *user, void *memory, size_t bytes, int32_t device,
               void *stream);
} ddphook_allocator_t;

#ifdef __cplusplus
}
#endif

#endif /* DDPHOOK_RUNTIME_ALLOCATOR_H */
