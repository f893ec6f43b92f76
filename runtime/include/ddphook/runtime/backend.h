/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The table of functions that a device backend provides: memory, element-wise
 * kernels and collectives. The host backend is built into the runtime. Any
 * other NAME (ddphook_options_t.backend or DDPHOOK_BACKEND) makes it load
 * libddphook_backend_NAME.so and call ddphook_backend_get() there.
 *
 * Host programs and compiled code never call any of this.
 *
 * Errors. A function that fails returns its status and, if it has an `error`
 * parameter, writes one line there: lower case, no final period. Nothing exits,
 * aborts or throws.
 *
 * Threads. One thread at a time calls a device and its communicators, with one
 * exception: any thread may call abort() at any time.
 *
 * Order. Kernels, copies and collectives of a device behave as if each had
 * ended when its function returns, relative to all functions of the table and
 * to the work of others on the queue of stream_set(). A device with its own
 * queue may return earlier: a later failure is then the status of a later call,
 * of synchronize() at the latest. */

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
 * and a runtime with different versions, or with tables or collectives of
 * different sizes, do not work together; so a new function in functions.inc or
 * a new field in plan_fields.inc does not raise it. */
#define DDPHOOK_BACKEND_ABI_VERSION 18

/* A process's use of one device; made by the backend. */
typedef struct ddphook_device ddphook_device_t;

/* A rank's membership in one process group; made by the backend. */
typedef struct ddphook_communicator ddphook_communicator_t;

/* A failing function writes its reason here, as a null-terminated line. */
typedef struct ddphook_backend_error {
  char message[1024];
} ddphook_backend_error_t;

/* The job's key-value store, lent by the runtime. Ranks that create a
 * communicator exchange addresses through it. Keys are texts, values bytes. */
typedef struct ddphook_backend_store {
  size_t struct_size;
  void *self;
  /* Sets `key`. */
  ddphook_status_t (*set)(void *self, const char *key, const void *value,
                          size_t size, ddphook_backend_error_t *error);
  /* Waits at most `timeout_s` seconds until `key` is set, and returns a copy of
   * its value, which release() frees. An empty value may be null. */
  ddphook_status_t (*get)(void *self, const char *key, double timeout_s,
                          void **value, size_t *size,
                          ddphook_backend_error_t *error);
  void (*release)(void *self, void *value);
  /* Adds to a counter, which starts at 0, and returns its new value. */
  ddphook_status_t (*add)(void *self, const char *key, int64_t delta,
                          int64_t *result, ddphook_backend_error_t *error);
  /* Deletes `key`. */
  ddphook_status_t (*erase)(void *self, const char *key,
                            ddphook_backend_error_t *error);
} ddphook_backend_store_t;

typedef struct ddphook_device_config {
  size_t struct_size;
  /* This process's number on its machine, which selects the device. */
  int32_t local_rank;
  /* "auto", "shm", "gloo", or a name that only this backend knows. */
  const char *transport;
  /* The address at which other ranks reach this machine, as text; empty in a
   * world of one. */
  const char *local_address;
  /* Deadline in seconds, above 0, of every operation that waits for a peer. */
  double timeout_s;
  /* Threads that this rank may compute with on the host, at least 1, including
   * the calling one. */
  int32_t threads;
  /* "name=value,name=value": options of this backend; may be empty. An unknown
   * name is INVALID_ARGUMENT. */
  const char *options;
  /* The source of all device memory, or null: see allocator.h. Valid until the
   * device is destroyed. A backend that cannot use it returns UNSUPPORTED. */
  const ddphook_allocator_t *allocator;
} ddphook_device_config_t;

typedef struct ddphook_communicator_config {
  size_t struct_size;
  /* The number of ranks, at least 1, and this rank's index among them. */
  int32_t size;
  int32_t rank;
  /* The same ranks as numbers of the job, for messages. `size` entries; valid
   * during the call. */
  const int32_t *world_ranks;
  /* The group's name in messages, such as "process group 'dp' within its node";
   * null if its ranks are the whole job. Valid during the call. */
  const char *name;
  /* Not 0 if all ranks run on one machine and see each other's processes and
   * shared memory. */
  int32_t one_machine;
  /* The largest number of bytes that one collective puts on the wire: those of
   * all ranks' parts, where short parts count as full ones. */
  uint64_t max_wire_bytes;
  /* The most bytes of codes and scales per rank in a collective with an
   * encoding; 0 if there is none. */
  uint64_t max_encoded_bytes;
  /* The most such bytes on all ranks together in a collective with affine
   * codes; 0 if there is none. */
  uint64_t max_gathered_bytes;
  /* The store, and a prefix of keys that only this communicator uses. The store
   * stays valid until the communicator is destroyed. */
  const ddphook_backend_store_t *store;
  const char *key;
  /* A secret that all ranks of this communicator have, and nobody outside the
   * job, to prove their identity on connections that the backend opens. 32
   * bytes in a job of several ranks; valid during the call. */
  const unsigned char *proof_key;
  size_t proof_key_size;
} ddphook_communicator_config_t;

/* How elements become codes: rounded to nearest, or stochastically with the
 * plan's stream and the step of ddphook_rt_collective(). `share` is the number
 * of this part of an array, if ranks reduce parts of it separately. */
typedef struct ddphook_rounding {
  int32_t is_stochastic;
  int32_t share;
  int64_t stream;
  int64_t step;
} ddphook_rounding_t;

/* One collective, as ddphook_rt_collective() in compiled.h defines it. */
typedef struct ddphook_collective {
  /* The kind, the count, which is at least 0, and so on, as the plan has them:
   * see docs/plan.md. Types are a ddphook_dtype_t, `wire_dtype` is -1 without
   * one, and `encoding` is a ddphook_encoding_t. */
#define DDPHOOK_COLLECTIVE_FIELD(Role, key, Name, type, text) type key;
#include "ddphook/runtime/plan_fields.inc"
  ddphook_rounding_t rounding; /* for scaled codes; else zeros */
  /* Null, or, for an all_reduce in an encoding without zero points, `count`
   * elements of `dtype`. `in` + `error`, rounded to `dtype`, is reduced instead
   * of `in`, and `error` becomes what encoding that loses on this rank. In use
   * until the collective has ended; overlaps neither `in` nor `out`. */
  void *error;
  /* Null, or, for a reduce_scatter without an encoding, the end of each rank's
   * part of the array, as an element. A part begins where the previous rank's
   * ends, and the last one ends with the array. `out` has the elements of this
   * rank's part and nothing after them; it may be that part of `in`, and is
   * ignored if the part is empty. Valid until the collective has ended. */
  const int64_t *part_ends;
} ddphook_collective_t;

/* A matrix Mᵢ (rows x columns) in an array M, whose factors Pᵢ (rows x rank)
 * and Qᵢ (columns x rank) are in two other arrays. Offsets and sizes are in
 * elements and at least 0. */
typedef struct ddphook_matrix {
  int64_t offset;
  int64_t p_offset;
  int64_t q_offset;
  int64_t rows;
  int64_t columns;
  int64_t rank;
} ddphook_matrix_t;

/* A piece of M outside all matrices, and its offset in the array of the rest.
 * */
typedef struct ddphook_piece {
  int64_t offset;
  int64_t rest_offset;
  int64_t count;
} ddphook_piece_t;

/* The operands of the low-rank calls: matrices and pieces that together are the
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

/* A matrix list as prepared by a backend, which makes this. */
typedef struct ddphook_matrices ddphook_matrices_t;

/* A compiled module's kernels as loaded by a backend, which makes this. */
typedef struct ddphook_kernels ddphook_kernels_t;

typedef struct ddphook_backend {
  size_t struct_size;     /* sizeof(ddphook_backend_t) */
  size_t collective_size; /* sizeof(ddphook_collective_t) */
  uint32_t abi_version;   /* DDPHOOK_BACKEND_ABI_VERSION */
  const char *name;       /* static */
  /* Names of options, separated by commas, that must have the same values on
   * all ranks of a job; static, or null if there are none. */
  const char *agreed_options;
  /* Not 0 if host code may read and write the device's memory. */
  int32_t memory_is_host;
  /* Bit e is set if collective() and encoding_error() support the
   * ddphook_encoding_t e. A module with any other encoding is not loaded. */
  uint32_t encodings;

  /* Opens a device. */
  ddphook_status_t (*device_create)(const ddphook_device_config_t *config,
                                    ddphook_device_t **device,
                                    ddphook_backend_error_t *error);
  /* Closes it; its communicators and memory must be gone. */
  void (*device_destroy)(ddphook_device_t *device);

  /* Allocates memory for compiled code and collectives: zeroed, resident (the
   * first step must not have page faults), `alignment` a power of two of at
   * most 2 MiB. With `bytes` 0 the address must not be read or written. */
  ddphook_status_t (*memory_alloc)(ddphook_device_t *device, uint64_t bytes,
                                   uint64_t alignment, void **memory,
                                   ddphook_backend_error_t *error);
  void (*memory_free)(ddphook_device_t *device, void *memory, uint64_t bytes);
  /* Copy between device and host memory, and wait until that is done. For
   * initial values and checkpoints, not for steps. */
  ddphook_status_t (*memory_write)(ddphook_device_t *device, void *memory,
                                   const void *host, uint64_t bytes,
                                   ddphook_backend_error_t *error);
  ddphook_status_t (*memory_read)(ddphook_device_t *device, void *host,
                                  const void *memory, uint64_t bytes,
                                  ddphook_backend_error_t *error);

  /* Sets the caller's queue, on which all work runs from now on, in order with
   * earlier work on it (CUDA: a cudaStream_t); null means the device's own
   * queue. UNSUPPORTED if a device has no queues and `stream` is not null. */
  ddphook_status_t (*stream_set)(ddphook_device_t *device, void *stream,
                                 ddphook_backend_error_t *error);
  /* Waits until all started work has ended, and returns the first failure. Ends
   * by itself when a deadline passes. */
  ddphook_status_t (*synchronize)(ddphook_device_t *device,
                                  ddphook_backend_error_t *error);

  /* Joins a process group. Collective: all its ranks must call it. A group of
   * one needs no transport. */
  ddphook_status_t (*communicator_create)(
      ddphook_device_t *device, const ddphook_communicator_config_t *config,
      ddphook_communicator_t **communicator, ddphook_backend_error_t *error);
  /* Leaves it. Not collective; no started work may be running. */
  void (*communicator_destroy)(ddphook_device_t *device,
                               ddphook_communicator_t *communicator);

  /* One pointer for each function of functions.inc that only the device
   * executes, as compiled.h defines it. It takes the device instead of the
   * module, the size of a group instead of its number (1 instead of -1) or, for
   * the role OptionalRank, this rank's number in it, prepared matrices instead
   * of their list's number, and an error at the end. Arguments were checked;
   * casts of types that a device lacks are UNSUPPORTED. */
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
#define DDPHOOK_ROLE_Block int64_t
#define DDPHOOK_ROLE_Group int64_t
#define DDPHOOK_ROLE_OptionalGroup int64_t
#define DDPHOOK_ROLE_OptionalRank int32_t
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

  /* Sets result to 1 if no element is infinite or NaN, else 0; waits for it. */
  ddphook_status_t (*is_finite)(ddphook_device_t *device, const void *in,
                                int64_t count, int32_t dtype, int32_t *result,
                                ddphook_backend_error_t *error);

  /* Null, or, for metrics, sets result to the sum of the squares of all
   * elements, in f64 and in any order; waits for it. */
  ddphook_status_t (*sum_squares)(ddphook_device_t *device, const void *in,
                                  int64_t count, int32_t dtype, double *result,
                                  ddphook_backend_error_t *error);

  /* Prepares a matrix list, which was checked, for the calls below; keeps a
   * copy, not the pointers. Allocates everything that these calls need besides
   * their arrays, for elements of `dtype`: steps allocate nothing. */
  ddphook_status_t (*matrices_create)(ddphook_device_t *device,
                                      const ddphook_matrix_list_t *list,
                                      int32_t dtype,
                                      ddphook_matrices_t **matrices,
                                      ddphook_backend_error_t *error);
  void (*matrices_destroy)(ddphook_device_t *device,
                           ddphook_matrices_t *matrices);

  /* Runs one collective, after all that were started before; or, if `ticket` is
   * not null, starts it. Collectives run in the order in which they are
   * started. Tickets are positive and increase. An unknown kind, a root that is
   * not a rank, and a count that all_to_all cannot divide into parts are
   * INVALID_ARGUMENT and have no effect. After any other failure every later
   * call on the device fails at once with the same status. */
  ddphook_status_t (*collective)(ddphook_device_t *device,
                                 ddphook_communicator_t *communicator,
                                 const ddphook_collective_t *operation,
                                 const void *in, void *out, int64_t *ticket,
                                 ddphook_backend_error_t *error);
  /* Null, or runs an all_reduce of a hierarchical group in overlapping stages,
   * or, if `ticket` is not null, starts it as collective() does. `node`
   * has the ranks of a node and `across` the ranks of one position on all
   * nodes; both have several. The result is, bit by bit, that of a
   * reduce_scatter over `node` of the elements as they are in memory, into
   * `share`; then an all_reduce over `across`, in place, of the elements of
   * this rank's part, with `operation`'s wire type or encoding, which must not
   * be affine, with that part of its `error`, and with this rank's number in
   * `node` as `rounding.share`; then an all_gather over `node`. Both reductions
   * divide if `operation` does. `share` has space for the longest part, and is
   * used until the end. */
  ddphook_status_t (*collective_staged)(ddphook_device_t *device,
                                        ddphook_communicator_t *node,
                                        ddphook_communicator_t *across,
                                        const ddphook_collective_t *operation,
                                        const void *in, void *out, void *share,
                                        int64_t *ticket,
                                        ddphook_backend_error_t *error);
  /* Makes later work wait until `ticket`, and with it all earlier ones, has
   * ended. If this blocks, it ends by itself when a deadline passes. A ticket
   * may be waited for twice. */
  ddphook_status_t (*wait)(ddphook_device_t *device, int64_t ticket,
                           ddphook_backend_error_t *error);

  /* kernels_load() loads `size` bytes of a compiled module's device code and
   * finds its kernels by name; launch() launches kernel number `kernel`, as
   * ddphook_rt_launch() defines it. All three are null if UNSUPPORTED. */
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

  /* Reports that the job failed elsewhere: waits for peers should end, and all
   * later collectives fail with this status and message. Returns at once. */
  void (*abort)(ddphook_device_t *device, ddphook_status_t status,
                const char *message);
} ddphook_backend_t;

/* The type and name of the only symbol that libddphook_backend_NAME.so exports.
 * It never returns null; the table is constant. */
typedef const ddphook_backend_t *(*ddphook_backend_get_t)(void);
#define DDPHOOK_BACKEND_GET_SYMBOL "ddphook_backend_get"

#ifdef __cplusplus
}
#endif

#endif /* DDPHOOK_RUNTIME_BACKEND_H */
