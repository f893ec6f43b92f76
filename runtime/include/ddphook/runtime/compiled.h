/*===- compiled.h - the calls that compiled code makes -------------*- C -*-===*
 *
 * Part of the ddphook project, under the Apache License v2.0 with LLVM
 * Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The contract between `convert-ddp-to-runtime` and the runtime: what a
 * compiled module exports, and the functions that its code calls. Hosts do not
 * call these functions; they use runtime.h.
 *
 * Errors. The functions that are called inside a step return no status: the
 * first failure is latched in the module, later calls of that step return at
 * once without touching memory, and ddphook_rt_leave() returns the status.
 *
 * Threads. One thread runs a step at a time per module.
 *
 * Memory. All arrays, the arena, and states of floating-point types are in
 * memory of the context's device. A plan whose "memory" is "host" belongs to
 * code that reads and writes them itself; with "device" it only passes
 * addresses on, and runs on any backend. States of integer types always lie in
 * host memory: code decides by them.
 *
 * Order. A device runs the calls of all steps in the order in which they are
 * made, each as if it ended before the next begins, except for the collectives
 * between their start and ddphook_rt_wait(). On a device with a queue of its
 * own (CUDA) a call may return before its work is done.
 *
 *===----------------------------------------------------------------------===*/
#ifndef DDPHOOK_RUNTIME_COMPILED_H
#define DDPHOOK_RUNTIME_COMPILED_H

#include "ddphook/runtime/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a struct or a call below changes its meaning. */
#define DDPHOOK_ABI_VERSION 9

/* Element types, DDPHOOK_F16 and so on; values are part of the ABI. */
typedef enum ddphook_dtype {
#define DDPHOOK_CAST_TYPE(NAME, name, bytes, c_type, file, value)              \
  DDPHOOK_##NAME = value,
#include "ddphook/runtime/element_types.inc"
} ddphook_dtype_t;

/* Kinds of collectives, as ddphook_rt_collective() defines them; values are
 * part of the ABI. */
typedef enum ddphook_collective_kind {
  DDPHOOK_ALL_REDUCE = 0,
  DDPHOOK_REDUCE_SCATTER = 1,
  DDPHOOK_ALL_GATHER = 2,
  DDPHOOK_ALL_TO_ALL = 3,
  DDPHOOK_BROADCAST = 4
} ddphook_collective_kind_t;

/* Encodings of collectives, DDPHOOK_ENCODING_I8 and so on; values are part of
 * the ABI. */
typedef enum ddphook_encoding {
  DDPHOOK_ENCODING_NONE = 0,
#define DDPHOOK_ENCODING(NAME, name, bits, KIND, value)                        \
  DDPHOOK_ENCODING_##NAME = value,
#include "ddphook/runtime/encodings.inc"
} ddphook_encoding_t;

/* Blocks of scaled codes have a multiple of the first and at most the second
 * number of elements: they begin at whole bytes, and fit into a kernel's
 * scratch memory. */
#define DDPHOOK_BLOCK_UNIT 32
#define DDPHOOK_BLOCK_MOST 4096

typedef struct ddphook_module ddphook_module_t;

/* One entry point of a compiled module. `buffers` holds one data pointer per
 * argument and then one per result that is no argument, in the order of the
 * plan's entry; arrays are contiguous and row-major, in the memory that the
 * plan names; what it calls a scalar is always in the host's. Arguments that it
 * marks "inout" are written, all others only read; every result is written
 * whole. A result whose `argument` in the plan is not -1 is that argument's
 * array. */
typedef struct ddphook_compiled_entry {
  const char *name;
  ddphook_status_t (*invoke)(void *const *buffers);
} ddphook_compiled_entry_t;

/* What a compiled module exports (`ddphook_compiled_module` in a shared object
 * made by `ddphook-cc --shared`, `<name>_module` in an object file). Constant
 * but for *handle, which ddphook_module_load() writes. */
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
   * (PTX, followed by a null that is not counted); null when it has none. */
  const void *device_code;
  uint64_t device_code_size; /* bytes */
} ddphook_compiled_module_t;

/* Begins a step: entry point number `entry` of the plan. `module` is the
 * handle, which is null if the module was not loaded; this is
 * FAILED_PRECONDITION. */
DDPHOOK_API ddphook_status_t ddphook_rt_enter(ddphook_module_t *module,
                                              int32_t entry);

/* Ends the step: waits for the collectives that it started, and returns the
 * first error. */
DDPHOOK_API ddphook_status_t ddphook_rt_leave(ddphook_module_t *module);

/* Base address of the module's scratch arena (plan: arena.bytes, aligned to
 * arena.alignment), allocated and touched by ddphook_module_load(). */
DDPHOOK_API void *ddphook_rt_arena(ddphook_module_t *module);

/* Base address of state number `state` of the plan. */
DDPHOOK_API void *ddphook_rt_state(ddphook_module_t *module, int32_t state);

/* Copies `bytes` bytes within the device's memory; the arrays do not overlap.
 */
DDPHOOK_API void ddphook_rt_copy(ddphook_module_t *module, const void *in,
                                 void *out, int64_t bytes);

/* Sets `bytes` bytes of the device's memory to zero. */
DDPHOOK_API void ddphook_rt_zero(ddphook_module_t *module, void *out,
                                 int64_t bytes);

/* Launches number `kernel` of the plan's "kernels" on a grid of blocks of
 * threads (three sizes each, x first) with `shared_bytes` bytes of dynamic
 * shared memory. `arguments` holds the address of each argument's value, in the
 * kernel's order; values are read before the call returns. */
DDPHOOK_API void ddphook_rt_launch(ddphook_module_t *module, int32_t kernel,
                                   const int64_t *grid, const int64_t *block,
                                   int64_t shared_bytes, void **arguments);

/* All-reduces collective number `collective` of the plan, which gives process
 * group, count, dtype, wire dtype and scaling. Per element, W the group's size:
 *   no wire dtype:  out = sum over ranks of s(in),  s(x) = x or x / W
 *   wire dtype w:   out = cast(sum_w over ranks of s(cast_w(in)))
 * with every intermediate rounded to the wire dtype (round to nearest even) and
 * partial sums rounded at every hop, in the ring order of docs/parity.md.
 * With an encoding elements travel as its codes, and are decoded and added in
 * f32 in the order of the ranks, as docs/quantization.md specifies; if the
 * plan's collective has an `error`, what encoding lost in the step before is
 * added first, and that state has what it loses now. All ranks get the same
 * bits. `in` may equal `out`, else they must not overlap. */
DDPHOOK_API void ddphook_rt_all_reduce(ddphook_module_t *module,
                                       int32_t collective, const void *in,
                                       void *out);

/* Starts the same all-reduce and returns its ticket while it is in flight. No
 * call may use either buffer before ddphook_rt_wait() on the ticket, except to
 * read `in` if it is not `out`. Collectives run in the order in which they are
 * started. */
DDPHOOK_API int64_t ddphook_rt_all_reduce_start(ddphook_module_t *module,
                                                int32_t collective,
                                                const void *in, void *out);
DDPHOOK_API void ddphook_rt_wait(ddphook_module_t *module, int64_t ticket);

/* Runs collective number `collective` of the plan, of any kind. Of an array of
 * `count` elements rank r's *part* has P = ceil(count / W) elements, from r * P
 * on; parts at the end are shorter, or empty.
 *   all_reduce      ddphook_rt_all_reduce()
 *   reduce_scatter  `in` has `count` elements, `out` P: this rank's part of the
 *                   all-reduce's result, and zeros behind a short one. The host
 *                   gives its bits; of NCCL's, see docs/cuda.md.
 *   all_gather      `in` has P elements, `out` `count`: all ranks' parts. What
 *                   is behind a short part is not used. A wire type rounds
 *                   every element of `out`, this rank's own too.
 *   all_to_all      `count` elements, a multiple of W: part r of `in` goes to
 *                   rank r, into the part that has this rank's number.
 *   broadcast       `count` elements: those of rank `root`. On other ranks `in`
 *                   is not read.
 * `in` may equal `out` in all_reduce and broadcast, else they must not
 * overlap. */
DDPHOOK_API void ddphook_rt_collective(ddphook_module_t *module,
                                       int32_t collective, const void *in,
                                       void *out);

/* Starts it, as ddphook_rt_all_reduce_start() does. */
DDPHOOK_API int64_t ddphook_rt_collective_start(ddphook_module_t *module,
                                                int32_t collective,
                                                const void *in, void *out);

/* The same of a reduction that the plan gives scaled codes, which are rounded
 * stochastically (docs/quantization.md): by random numbers that `stream`, which
 * is not negative, the training step `step`, the rank and an element's place
 * determine. All ranks pass the same two. */
DDPHOOK_API void ddphook_rt_stochastic_collective(ddphook_module_t *module,
                                                  int32_t collective,
                                                  int64_t stream, int64_t step,
                                                  const void *in, void *out);
DDPHOOK_API int64_t ddphook_rt_stochastic_collective_start(
    ddphook_module_t *module, int32_t collective, int64_t stream, int64_t step,
    const void *in, void *out);

/* out[i] = in[i] rounded to nearest even in `out_dtype`; to types narrower than
 * f32 through f32, and beyond their range, as PyTorch does (docs/parity.md).
 * `in` may equal `out` only if the types have the same size. */
DDPHOOK_API void ddphook_rt_cast(ddphook_module_t *module, const void *in,
                                 int32_t in_dtype, void *out, int32_t out_dtype,
                                 int64_t count);

/* out[i] = in[i] / W, W the size of process group number `group` of the plan;
 * 16-bit types are divided in f32 and rounded once. `in` may equal `out`. */
DDPHOOK_API void ddphook_rt_divide_by_group_size(ddphook_module_t *module,
                                                 int32_t group, const void *in,
                                                 void *out, int64_t count,
                                                 int32_t dtype);

/* out[i] = in[i] * factor, the factor rounded to f32 (f64 for f64) first;
 * 16-bit types are multiplied in f32 and rounded once. */
DDPHOOK_API void ddphook_rt_scale(ddphook_module_t *module, double factor,
                                  const void *in, void *out, int64_t count,
                                  int32_t dtype);

/* out[i] = a[i] + b[i], and a[i] - b[i]; 16-bit types are computed in f32 and
 * rounded once. `out` may equal `a` or `b`. */
DDPHOOK_API void ddphook_rt_add(ddphook_module_t *module, const void *a,
                                const void *b, void *out, int64_t count,
                                int32_t dtype);
DDPHOOK_API void ddphook_rt_subtract(ddphook_module_t *module, const void *a,
                                     const void *b, void *out, int64_t count,
                                     int32_t dtype);

/* out[i] = in[i] - what is left of in[i] after it was encoded and decoded again
 * (docs/quantization.md), in blocks of `block` elements from the first one on.
 * `in` may equal `out`. */
DDPHOOK_API void ddphook_rt_encoding_error(ddphook_module_t *module,
                                           const void *in, void *out,
                                           int64_t count, int32_t dtype,
                                           int32_t encoding, int64_t block);

/* The same of what this rank contributes to ddphook_rt_stochastic_collective()
 * over process group number `group` of the plan, with scaled codes. */
DDPHOOK_API void ddphook_rt_stochastic_encoding_error(
    ddphook_module_t *module, const void *in, void *out, int64_t count,
    int32_t dtype, int32_t encoding, int64_t block, int32_t group,
    int64_t stream, int64_t step);

/* The `keep` elements of largest magnitude of an f32 array of `count`, at most
 * 2^31 - 1: `entries` has 2 * keep words, these elements in the order of their
 * places, and behind them their places, int32_t. Of equal magnitudes the first
 * ones are taken; a NaN is larger than any number. `rest` is `in` with zeros at
 * these places and, if keep > 0, where `in` is not finite: it can be kept. It
 * may equal `in`. */
DDPHOOK_API void ddphook_rt_sparsify(ddphook_module_t *module, int64_t keep,
                                     const void *in, int64_t count,
                                     void *entries, void *rest);

/* out[i], of f32, = the sum of all entries whose place is i, in their order,
 * and 0 if there are none. `entries` has `parts` times what
 * ddphook_rt_sparsify() gives for `keep`. A place beyond `count` is DATA_LOSS.
 * A device may rely on the order of places within a part: what breaks it is
 * DATA_LOSS too, and whatever waits for the device next is told of it. */
DDPHOOK_API void ddphook_rt_densify(ddphook_module_t *module,
                                    const void *entries, int64_t parts,
                                    int64_t keep, void *out, int64_t count);

/*===-- Low rank --------------------------------------------------------------
 *
 * The calls below work on all matrices of a *matrix list* of the plan at once.
 * It names, in a bucket-sized array M, matrices Mᵢ of nᵢ rows and mᵢ columns,
 * and where their factors Pᵢ (nᵢ x rᵢ) and Qᵢ (mᵢ x rᵢ) lie in two other
 * arrays; and it names the *rest*, the pieces of M that belong to no matrix,
 * and where they lie in a fourth array. All have the list's element type and
 * are row-major; offsets count elements; arrays do not overlap unless it says
 * so.
 *
 * f32 and f64 are accumulated in their own type. 16-bit types are accumulated
 * in f32 and rounded once per element of a product.
 *===------------------------------------------------------------------------*/

typedef enum ddphook_matmul_kind {
  DDPHOOK_MATMUL_P = 0, /* Pᵢ = Mᵢ·Qᵢ,  from `matrix` and `q`, into `p` */
  DDPHOOK_MATMUL_Q = 1, /* Qᵢ = Mᵢᵀ·Pᵢ, from `matrix` and `p`, into `q` */
  DDPHOOK_MATMUL_M = 2  /* Mᵢ = Pᵢ·Qᵢᵀ, from `p` and `q`, into `matrix` */
} ddphook_matmul_kind_t;

/* The products of matrix list number `list`; two arrays are read, one is
 * written, nothing but the products. The rest is not touched. */
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
 *   m = g + e,  Pᵢ = Mᵢ·Qᵢ,  rest = the pieces of m that belong to no matrix.
 * Without error feedback `e` and `m` are null, and M is `g`. `m` may equal `e`
 * or `g`. `rest` is not used where the list has none. The bits are those of
 * ddphook_rt_add() and ddphook_rt_matmul(). */
DDPHOOK_API void ddphook_rt_project(ddphook_module_t *module, int32_t list,
                                    const void *g, const void *e, const void *q,
                                    void *m, void *p, void *rest);

/* The last pass, over the same elements:
 *   out = Pᵢ·Qᵢᵀ and the pieces of `rest`,  err = m - out.
 * With a process group's number instead of -1 in `group`, err = m - out / W,
 * the quotient rounded. Without error feedback `m` and `err` are null. `err`
 * may equal `m`. The bits are those of ddphook_rt_matmul(),
 * ddphook_rt_divide_by_group_size() and ddphook_rt_subtract(). */
DDPHOOK_API void ddphook_rt_reconstruct(ddphook_module_t *module, int32_t list,
                                        const void *p, const void *q,
                                        const void *rest, const void *m,
                                        void *out, void *err, int32_t group);

/* Fills `out` with standard normal numbers as PyTorch draws them
 * (docs/parity.md): takes one number below 10^9 from `generator` (a Mersenne
 * twister: 624 words and a position, numpy's RandomState), seeds PyTorch's CPU
 * generator with it, and calls `randn` for each of the `draw_count` sizes in
 * `draws`, in elements, one result behind the other. */
DDPHOOK_API void ddphook_rt_random_normal(ddphook_module_t *module,
                                          void *generator, const int64_t *draws,
                                          int64_t draw_count, void *out,
                                          int32_t dtype);

/* 1 if no element is infinite or NaN, else 0; 0 also after a failure. */
DDPHOOK_API int32_t ddphook_rt_is_finite(ddphook_module_t *module,
                                         const void *in, int64_t count,
                                         int32_t dtype);

/* Bucket number `bucket` of the plan, of `before` elements, is reduced in this
 * step by sending `after`: adds to ddphook_module_stats(). With
 * DDPHOOK_LOG=info rank 0 prints a line on stderr at the bucket's first such
 * iteration and then every `frequency` (above 0) iterations. */
DDPHOOK_API void ddphook_rt_count_compression(ddphook_module_t *module,
                                              int32_t bucket, int64_t before,
                                              int64_t after, int64_t iteration,
                                              int64_t frequency);

#ifdef __cplusplus
}
#endif

#endif /* DDPHOOK_RUNTIME_COMPILED_H */
