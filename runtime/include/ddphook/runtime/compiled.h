/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The contract between `convert-ddp-to-runtime` and the runtime: the exports of
 * a compiled module, and the functions that its code calls. Hosts do not call
 * these functions; they use runtime.h.
 *
 * Errors. Functions that are called inside a step return no status: the first
 * failure is latched in the module, later calls of that step return at once
 * without touching memory, and ddphook_rt_leave() returns the status.
 *
 * Threads. One thread at a time runs a step of a module.
 *
 * Memory. All arrays, the arena, and states of floating-point types are in
 * memory of the context's device. A plan whose "memory" is "host" belongs to
 * code that reads and writes them itself; with "device" the code only passes
 * addresses on, and runs on any backend. States of integer types are always in
 * host memory, because code branches on them.
 *
 * Order. A device runs the calls of all steps in the order in which they are
 * made, each as if it ended before the next begins, except for collectives
 * between their start and ddphook_rt_wait(). On a device with its own queue
 * (CUDA) a call may return before its work is done. */

#ifndef DDPHOOK_RUNTIME_COMPILED_H
#define DDPHOOK_RUNTIME_COMPILED_H

#include "ddphook/runtime/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a struct or a call below changes its meaning. */
#define DDPHOOK_ABI_VERSION 10

/* Element types, DDPHOOK_F16 and so on; values are part of the ABI. */
typedef enum ddphook_dtype {
#define DDPHOOK_CAST_TYPE(NAME, name, bytes, c_type, file, value)              \
  DDPHOOK_##NAME = value,
#include "ddphook/runtime/element_types.inc"
} ddphook_dtype_t;

/* Kinds of collectives, as ddphook_rt_collective() defines them; values are
 * part of the ABI. */
typedef enum ddphook_collective_kind {
#define DDPHOOK_COLLECTIVE(NAME, Name, name, value) DDPHOOK_##NAME = value,
#include "ddphook/runtime/plan_fields.inc"
} ddphook_collective_kind_t;

/* Encodings of collectives, DDPHOOK_ENCODING_I8 and so on; values are part of
 * the ABI. */
typedef enum ddphook_encoding {
  DDPHOOK_ENCODING_NONE = 0,
#define DDPHOOK_ENCODING(NAME, name, bits, KIND, value)                        \
  DDPHOOK_ENCODING_##NAME = value,
#include "ddphook/runtime/encodings.inc"
} ddphook_encoding_t;

/* Blocks of scaled codes have a multiple of DDPHOOK_BLOCK_UNIT and at most
 * DDPHOOK_BLOCK_MOST elements, so that they begin at whole bytes and fit into a
 * kernel's scratch memory. */
#define DDPHOOK_BLOCK_UNIT 32
#define DDPHOOK_BLOCK_MOST 4096

typedef struct ddphook_module ddphook_module_t;

/* One entry point of a compiled module. `buffers` holds one data pointer per
 * argument and then one per result that is not an argument, in the order of the
 * plan's entry. Arrays are contiguous, row-major, and in the memory that the
 * plan names; the plan's scalars are always in host memory. Arguments marked
 * "inout" in the plan are written, all others only read; every result is
 * written completely. A result whose `argument` in the plan is not -1 is that
 * argument's array. */
typedef struct ddphook_compiled_entry {
  const char *name;
  ddphook_status_t (*invoke)(void *const *buffers);
} ddphook_compiled_entry_t;

/* The export of a compiled module (`ddphook_compiled_module` in a shared object
 * made by `ddphook-cc --shared`, `<name>_module` in an object file). Constant
 * except for *handle, which ddphook_module_load() writes. */
typedef struct ddphook_compiled_module {
  uint32_t struct_size; /* sizeof(ddphook_compiled_module_t) */
  uint32_t abi_version; /* DDPHOOK_ABI_VERSION of the compiler */
  const char *plan;     /* JSON text, see docs/plan.md; not null-terminated */
  uint64_t plan_size;   /* bytes */
  uint64_t plan_hash;   /* XXH3-64 of those bytes */
  ddphook_module_t **handle;
  uint64_t entry_count;
  const ddphook_compiled_entry_t *entries;
  /* The plan's "kernels", as text or as an image that the device's driver loads
   * (PTX is followed by a null that is not counted); null if there are none. */
  const void *device_code;
  uint64_t device_code_size; /* bytes */
} ddphook_compiled_module_t;

/* Begins a step: entry point number `entry` of the plan. `module` is the
 * handle. It is null if the module was not loaded, which is
 * FAILED_PRECONDITION. */
DDPHOOK_API ddphook_status_t ddphook_rt_enter(ddphook_module_t *module,
                                              int32_t entry);

/* Ends the step: waits for its collectives, and returns the first error. */
DDPHOOK_API ddphook_status_t ddphook_rt_leave(ddphook_module_t *module);

/* Returns the address of the module's scratch arena (plan: arena.bytes, aligned
 * to arena.alignment), which ddphook_module_load() allocates and touches. */
DDPHOOK_API void *ddphook_rt_arena(ddphook_module_t *module);

/* Returns the base address of state number `state` of the plan. */
DDPHOOK_API void *ddphook_rt_state(ddphook_module_t *module, int32_t state);

/* Copies `bytes` bytes within device memory; the arrays must not overlap. */
DDPHOOK_API void ddphook_rt_copy(ddphook_module_t *module, const void *in,
                                 void *out, int64_t bytes);

/* Sets `bytes` bytes of device memory to zero. */
DDPHOOK_API void ddphook_rt_zero(ddphook_module_t *module, void *out,
                                 int64_t bytes);

/* Launches kernel number `kernel` of the plan's "kernels" on a grid of blocks
 * of threads (three sizes each, x first) with `shared_bytes` bytes of dynamic
 * shared memory. `arguments` holds the address of each argument's value, in the
 * kernel's order; values are read before the call returns. */
DDPHOOK_API void ddphook_rt_launch(ddphook_module_t *module, int32_t kernel,
                                   const int64_t *grid, const int64_t *block,
                                   int64_t shared_bytes, void **arguments);

/* Runs collective number `collective` of the plan, which defines its kind,
 * process group, count, element types and so on. Rank r's *part* of an array of
 * `count` elements has P = ceil(count / W) elements, from r * P on, where W is
 * the group's size; parts at the end are shorter or empty.
 *  all_reduce      the sum over all ranks, as defined below. All ranks get the
 *                  same bits.
 *  reduce_scatter  `in` has `count` elements, `out` P: this rank's part of the
 *                  all-reduce's result, and zeros after a short one. The host
 *                  gives its bits; for NCCL's, see docs/cuda.md.
 *  all_gather      `in` has P elements, `out` `count`: all ranks' parts.
 *                  Elements after a short part are ignored. A wire type or an
 *                  encoding, whose blocks begin at each part, rounds every
 *                  element of `out`, including this rank's own.
 *  all_to_all      `count` elements, a multiple of W: part r of `in` goes to
 *                  rank r, into the part that has this rank's number.
 *  broadcast       `count` elements: those of rank `root`. Other ranks do not
 *                  read `in`.
 * `in` may equal `out` in all_reduce and broadcast; otherwise they must not
 * overlap.
 *
 * Per element, an all-reduce computes
 *  no wire dtype:  out = sum over ranks of s(in),  s(x) = x or x / W
 *  wire dtype w:   out = cast(sum_w over ranks of s(cast_w(in)))
 * Every intermediate is rounded to the wire dtype (to nearest even), as are
 * partial sums at every hop, in the ring order of docs/parity.md. On CUDA, NCCL
 * orders sums, and x / W is a product with 1 / W, as in PyTorch. With an
 * encoding, elements are sent as its codes, decoded, and added in f32 in rank
 * order (docs/quantization.md). If the plan's collective has an `error`, what
 * encoding lost in the previous step is added first, and that state becomes
 * what it loses now. If it has a `stream`, codes are rounded stochastically:
 * the random numbers depend on the stream, the training step `step`, the rank
 * and an element's index. All ranks must pass the same `step`, which other
 * collectives ignore. */
DDPHOOK_API void ddphook_rt_collective(ddphook_module_t *module,
                                       int32_t collective, const void *in,
                                       void *out, int64_t step);

/* Starts the same collective and returns its ticket while it is in flight. No
 * call may use either buffer before ddphook_rt_wait() on the ticket, except to
 * read `in` if it is not `out`. Collectives run in the order in which they are
 * started. */
DDPHOOK_API int64_t ddphook_rt_collective_start(ddphook_module_t *module,
                                                int32_t collective,
                                                const void *in, void *out,
                                                int64_t step);
DDPHOOK_API void ddphook_rt_wait(ddphook_module_t *module, int64_t ticket);

/* Computes out[i] = in[i] rounded to nearest even in `out_dtype`; types
 * narrower than f32 round through f32 and, beyond their range, as in PyTorch
 * (docs/parity.md). `in` may equal `out` only if both types have one size. */
DDPHOOK_API void ddphook_rt_cast(ddphook_module_t *module, const void *in,
                                 int32_t in_dtype, void *out, int32_t out_dtype,
                                 int64_t count);

/* Computes out[i] = in[i] / W as a collective does, with W the size of process
 * group `group` of the plan. 16-bit types are divided in f32, rounded once.
 * `in` may equal `out`. */
DDPHOOK_API void ddphook_rt_divide_by_group_size(ddphook_module_t *module,
                                                 int32_t group, const void *in,
                                                 void *out, int64_t count,
                                                 int32_t dtype);

/* Computes out[i] = in[i] * factor, where the factor is first rounded to f32
 * (f64 for f64). 16-bit types are multiplied in f32 and rounded once. */
DDPHOOK_API void ddphook_rt_scale(ddphook_module_t *module, double factor,
                                  const void *in, void *out, int64_t count,
                                  int32_t dtype);

/* Compute out[i] = a[i] + b[i], and a[i] - b[i]. 16-bit types are computed in
 * f32 and rounded once. `out` may equal `a` or `b`. */
DDPHOOK_API void ddphook_rt_add(ddphook_module_t *module, const void *a,
                                const void *b, void *out, int64_t count,
                                int32_t dtype);
DDPHOOK_API void ddphook_rt_subtract(ddphook_module_t *module, const void *a,
                                     const void *b, void *out, int64_t count,
                                     int32_t dtype);

/* Computes out[i] = in[i] minus what remains of in[i] after it is encoded and
 * decoded (docs/quantization.md), in blocks of `block` elements from the first
 * one on. `in` may equal `out`. If `group` is a process group's number instead
 * of -1, scaled codes are rounded as for this rank's contribution to
 * ddphook_rt_collective() over that group with this `stream` and `step`. */
DDPHOOK_API void ddphook_rt_encoding_error(ddphook_module_t *module,
                                           const void *in, void *out,
                                           int64_t count, int32_t dtype,
                                           int32_t encoding, int64_t block,
                                           int32_t group, int64_t stream,
                                           int64_t step);

/* Finds the `keep` elements of largest magnitude of an f32 array of `count` (at
 * most 2^31 - 1) elements. `entries` gets 2 * keep words: these elements,
 * ordered by index, and then their indices, as int32_t. Among equal magnitudes
 * the first ones are taken; a NaN is larger than any number. `rest` is `in`
 * with zeros at these indices and, if keep > 0, where `in` is not finite, so
 * that it can be kept. It may equal `in`. */
DDPHOOK_API void ddphook_rt_sparsify(ddphook_module_t *module, int64_t keep,
                                     const void *in, int64_t count,
                                     void *entries, void *rest);

/* Computes out[i], in f32, = the sum of all entries with index i, in their
 * order, or 0 if there are none. `entries` holds `parts` results of
 * ddphook_rt_sparsify() with `keep`. Indices that do not ascend below `count`
 * within a part are DATA_LOSS, which a device returns from the next call that
 * waits for it. */
DDPHOOK_API void ddphook_rt_densify(ddphook_module_t *module,
                                    const void *entries, int64_t parts,
                                    int64_t keep, void *out, int64_t count);

/*===-- Low rank --------------------------------------------------------------
 *
 * The calls below process all matrices of a *matrix list* of the plan at once.
 * It defines matrices Mᵢ of nᵢ rows and mᵢ columns in a bucket-sized array M,
 * and the locations of their factors Pᵢ (nᵢ x rᵢ) and Qᵢ (mᵢ x rᵢ) in two other
 * arrays; it also defines the *rest*, the pieces of M outside all matrices, and
 * their locations in a fourth array. All have the list's element type and are
 * row-major; offsets are in elements; arrays must not overlap unless stated
 * otherwise.
 *
 * f32 and f64 are accumulated in their own type. 16-bit types are accumulated
 * in f32 and rounded once per element of a product.
 *===------------------------------------------------------------------------*/

typedef enum ddphook_matmul_kind {
  DDPHOOK_MATMUL_P = 0, /* Pᵢ = Mᵢ·Qᵢ,  from `matrix` and `q`, into `p` */
  DDPHOOK_MATMUL_Q = 1, /* Qᵢ = Mᵢᵀ·Pᵢ, from `matrix` and `p`, into `q` */
  DDPHOOK_MATMUL_M = 2  /* Mᵢ = Pᵢ·Qᵢᵀ, from `p` and `q`, into `matrix` */
} ddphook_matmul_kind_t;

/* Computes the products of matrix list number `list`: reads two arrays and
 * writes one, only the products. The rest is not touched. */
DDPHOOK_API void ddphook_rt_matmul(ddphook_module_t *module, int32_t list,
                                   int32_t kind, void *matrix, void *p,
                                   void *q);

typedef enum ddphook_factor {
  DDPHOOK_FACTOR_P = 0,
  DDPHOOK_FACTOR_Q = 1,
  /* Flags, added to one of the two. */
  DDPHOOK_UNIT_COLUMNS = 2,
  DDPHOOK_INDEPENDENT_COLUMNS = 4
} ddphook_factor_t;

/* Makes the columns of every factor Pᵢ (or Qᵢ) orthonormal, as PyTorch's
 * PowerSGD does (docs/parity.md): modified Gram-Schmidt with
 * `column /= norm + epsilon` for rᵢ <= 2 and for 16-bit types, else Householder
 * QR with LAPACK's signs, which ignores epsilon. Gram-Schmidt turns a column
 * into NaN or infinity if its norm plus epsilon is 0; with DDPHOOK_UNIT_COLUMNS
 * the column becomes a unit vector, minus its projection on the columns before
 * it. With DDPHOOK_INDEPENDENT_COLUMNS so does every column of whose norm the
 * projections leave less than half of the type's digits, since the rest is
 * mostly rounding errors. `in` may equal `out`. */
DDPHOOK_API void ddphook_rt_orthogonalize(ddphook_module_t *module,
                                          int32_t list, int32_t factor,
                                          const void *in, void *out,
                                          double epsilon);

/* The first pass of low-rank compression, over elements begin … end of the
 * list:
 *  m = g + e,  Pᵢ = Mᵢ·Qᵢ,  rest = the pieces of m outside all matrices.
 * Without error feedback `e` and `m` are null, and M is `g`. `m` may equal `e`
 * or `g`. `rest` is ignored if the list has none. The bits are those of
 * ddphook_rt_add() and ddphook_rt_matmul(). */
DDPHOOK_API void ddphook_rt_project(ddphook_module_t *module, int32_t list,
                                    const void *g, const void *e, const void *q,
                                    void *m, void *p, void *rest);

/* The last pass, over the same elements:
 *  out = Pᵢ·Qᵢᵀ and the pieces of `rest`,  err = m - out.
 * If `group` is a process group's number instead of -1, err = m - out / W, with
 * the quotient rounded. Without error feedback `m` and `err` are null. `err`
 * may equal `m`. The bits are those of ddphook_rt_matmul(),
 * ddphook_rt_divide_by_group_size() and ddphook_rt_subtract(). */
DDPHOOK_API void ddphook_rt_reconstruct(ddphook_module_t *module, int32_t list,
                                        const void *p, const void *q,
                                        const void *rest, const void *m,
                                        void *out, void *err, int32_t group);

/* Completes ddphook_rt_reconstruct() of a list whose matrices are assigned to
 * the ranks of a node: `out` gets the parts that other ranks have, without
 * errors. Does nothing for other lists. */
DDPHOOK_API void ddphook_rt_reconstruct_others(ddphook_module_t *module,
                                               int32_t list, const void *p,
                                               const void *q, const void *rest,
                                               void *out);

/* Fills `out` with standard normal numbers as PyTorch draws them
 * (docs/parity.md): takes one number below 10^9 from `generator` (a Mersenne
 * twister: 624 words and a position, as numpy's RandomState), seeds PyTorch's
 * CPU generator with it, and calls `randn` for each of the `draw_count` sizes
 * in `draws`, in elements. The results are contiguous. */
DDPHOOK_API void ddphook_rt_random_normal(ddphook_module_t *module,
                                          void *generator, const int64_t *draws,
                                          int64_t draw_count, void *out,
                                          int32_t dtype);

/* Returns 0 if an element is infinite or NaN or after a failure, else 1. */
DDPHOOK_API int32_t ddphook_rt_is_finite(ddphook_module_t *module,
                                         const void *in, int64_t count,
                                         int32_t dtype);

/* Records in ddphook_module_stats() that bucket number `bucket` of the plan,
 * with `before` elements, is reduced in this step by sending `after`. With
 * DDPHOOK_LOG=info rank 0 prints a line on stderr at the bucket's first such
 * iteration and then every `frequency` (above 0) iterations. */
DDPHOOK_API void ddphook_rt_count_compression(ddphook_module_t *module,
                                              int32_t bucket, int64_t before,
                                              int64_t after, int64_t iteration,
                                              int64_t frequency);

/* Measure what compression loses of bucket number `bucket` of the plan, if
 * metrics request it in this step (docs/tracing.md). The first one follows a
 * product Q of ddphook_rt_matmul() that is this rank's contribution; the second
 * one follows ddphook_rt_sparsify(). */
DDPHOOK_API void ddphook_rt_measure_product(ddphook_module_t *module,
                                            int32_t bucket, int32_t list,
                                            const void *matrix, const void *p,
                                            const void *q);
DDPHOOK_API void ddphook_rt_measure_entries(ddphook_module_t *module,
                                            int32_t bucket, int64_t keep,
                                            const void *entries,
                                            const void *rest, int64_t count);

#ifdef __cplusplus
}
#endif

#endif /* DDPHOOK_RUNTIME_COMPILED_H */
