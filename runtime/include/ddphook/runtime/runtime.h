/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The life of a training program:
 *
 *   ddphook_context_t *context;
 *   ddphook_context_create(NULL, &context);      // joins the job
 *   ddphook_module_load(context, &step_module);  // compares plans
 *   for (…) step_step(…);                        // the compiled entry point
 *   ddphook_module_unload(&step_module);
 *   ddphook_context_destroy(context);
 *
 * Threads: a context and its modules belong to one thread at a time. */

#ifndef DDPHOOK_RUNTIME_RUNTIME_H
#define DDPHOOK_RUNTIME_RUNTIME_H

#include "ddphook/runtime/allocator.h"
#include "ddphook/runtime/compiled.h"
#include "ddphook/runtime/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddphook_context ddphook_context_t;

/* A key-value store that the ranks of a job already have, such as PyTorch's.
 * Keys and values are texts without white space; all keys begin with
 * "ddphook/". Every context needs a separate store, or a separate part of one,
 * because all contexts use the same keys. */
typedef struct ddphook_store {
  size_t struct_size; /* sizeof(ddphook_store_t) */
  void *user;         /* passed to the functions */
  /* Sets `key`. */
  ddphook_status_t (*set)(void *user, const char *key, const char *value);
  /* Waits until `key` is set, and copies its value and a null to `value`, which
   * has `capacity` bytes. Returns DEADLINE_EXCEEDED if it is not set within
   * `timeout_s` seconds, and is then called again. */
  ddphook_status_t (*get)(void *user, const char *key, double timeout_s,
                          char *value, size_t capacity);
} ddphook_store_t;

/* Zero-initialise the struct, set struct_size, then set the fields that you
 * need. A field that is null or zero is taken from the environment variable
 * named next to it, or else has its default. */
typedef struct ddphook_options {
  size_t struct_size; /* sizeof(ddphook_options_t) */
  /* "host" (default) or the name of another backend (DDPHOOK_BACKEND). */
  const char *backend;
  /* "auto" (default): shared memory if all ranks of a group run on one machine,
   * otherwise Gloo over TCP; "shm" or "gloo" allow only that transport
   * (DDPHOOK_TRANSPORT). */
  const char *transport;
  /* Deadline of every operation that waits for a peer, in seconds; default 300
   * (DDPHOOK_TIMEOUT_S). */
  double timeout_s;
  /* The process's identity in the job. If world_size is 0, rank, world size and
   * local rank come from the launch variables of torchrun, Open MPI, PMI or
   * Slurm; without any, the job is a world of one. */
  int32_t rank;
  int32_t world_size;
  int32_t local_rank;
  const char *master_addr;
  int32_t master_port;
  /* "name=value,name=value" for the backend, whose page in docs/ lists the
   * options (DDPHOOK_BACKEND_OPTIONS). */
  const char *backend_options;
  /* How the ranks meet without launch variables: rank and world_size must be
   * set, and every rank must pass a store. Through it rank 0 publishes where it
   * listens, by default at any free port, with a secret for this context;
   * master_addr and master_port matter only on rank 0. Used only while the
   * context is created, by the calling thread. */
  const ddphook_store_t *store;
  /* The file to which rank 0 writes a trace of all ranks when it leaves the job
   * (DDPHOOK_TRACE): docs/tracing.md. Until then each rank has a file next to
   * it, so all ranks must pass a name. */
  const char *trace;
  /* The source of this rank's device memory; null for the device's own
   * functions. The struct is copied; what it points to must outlive the
   * context. UNSUPPORTED on backends with host memory; INVALID_ARGUMENT
   * together with a backend option that requires special memory (CUDA:
   * register=1). */
  const ddphook_allocator_t *allocator;
} ddphook_options_t;

/* Joins the job: determines rank and world size, connects to the store of rank
 * 0, and waits until all ranks have joined. On success *context is the new
 * context, which ddphook_context_destroy() frees. BAD_ENVIRONMENT if launch
 * variables contradict each other; DEADLINE_EXCEEDED if a rank never joins.
 * `options` may be null. */
DDPHOOK_API ddphook_status_t ddphook_context_create(
    const ddphook_options_t *options, ddphook_context_t **context);

/* Leaves the job and frees the context. Unloads modules that are still loaded.
 * `context` may be null. */
DDPHOOK_API void ddphook_context_destroy(ddphook_context_t *context);

DDPHOOK_API int32_t ddphook_context_rank(const ddphook_context_t *context);
DDPHOOK_API int32_t
ddphook_context_world_size(const ddphook_context_t *context);

/* Collective: waits until all ranks have called it. */
DDPHOOK_API ddphook_status_t ddphook_barrier(ddphook_context_t *context);

/* Collective: copies `bytes` bytes at `data`, in host memory, from rank `root`
 * to all ranks; all ranks must pass the same `bytes` and `root`. It is meant
 * for initial parameters and is not fast. */
DDPHOOK_API ddphook_status_t ddphook_broadcast(ddphook_context_t *context,
                                               void *data, size_t bytes,
                                               int32_t root);

/*===-- The device -----------------------------------------------------------
 *
 * The arrays that entry points take are in the memory of the context's device.
 * On the host backend that is any memory of the process; on CUDA it is memory
 * from cudaMalloc() or from the functions below.
 *===------------------------------------------------------------------------*/

/* Allocates zeroed device memory, aligned to 256 bytes. With `bytes` 0, *memory
 * is an address that must not be read or written. RESOURCE_EXHAUSTED if the
 * device has too little memory left. */
DDPHOOK_API ddphook_status_t ddphook_memory_alloc(ddphook_context_t *context,
                                                  size_t bytes, void **memory);
/* Frees memory from ddphook_memory_alloc(), with the same `bytes`; must be
 * called before the context is destroyed. `memory` may be null. */
DDPHOOK_API void ddphook_memory_free(ddphook_context_t *context, void *memory,
                                     size_t bytes);
/* Copy `bytes` bytes between host and device, after all earlier work, and
 * return when the copy is done. */
DDPHOOK_API ddphook_status_t ddphook_memory_write(ddphook_context_t *context,
                                                  void *memory,
                                                  const void *host,
                                                  size_t bytes);
DDPHOOK_API ddphook_status_t ddphook_memory_read(ddphook_context_t *context,
                                                 void *host, const void *memory,
                                                 size_t bytes);

/* Makes entry points run on the caller's `stream` (CUDA: a cudaStream_t) from
 * now on, in order with other work on it, and return before their work is done.
 * They can then be captured in a CUDA graph, which must be destroyed before the
 * module and the context. The stream must exist until the context is destroyed
 * or this function is called again. With a null `stream`, the initial setting,
 * entry points run on a stream of the context, which is not ordered with the
 * caller's streams, and return when their work is done. So the default stream
 * of CUDA, which PyTorch calls 0, must be passed as cudaStreamLegacy, whose
 * value is 1. cudaStreamPerThread (2) is a different stream in every thread:
 * with it, all calls must come from one thread. UNSUPPORTED on the host
 * backend, unless `stream` is null. */
DDPHOOK_API ddphook_status_t
ddphook_context_set_stream(ddphook_context_t *context, void *stream);

/* Waits until all work of the context's device has ended, at most until the
 * deadline, and returns its first failure. Needed only after
 * ddphook_context_set_stream(). */
DDPHOOK_API ddphook_status_t ddphook_synchronize(ddphook_context_t *context);

/* Returns DDPHOOK_ABI_VERSION (compiled.h) of the runtime library. */
DDPHOOK_API uint32_t ddphook_abi_version(void);

/* Loads a compiled module: checks its ABI version and the hash of its plan,
 * compares the plan with all other ranks (PLAN_MISMATCH names the first
 * difference on every rank), creates the process groups, allocates states and
 * arena, and sets *module->handle. Collective: all ranks load the same modules
 * in the same order. A process can load a module only once at a time. `module`
 * must stay in memory until it is unloaded or the context is destroyed. */
DDPHOOK_API ddphook_status_t ddphook_module_load(
    ddphook_context_t *context, const ddphook_compiled_module_t *module);

/* Undoes ddphook_module_load(): frees the module's memory and states, and
 * leaves its process groups. FAILED_PRECONDITION while a graph is captured from
 * the context's stream: the module stays as it is. */
DDPHOOK_API ddphook_status_t
ddphook_module_unload(const ddphook_compiled_module_t *module);

/* Counters of a module on this rank since it was loaded. */
typedef struct ddphook_stats {
  size_t struct_size; /* set by the caller */
  uint64_t steps;     /* calls of entry points that returned DDPHOOK_OK */
  uint64_t collectives;
  /* Bytes that this rank contributed to collectives, in the wire dtype, and the
   * bytes of the same elements in their dtype in memory. For the compression
   * see uncompressed_bytes. */
  uint64_t wire_bytes;
  uint64_t collective_bytes;
  uint64_t arena_bytes; /* of the scratch arena */
  uint64_t state_bytes; /* of the states */
  /* Elements of the compressed buckets, and elements that were sent for them:
   * the counts of PyTorch's PowerSGDState.compression_stats(). */
  uint64_t elements_before_compression;
  uint64_t elements_after_compression;
  /* Bytes that the same reductions would have contributed without a hook: those
   * of the gradients, in their own dtype. uncompressed_bytes / wire_bytes is
   * the compression. Steps that reduce nothing count in neither. */
  uint64_t uncompressed_bytes;
} ddphook_stats_t;

DDPHOOK_API ddphook_status_t ddphook_module_stats(
    const ddphook_compiled_module_t *module, ddphook_stats_t *stats);

/*===-- Checkpoints ----------------------------------------------------------
 *
 * A checkpoint holds the states of a module, such as error feedback and random
 * generators: one safetensors file per rank, with one tensor per state, and a
 * manifest. docs/checkpoints.md describes the files, and how a script writes
 * the states of another program.
 *
 * `pattern` names the files of all ranks: {rank} in it is replaced by a rank's
 * number, and by "manifest" (with .json) for the manifest. In a world of one it
 * may be omitted.
 *
 * The calls are collective and are made between steps: all ranks must pass the
 * same flags. If a rank fails, its status says why, all others get ABORTED with
 * its message, and nothing has changed anywhere; the context is unharmed.
 *===------------------------------------------------------------------------*/

typedef enum ddphook_state_flag {
  /* Saving: also replaces a checkpoint of another program or job, and a file at
   * the manifest's path that is not a manifest. */
  DDPHOOK_STATE_REPLACE = 1,
  /* Loading: fails unless every state gets its saved value. Refuses a
   * checkpoint of another world size, and a plain file that lacks a state. */
  DDPHOOK_STATE_STRICT = 2,
  /* Loading: accepts plain safetensors files if there is no manifest. */
  DDPHOOK_STATE_PLAIN = 4,
  /* Loading: states that a checkpoint lacks get their initial values, and saved
   * parts that the module lacks are dropped; without this flag both are
   * refused. Not together with DDPHOOK_STATE_STRICT. */
  DDPHOOK_STATE_PARTIAL = 8
} ddphook_state_flag_t;

/* The result of a load on this rank. */
typedef struct ddphook_state_info {
  size_t struct_size; /* set by the caller */
  int32_t world_size; /* of the job that saved; 0: plain files */
  int32_t loaded;     /* states with their saved values */
  int32_t zeroed;     /* states with their initial values: those of single ranks
                       * if the world size differs, and those that the
                       * checkpoint lacks */
  int32_t kept;       /* states that a plain file lacks; they are unchanged */
  int32_t missing;    /* with DDPHOOK_STATE_PARTIAL: states of gradients that
                       * the checkpoint lacks */
  int32_t dropped;    /* with DDPHOOK_STATE_PARTIAL: states of the checkpoint
                       * that the module lacks */
  /* A line for each state of `zeroed` and `kept`, with its name and those of
   * its gradients; empty if there is none. Owned by the module, and valid until
   * its next load of states. */
  const char *report;
} ddphook_state_info_t;

/* Saves the states of a loaded module. Whatever happens, even if the process or
 * the machine dies, or hangs and recovers, either the previous checkpoint or
 * the new one exists afterwards, and it is complete. After DDPHOOK_OK it is the
 * new one, on disk. FAILED_PRECONDITION if the save would replace a checkpoint
 * of other gradients or hooks, of another loaded module, or one that another
 * job saved after this one, and if another save to `pattern` is in progress;
 * RESOURCE_EXHAUSTED if the disk is full. */
DDPHOOK_API ddphook_status_t
ddphook_state_save(const ddphook_compiled_module_t *module, const char *pattern,
                   uint32_t flags);

/* Restores the states of a loaded module from a checkpoint, bit by bit.
 * Buckets, order, overlap, memory and device may differ from those of the
 * module that saved, because states are found by the names of gradients.
 * PLAN_MISMATCH: a state cannot be carried over; the message names it.
 * DATA_LOSS: a file is damaged, or belongs to another checkpoint. IO_ERROR: a
 * file is missing.
 *
 * If another number of ranks saved the checkpoint, replicated states (factors,
 * counters, generators) are loaded from the file of rank 0, and states of
 * single ranks (errors) get their initial values. With DDPHOOK_STATE_STRICT
 * this is FAILED_PRECONDITION. Without it, rank 0 logs the names of the reset
 * states (DDPHOOK_LOG).
 *
 * With DDPHOOK_STATE_PLAIN, the tensors of a plain file have the names and
 * types of states, and their shapes or one dimension. INVALID_ARGUMENT: a
 * tensor fits no state, or ranks have different values of a replicated state.
 *
 * `info` may be null. */
DDPHOOK_API ddphook_status_t
ddphook_state_load(const ddphook_compiled_module_t *module, const char *pattern,
                   uint32_t flags, ddphook_state_info_t *info);

/* Copies states of the `from_count` loaded modules in `from` to the `to_count`
 * loaded modules in `to`, at least one, as if through a checkpoint: for a
 * program that replaces modules by modules with other buckets. All are modules
 * of one context, between steps. No module is on both sides, and no two modules
 * of a side have the same gradients. Not collective, but all ranks must make
 * the same call.
 *
 * PLAN_MISMATCH: a state cannot be carried over; the message names it. With
 * DDPHOOK_STATE_PARTIAL in `flags`, states of `to` that `from` lacks keep their
 * values and are counted in `kept` and `missing`; states of `from` that `to`
 * lacks are dropped. `info` may be null; its report is owned by to[0]. */
DDPHOOK_API ddphook_status_t ddphook_state_copy(
    const ddphook_compiled_module_t *const *from, size_t from_count,
    const ddphook_compiled_module_t *const *to, size_t to_count, uint32_t flags,
    ddphook_state_info_t *info);

/* Draws a state's first value, as loading a module does, for programs that run
 * without the runtime: seeds NumPy's generator with `seed`, skips `number` of
 * its numbers, seeds PyTorch's generator with the next one, and writes
 * `randn(draw)` of the type `dtype` (ddphook_dtype_t) for each of the draws,
 * one after another. Needs no context. */
DDPHOOK_API ddphook_status_t ddphook_draw_normal(uint32_t seed, int64_t number,
                                                 const int64_t *draws,
                                                 int64_t draw_count, void *out,
                                                 int32_t dtype);

#ifdef __cplusplus
}
#endif

#endif /* DDPHOOK_RUNTIME_RUNTIME_H */
