/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Lets a host program with its own allocator, such as PyTorch, provide the
 * device memory of the runtime: ddphook_options_t.allocator in runtime.h. */

#ifndef DDPHOOK_RUNTIME_ALLOCATOR_H
#define DDPHOOK_RUNTIME_ALLOCATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The source of all memory of a context's device: the arena and states of
 * modules, staging buffers, matrix lists, scratch memory, and the results of
 * ddphook_memory_alloc(). It provides neither host memory nor the memory that
 * CUDA, cuBLAS and NCCL allocate themselves.
 *
 * Calls. Threads that call the runtime call both functions, during such a call,
 * with the device current and in a relaxed capture mode. A context makes one
 * call at a time; contexts that share an allocator may call it concurrently.
 * The functions must not throw, must not call the runtime for the same context,
 * and must not wait for other ranks. Steps allocate nothing.
 *
 * Order. `device` is CUDA's number of the device. `stream` is the cudaStream_t
 * of the memory; it is the same for all calls of a context, has no other work,
 * and is destroyed with the context. As with cudaMallocAsync(), the memory may
 * become usable, and may be freed, in the order of that stream. The runtime
 * waits for the stream before it uses the memory anywhere else, and all work on
 * the memory has ended when it is freed.
 *
 * Ownership. The context frees each address that it was given once, in
 * ddphook_context_destroy() at the latest, and calls neither function
 * afterwards. It never frees two things: memory that the device may still use
 * because its work did not end after a failure (the log says so), and memory of
 * which the allocator returned a part twice. */
typedef struct ddphook_allocator {
  size_t struct_size; /* sizeof(ddphook_allocator_t) */
  void *user;         /* passed to the functions */
  /* Returns at least `bytes` bytes (at least 1) of memory of `device` at an
   * address that is a multiple of 256, or null if there is not enough:
   * RESOURCE_EXHAUSTED. The contents are arbitrary. Other memory is freed at
   * once and is INVALID_ARGUMENT: a misaligned address, host memory or memory
   * of another device. */
  void *(*alloc)(void *user, size_t bytes, int32_t device, void *stream);
  /* Frees memory that alloc() returned for `bytes` bytes. */
  void (*free)(void *user, void *memory, size_t bytes, int32_t device,
               void *stream);
} ddphook_allocator_t;

#ifdef __cplusplus
}
#endif

#endif /* DDPHOOK_RUNTIME_ALLOCATOR_H */
