/*===- runtime.h - what a host program calls -----------------------*- C -*-===*
 *
 * Part of the ddphook project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
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
 * Threads: a context and its modules belong to one thread at a time.
 *
 *===----------------------------------------------------------------------===*/
#ifndef DDPHOOK_RUNTIME_RUNTIME_H
#define DDPHOOK_RUNTIME_RUNTIME_H

#include "ddphook/runtime/compiled.h"
#include "ddphook/runtime/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddphook_context ddphook_context_t;

/* Zero-initialise, set struct_size, then change what you want; a null pointer
 * or a zero field means "from the environment, else the default". */
typedef struct ddphook_options {
  size_t struct_size; /* sizeof(ddphook_options_t) */
  /* "host" (default) or the name of another backend. DDPHOOK_BACKEND. */
  const char *backend;
  /* "auto" (default): shared memory when all ranks of a group run on one
   * machine, else Gloo over TCP; "shm" or "gloo" insist. DDPHOOK_TRANSPORT. */
  const char *transport;
  /* Deadline of every operation that waits for a peer, in seconds; default 300.
   * DDPHOOK_TIMEOUT_S. */
  double timeout_s;
  /* Place in the job. world_size 0 means: from the launch variables of
   * torchrun, Open MPI, PMI or Slurm; a world of one when there are none. */
  int32_t rank;
  int32_t world_size;
  int32_t local_rank;
  const char *master_addr;
  int32_t master_port;
  /* "name=value,name=value" for the backend, whose page in docs/ lists them.
   * DDPHOOK_BACKEND_OPTIONS. */
  const char *backend_options;
} ddphook_options_t;

/* Joins the job: finds its place, connects to the store of rank 0, waits until
 * all ranks came. BAD_ENVIRONMENT when launch variables contradict each other;
 * DEADLINE_EXCEEDED when a rank never comes. `options` may be null. */
DDPHOOK_API ddphook_status_t ddphook_context_create(
    const ddphook_options_t *options, ddphook_context_t **context);

/* Leaves the job; frees everything. Modules still loaded are unloaded. Null is
 * accepted. */
DDPHOOK_API void ddphook_context_destroy(ddphook_context_t *context);

DDPHOOK_API int32_t ddphook_context_rank(const ddphook_context_t *context);
DDPHOOK_API int32_t
ddphook_context_world_size(const ddphook_context_t *context);

/* Waits until all ranks called it. */
DDPHOOK_API ddphook_status_t ddphook_barrier(ddphook_context_t *context);

/* Copies `bytes` bytes at `data`, in host memory, from rank `root` to all ranks
 * (initial parameters, say). Not meant for speed. */
DDPHOOK_API ddphook_status_t ddphook_broadcast(ddphook_context_t *context,
                                               void *data, size_t bytes,
                                               int32_t root);

/*===-- The device -----------------------------------------------------------
 *
 * Arrays that entry points take lie in the memory of the context's device: on
 * the host backend any memory of the process, on CUDA what cudaMalloc() or the
 * functions below give.
 *===------------------------------------------------------------------------*/

/* Zeroed memory of the device, aligned to 256 bytes; `bytes` 0 gives an address
 * that must not be read or written. RESOURCE_EXHAUSTED: there is no more. */
DDPHOOK_API ddphook_status_t ddphook_memory_alloc(ddphook_context_t *context,
                                                  size_t bytes, void **memory);
/* Gives it back, `bytes` as allocated, before the context is destroyed. Null is
 * accepted. */
DDPHOOK_API void ddphook_memory_free(ddphook_context_t *context, void *memory,
                                     size_t bytes);
/* Copy between host and device, after all work that was begun before, and wait
 * until that is done. */
DDPHOOK_API ddphook_status_t ddphook_memory_write(ddphook_context_t *context,
                                                  void *memory,
                                                  const void *host,
                                                  size_t bytes);
DDPHOOK_API ddphook_status_t ddphook_memory_read(ddphook_context_t *context,
                                                 void *host, const void *memory,
                                                 size_t bytes);

/* From now on entry points run on the caller's `stream` (CUDA: a cudaStream_t,
 * which outlives the context or the next call): in order with other work there,
 * and they return before that is done. They can then be captured in a CUDA
 * graph. Null, as at first: entry points return when their work is done.
 * UNSUPPORTED on the host backend, unless it is null. */
DDPHOOK_API ddphook_status_t
ddphook_context_set_stream(ddphook_context_t *context, void *stream);

/* Waits until all work of the context's device has ended, at most until the
 * deadline, and gives the first failure in it: needed with a stream of one's
 * own only. */
DDPHOOK_API ddphook_status_t ddphook_synchronize(ddphook_context_t *context);

/* Loads a compiled module: checks its ABI version and the hash of its plan,
 * compares the plan with all other ranks (PLAN_MISMATCH names the first
 * difference on every rank), creates the process groups, allocates states and
 * arena, and sets *module->handle. Collective: all ranks load the same modules
 * in the same order. A module can be loaded once at a time per process. */
DDPHOOK_API ddphook_status_t ddphook_module_load(
    ddphook_context_t *context, const ddphook_compiled_module_t *module);

/* Undoes ddphook_module_load(). */
DDPHOOK_API ddphook_status_t
ddphook_module_unload(const ddphook_compiled_module_t *module);

/* Counters of a loaded module since it was loaded, for this rank. */
typedef struct ddphook_stats {
  size_t struct_size; /* set by the caller */
  uint64_t steps;     /* entry point calls that ended well */
  uint64_t collectives;
  /* Bytes that this rank put into collectives, as they travel (after the cast
   * to the wire dtype), and the same bytes in the gradients' own dtype. */
  uint64_t wire_bytes;
  uint64_t gradient_bytes;
  uint64_t arena_bytes; /* scratch */
  uint64_t state_bytes;
  /* Elements of the buckets that were compressed, and what was sent for them
   * instead: the counts of PyTorch's PowerSGDState.compression_stats(). */
  uint64_t elements_before_compression;
  uint64_t elements_after_compression;
} ddphook_stats_t;

DDPHOOK_API ddphook_status_t ddphook_module_stats(
    const ddphook_compiled_module_t *module, ddphook_stats_t *stats);

/*===-- Checkpoints ----------------------------------------------------------
 *
 * What a module keeps from step to step, error feedback and random generators
 * say, as files: one safetensors file per rank, with one tensor per state, and
 * a manifest. docs/checkpoints.md describes them, and how a script writes the
 * states of another program.
 *
 * `pattern` names the files of all ranks: {rank} in it is replaced by a rank's
 * number, and by "manifest" (with .json) for the manifest. A world of one may
 * go without it.
 *
 * Collective, between steps: all ranks call with the same flags. When a rank
 * fails, its status says why, all others get ABORTED with its message, and
 * nothing has changed anywhere; the context is unharmed.
 *===------------------------------------------------------------------------*/

typedef enum ddphook_state_flag {
  /* Saving: replaces also a checkpoint of another program, and what is in the
   * manifest's place but no manifest. */
  DDPHOOK_STATE_REPLACE = 1,
  /* Loading: refuses what would not give every state its saved value: a
   * checkpoint of another world size, a plain file that lacks a state. */
  DDPHOOK_STATE_STRICT = 2,
  /* Loading: takes plain safetensors files where there is no manifest. */
  DDPHOOK_STATE_PLAIN = 4,
  /* Loading: begins anew what a checkpoint lacks, and drops what the module has
   * no place for, instead of refusing. Not with DDPHOOK_STATE_STRICT. */
  DDPHOOK_STATE_PARTIAL = 8
} ddphook_state_flag_t;

/* What a load did on this rank. */
typedef struct ddphook_state_info {
  size_t struct_size; /* set by the caller */
  int32_t world_size; /* of the job that saved; 0: plain files */
  int32_t loaded;     /* states that have their saved value */
  int32_t zeroed;     /* states that begin anew: those of single ranks after
                       * another world size, and what a checkpoint lacks */
  int32_t kept;       /* states that a plain file lacks, unchanged */
  int32_t missing;    /* with DDPHOOK_STATE_PARTIAL: states of gradients that
                       * the checkpoint lacks, */
  int32_t dropped;    /* and those of it that the module has no place for */
} ddphook_state_info_t;

/* Saves the states of a loaded module. Whatever happens, the process or the
 * machine dying included, afterwards there is the checkpoint that was there
 * before, or the new one, whole; when DDPHOOK_OK is returned, the new one, on
 * disk. FAILED_PRECONDITION where the checkpoint of other gradients or hooks
 * would be replaced, or that of another loaded module; RESOURCE_EXHAUSTED when
 * the disk is full.
 */
DDPHOOK_API ddphook_status_t
ddphook_state_save(const ddphook_compiled_module_t *module, const char *pattern,
                   uint32_t flags);

/* Gives the states of a loaded module the values of a checkpoint, bit by bit.
 * Buckets, order, overlap, memory and device may be others than those of the
 * module that saved: states are found by the names of gradients. PLAN_MISMATCH:
 * something cannot be carried over; the message names it. DATA_LOSS: a file is
 * damaged, or not of this checkpoint. IO_ERROR: one is missing.
 *
 * After a save by another number of ranks, replicated states (factors,
 * counters, generators) are loaded, from the file of rank 0 of both jobs, and
 * those of single ranks (errors) begin anew. With DDPHOOK_STATE_STRICT that is
 * FAILED_PRECONDITION.
 *
 * A plain file, with DDPHOOK_STATE_PLAIN, has tensors by the names of states,
 * of their type, and of their shape or flat. INVALID_ARGUMENT: a tensor fits no
 * state, or ranks have different values of a replicated one.
 *
 * `info` may be null. */
DDPHOOK_API ddphook_status_t
ddphook_state_load(const ddphook_compiled_module_t *module, const char *pattern,
                   uint32_t flags, ddphook_state_info_t *info);

#ifdef __cplusplus
}
#endif

#endif /* DDPHOOK_RUNTIME_RUNTIME_H */
