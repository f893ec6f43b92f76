/*===- backend.h - what a device backend provides ------------------*- C -*-===*
 *
 * Part of the ddphook project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The table of functions behind which a kind of device lives: its memory, its
 * element-wise kernels and its collectives. The runtime has the host backend
 * built in. Any other NAME (ddphook_options_t.backend or DDPHOOK_BACKEND) makes
 * it load libddphook_backend_NAME.so and call ddphook_backend_get() there.
 *
 * Host programs and compiled code never call any of this.
 *
 * Errors. A function that fails returns its status and, where it has an `error`
 * parameter, writes one line there: lower case, no final period. Nothing exits,
 * aborts or throws.
 *
 * Threads. One thread at a time calls a device and its communicators, with one
 * exception: abort() may come from any thread at any time.
 *
 * Order. Kernels, copies and collectives of a device behave as if each had
 * ended when its function returns, for all functions of the table and for the
 * work of others on the queue of stream_set(). A device with a queue of its own
 * may return earlier: what fails later on is the status of a later call, at the
 * latest of synchronize().
 *
 *===----------------------------------------------------------------------===*/
#ifndef DDPHOOK_RUNTIME_BACKEND_H
#define DDPHOOK_RUNTIME_BACKEND_H

#include "ddphook/runtime/allocator.h"
#include "ddphook/runtime/compiled.h"
#include "ddphook/runtime/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a struct or a function below changes its meaning. A backend
 * and a runtime of different versions, or with tables of different sizes, do
 * not work together; a function more in functions.inc therefore raises nothing.
 */
#define DDPHOOK_BACKEND_ABI_VERSION 16

/* A process's use of one device; made by the backend. */
typedef struct ddphook_device ddphook_device_t;

/* A rank's end of one process group; made by the backend. */
typedef struct ddphook_communicator ddphook_communicator_t;

/* Where a failing function writes why: a null-terminated line. */
typedef struct ddphook_backend_error {
  char message[1024];
} ddphook_backend_error_t;

/* The job's key-value store, lent by the runtime: ranks that create a
 * communicator exchange addresses through it. Keys are texts, values bytes. */
typedef struct ddphook_backend_store {
  size_t struct_size;
  void *self;
  /* Sets `key`. */
  ddphook_status_t (*set)(void *self, const char *key, const void *value,
                          size_t size, ddphook_backend_error_t *error);
  /* Waits at most `timeout_s` seconds until `key` is set, and gives a copy of
   * its value, to be given back with release(). An empty value may be null. */
  ddphook_status_t (*get)(void *self, const char *key, double timeout_s,
                          void **value, size_t *size,
                          ddphook_backend_error_t *error);
  void (*release)(void *self, void *value);
  /* Adds to a counter that begins at 0, and gives its new value. */
  ddphook_status_t (*add)(void *self, const char *key, int64_t delta,
                          int64_t *result, ddphook_backend_error_t *error);
  /* Forgets `key`. */
  ddphook_status_t (*erase)(void *self, const char *key,
                            ddphook_backend_error_t *error);
} ddphook_backend_store_t;

typedef struct ddphook_device_config {
  size_t struct_size;
  /* This process's place on its machine: which device to take. */
  int32_t local_rank;
  /* "auto", "shm", "gloo", or a word that only this backend knows. */
  const char *transport;
  /* Address of this machine by which other ranks reach it, as a text; empty in
   * a world of one. */
  const char *local_address;
  /* Deadline of every operation that waits for a peer, in seconds; above 0. */
  double timeout_s;
  /* Threads that this rank may compute with on the host, the calling one among
   * them; at least 1. */
  int32_t threads;
  /* "name=value,name=value": what only this backend knows; may be empty. An
   * unknown name is INVALID_ARGUMENT. */
  const char *options;
  /* Where all memory of the device comes from, or null: allocator.h. Valid
   * until the device is destroyed. A backend that cannot use it gives
   * UNSUPPORTED. */
  const ddphook_allocator_t *allocator;
} ddphook_device_config_t;

typedef struct ddphook_communicator_config {
  size_t struct_size;
  /* Number of ranks, at least 1, and this one's index among them. */
  int32_t size;
  int32_t rank;
  /* The same ranks as numbers of the whole job: for messages. `size` entries;
   * valid during the call. */
  const int32_t *world_ranks;
  /* What messages call the group, as "process group 'dp' within its node"; null
   * where its ranks are all of the job. Valid during the call. */
  const char *name;
  /* Not zero: all of them run on one machine and see each other's processes and
   * shared memory. */
  int32_t one_machine;
  /* Largest number of bytes that one collective puts on the wire: those of all
   * ranks' parts, the short ones counted whole. */
  uint64_t max_wire_bytes;
  /* Collectives with an encoding have at most so many bytes of codes and scales
   * on each rank; 0: there are none. */
  uint64_t max_encoded_bytes;
  /* Those with affine codes have at most so many on all ranks together; 0:
   * there are none. */
  uint64_t max_gathered_bytes;
  /* The store and a prefix of keys that this communicator alone uses. The store
   * stays valid until the communicator is destroyed. */
  const ddphook_backend_store_t *store;
  const char *key;
  /* Bytes that all ranks of this communicator have, and nobody outside the job:
   * with them ranks can prove to each other, on connections of the backend's
   * own, who they are. 32 in a job of several ranks; valid during the call. */
  const unsigned char *proof_key;
  size_t proof_key_size;
} ddphook_communicator_config_t;

/* How elements become codes: to nearest, or stochastically with the stream and
 * the step of ddphook_rt_stochastic_collective(). `share` is which part of an
 * array this one is, where ranks reduce parts of it apart from each other. */
typedef struct ddphook_rounding {
  int32_t is_stochastic;
  int32_t share;
  int64_t stream;
  int64_t step;
} ddphook_rounding_t;

/* One collective; what it does is ddphook_rt_collective()'s in compiled.h. */
typedef struct ddphook_collective {
  int32_t kind;  /* ddphook_collective_kind_t */
  int64_t count; /* elements of the whole array, at least 0 */
  int32_t dtype; /* ddphook_dtype_t in memory */
  /* ddphook_dtype_t on the wire, or -1: the same; -1 in all_to_all and
   * broadcast. */
  int32_t wire_dtype;
  /* Not zero, in all_reduce and reduce_scatter: divide by the group's size,
   * before adding, or with an encoding the sum. */
  int32_t divide;
  /* ddphook_encoding_t, and the elements that have a scale in common, or 0;
   * with an encoding, in reductions only, there is no wire_dtype. Affine ones
   * are for all_reduce. */
  int32_t encoding;
  int64_t block;
  int32_t root;                /* of a broadcast: a rank of the group; else 0 */
  ddphook_rounding_t rounding; /* with scaled codes; else zeros */
  /* Null, or of an all_reduce in an encoding without zero points: `count`
   * elements of `dtype`. `in` + `error`, rounded to `dtype`, is reduced in
   * place of `in`, and `error` becomes what encoding that on this rank loses.
   * Not to be used before the collective has ended; apart from `in` and `out`.
   */
  void *error;
  /* Null, or of a reduce_scatter without an encoding: for each rank of the
   * group the element with which its part of the array ends; it begins where
   * the part of the rank before ends, and the last one ends with the array.
   * `out` has the elements of this rank's part, and nothing behind them; it may
   * be that part of `in`, and of an empty part it is not looked at. Valid until
   * the collective has ended. */
  const int64_t *part_ends;
} ddphook_collective_t;

/* A matrix Mᵢ of `rows` x `columns` in an array M, with its factors Pᵢ
 * (rows x rank) and Qᵢ (columns x rank) in two others. Offsets and sizes are at
 * least 0, in elements. */
typedef struct ddphook_matrix {
  int64_t offset;
  int64_t p_offset;
  int64_t q_offset;
  int64_t rows;
  int64_t columns;
  int64_t rank;
} ddphook_matrix_t;

/* A piece of M that belongs to no matrix, and its place in the array of the
 * rest. */
typedef struct ddphook_piece {
  int64_t offset;
  int64_t rest_offset;
  int64_t count;
} ddphook_piece_t;

/* What the low-rank calls work on: matrices and pieces that together are the
 * elements begin … end - 1 of M, in any order, without overlap. */
typedef struct ddphook_matrix_list {
  size_t struct_size;
  int64_t begin;
  int64_t end;
  const ddphook_matrix_t *matrices;
  int64_t matrix_count;
  const ddphook_piece_t *pieces;
  int64_t piece_count;
} ddphook_matrix_list_t;

/* A matrix list as a backend has prepared it; made by the backend. */
typedef struct ddphook_matrices ddphook_matrices_t;

/* A compiled module's kernels as a backend has loaded them; made by it. */
typedef struct ddphook_kernels ddphook_kernels_t;

typedef struct ddphook_backend {
  size_t struct_size;   /* sizeof(ddphook_backend_t) */
  uint32_t abi_version; /* DDPHOOK_BACKEND_ABI_VERSION */
  const char *name;     /* static */
  /* Names of options, with commas in between, that all ranks of a job have to
   * give the same values; static, or null for none. */
  const char *agreed_options;
  /* Not zero: code on the host may read and write the device's memory. */
  int32_t memory_is_host;
  /* Bit number e: collective() and encoding_error() know the ddphook_encoding_t
   * e. A module with another one is not loaded. */
  uint32_t encodings;

  /* Opens a device. */
  ddphook_status_t (*device_create)(const ddphook_device_config_t *config,
                                    ddphook_device_t **device,
                                    ddphook_backend_error_t *error);
  /* Closes it; its communicators and memory are gone already. */
  void (*device_destroy)(ddphook_device_t *device);

  /* Memory that compiled code and collectives work on: zeroed, resident (the
   * first step must not fault pages in), `alignment` a power of two of at most
   * 2 MiB. `bytes` 0 gives an address that must not be read or written. */
  ddphook_status_t (*memory_alloc)(ddphook_device_t *device, uint64_t bytes,
                                   uint64_t alignment, void **memory,
                                   ddphook_backend_error_t *error);
  void (*memory_free)(ddphook_device_t *device, void *memory, uint64_t bytes);
  /* Copies between a device's memory and the host's, and waits until that is
   * done. For initial values and checkpoints, not for steps. */
  ddphook_status_t (*memory_write)(ddphook_device_t *device, void *memory,
                                   const void *host, uint64_t bytes,
                                   ddphook_backend_error_t *error);
  ddphook_status_t (*memory_read)(ddphook_device_t *device, void *host,
                                  const void *memory, uint64_t bytes,
                                  ddphook_backend_error_t *error);

  /* The caller's queue, on which all work is to run from now on, in order with
   * what is there already (CUDA: a cudaStream_t); null: the device's own.
   * UNSUPPORTED where a device has no queues, unless it is null. */
  ddphook_status_t (*stream_set)(ddphook_device_t *device, void *stream,
                                 ddphook_backend_error_t *error);
  /* Waits until everything that was begun has ended, and gives the first
   * failure. Ends by itself when a deadline passes. */
  ddphook_status_t (*synchronize)(ddphook_device_t *device,
                                  ddphook_backend_error_t *error);

  /* Joins a process group. Collective: all its ranks call it. A size of one
   * needs no transport. */
  ddphook_status_t (*communicator_create)(
      ddphook_device_t *device, const ddphook_communicator_config_t *config,
      ddphook_communicator_t **communicator, ddphook_backend_error_t *error);
  /* Leaves it. Not collective; nothing that was started is still running. */
  void (*communicator_destroy)(ddphook_device_t *device,
                               ddphook_communicator_t *communicator);

  /* One pointer for each function of functions.inc whose work is a device's
   * alone, as compiled.h defines it: with the device in place of the module,
   * the size of a group in place of its number (1 in place of -1), or this
   * rank's number in it for the role Rank, prepared matrices in place of their
   * list's number, and a place for the error behind. Arguments were checked;
   * casts of types that a device lacks are UNSUPPORTED.
   */
#define DDPHOOK_ROLE_In const void *
#define DDPHOOK_ROLE_Out void *
#define DDPHOOK_ROLE_OptionalIn const void *
#define DDPHOOK_ROLE_OptionalOut void *
#define DDPHOOK_ROLE_Rest const void *
#define DDPHOOK_ROLE_RestOut void *
#define DDPHOOK_ROLE_Count int64_t
#define DDPHOOK_ROLE_ElementType int32_t
#define DDPHOOK_ROLE_CastType int32_t
#define DDPHOOK_ROLE_EncodingType int32_t
#define DDPHOOK_ROLE_ScaledType int32_t
#define DDPHOOK_ROLE_Block int64_t
#define DDPHOOK_ROLE_Group int64_t
#define DDPHOOK_ROLE_OptionalGroup int64_t
#define DDPHOOK_ROLE_Rank int32_t
#define DDPHOOK_ROLE_Matrices ddphook_matrices_t *
#define DDPHOOK_ROLE_Product int32_t
#define DDPHOOK_ROLE_Factor int32_t
#define DDPHOOK_ROLE_Integer int64_t
#define DDPHOOK_ROLE_Number double
#define DDPHOOK_DEVICE_PARAMETER(role, name) DDPHOOK_ROLE_##role name
#define DDPHOOK_DEVICE_FUNCTION(name, ...)                                     \
  ddphook_status_t (*name)(ddphook_device_t * device,                          \
                           DDPHOOK_MAP(DDPHOOK_DEVICE_PARAMETER, __VA_ARGS__), \
                           ddphook_backend_error_t * error);
#include "ddphook/runtime/functions.inc"

  /* *result = 1 if no element is infinite or NaN, else 0; waits for that. */
  ddphook_status_t (*is_finite)(ddphook_device_t *device, const void *in,
                                int64_t count, int32_t dtype, int32_t *result,
                                ddphook_backend_error_t *error);

  /* Prepares a matrix list, which was checked, for the calls below; a copy is
   * kept, not the pointers. Everything that they need beside their arrays is
   * allocated here, for elements of that type: steps allocate nothing. */
  ddphook_status_t (*matrices_create)(ddphook_device_t *device,
                                      const ddphook_matrix_list_t *list,
                                      int32_t dtype,
                                      ddphook_matrices_t **matrices,
                                      ddphook_backend_error_t *error);
  void (*matrices_destroy)(ddphook_device_t *device,
                           ddphook_matrices_t *matrices);

  /* Runs one collective, after all that were started before. A kind that does
   * not exist, a root that is no rank, and a count of which all_to_all cannot
   * make parts are INVALID_ARGUMENT, and nothing else happens. After any other
   * failure every later call on the device fails at once with the same status.
   */
  ddphook_status_t (*collective)(ddphook_device_t *device,
                                 ddphook_communicator_t *communicator,
                                 const ddphook_collective_t *operation,
                                 const void *in, void *out,
                                 ddphook_backend_error_t *error);
  /* Starts one; collectives run in the order in which they are started. Tickets
   * are positive and grow. */
  ddphook_status_t (*collective_start)(ddphook_device_t *device,
                                       ddphook_communicator_t *communicator,
                                       const ddphook_collective_t *operation,
                                       const void *in, void *out,
                                       int64_t *ticket,
                                       ddphook_backend_error_t *error);
  /* Null, or runs an all_reduce of a hierarchical group in stages that overlap,
   * or, where `ticket` is not null, starts it as collective_start() does.
   * `node` has the ranks of a node, several, and `across` those of one position
   * on all nodes, also several. What it gives is, bit by bit, a reduce_scatter
   * over `node` of the elements as they are in memory, into `share`; an
   * all_reduce of that over `across` in place, of the elements of this rank's
   * part, with `operation`'s wire type or encoding, which is not affine, with
   * the part of its `error`, and with this rank's number in `node` as
   * `rounding.share`; and an all_gather over `node`. Both reductions divide if
   * `operation` does. `share` has room for the longest part, and is used until
   * the end. */
  ddphook_status_t (*collective_staged)(ddphook_device_t *device,
                                        ddphook_communicator_t *node,
                                        ddphook_communicator_t *across,
                                        const ddphook_collective_t *operation,
                                        const void *in, void *out, void *share,
                                        int64_t *ticket,
                                        ddphook_backend_error_t *error);
  /* Lets what is called next begin when `ticket`, and with it all earlier ones,
   * has ended. Where that means to wait, it ends by itself when a deadline
   * passes. Waiting twice is fine. */
  ddphook_status_t (*wait)(ddphook_device_t *device, int64_t ticket,
                           ddphook_backend_error_t *error);

  /* Loads a compiled module's device code, `size` bytes, and finds its kernels
   * by their names; and launches number `kernel` of them, as
   * ddphook_rt_launch() defines it. All three null: UNSUPPORTED. */
  ddphook_status_t (*kernels_load)(ddphook_device_t *device, const void *code,
                                   uint64_t size, const char *const *names,
                                   int64_t count, ddphook_kernels_t **kernels,
                                   ddphook_backend_error_t *error);
  void (*kernels_unload)(ddphook_device_t *device, ddphook_kernels_t *kernels);
  ddphook_status_t (*launch)(ddphook_device_t *device,
                             ddphook_kernels_t *kernels, int64_t kernel,
                             const int64_t *grid, const int64_t *block,
                             int64_t shared_bytes, void **arguments,
                             ddphook_backend_error_t *error);

  /* The job failed elsewhere: whatever waits for a peer should give up, and all
   * later collectives fail with this status and message. Returns at once. */
  void (*abort)(ddphook_device_t *device, ddphook_status_t status,
                const char *message);
} ddphook_backend_t;

/* The one symbol that libddphook_backend_NAME.so exports, of this type and
 * under this name. It never returns null; the table is constant. */
typedef const ddphook_backend_t *(*ddphook_backend_get_t)(void);
#define DDPHOOK_BACKEND_GET_SYMBOL "ddphook_backend_get"

#ifdef __cplusplus
}
#endif

#endif /* DDPHOOK_RUNTIME_BACKEND_H */
