/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * What `ddphook-cc --shared` would write for a function whose steps depend on
 * each other through states of every kind, by hand: for each element of a
 * bucket of 14,
 *
 *   error += gradient, out = mean of error over ranks + q[i % 3],
 *   error -= out, iter += 1, q = new random numbers.
 *
 * With DDPHOOK_TEST_OTHER_PLAN a module that differs in the name of a bucket.
 */

#include "abi_text.h"
#include "ddphook/runtime/compiled.h"

#ifdef DDPHOOK_TEST_OTHER_PLAN
#define BUCKET "b1"
#else
#define BUCKET "b0"
#endif

enum { elementCount = 14, factorCount = 3 };
enum { iterState, generatorState, errorState, factorState };

static ddphook_module_t *handle;

#define STATE(name, dtype, shapes, role, gradients, placement, init)           \
  "{\"name\":\"" name "\",\"dtype\":\"" dtype "\",\"shapes\":" shapes          \
  ",\"role\":\"test." role "\",\"gradients\":" gradients                       \
  ",\"method\":\"\",\"placement\":\"" placement "\",\"init\":" init "}"
/* Names of the bucket's gradients. */
#define W "\"" BUCKET ".w\""
#define B "\"" BUCKET ".b\""
#define ZERO "\"zero\",\"seed\":0,\"generator\":\"\",\"draws\":[]"

static const char plan[] =
    "{\"abi\":" ABI_TEXT
    ",\"memory\":\"host\",\"kernels\":[],\"process_groups\":[{"
    "\"name\":\"dp\",\"size\":0,\"ranks\":[],"
    "\"placement\":\"\",\"parent\":\"\",\"topology\":\"flat\"}],"
    "\"buckets\":[{\"name\":\"" BUCKET "\",\"group\":\"dp\",\"reduction\":"
    "\"mean\",\"dtype\":\"f32\",\"shapes\":[[4,3],[2]],\"gradients\":[],"
    "\"hook\":\"#test.hook\","
    "\"wire_dtype\":\"\",\"encoding\":\"\",\"block\":0,\"wire_bytes\":56,"
    "\"state_bytes\":68}],"
    "\"states\":["
    // clang-format off
    STATE("powersgd.iter", "i64", "[[]]", "iter", "[[" W "," B "]]", "replicated",
          ZERO ",\"offset\":0,\"bytes\":8") ","
    STATE("powersgd.generator", "i32", "[[625]]", "generator",
          "[[" W "," B "]]", "replicated",
          "\"mt19937\",\"seed\":42,\"generator\":\"\",\"draws\":[],"
          "\"offset\":64,\"bytes\":2500") ","
    STATE(BUCKET ".error", "f32", "[[4,3],[2]]", "error", "[[" W "],[" B "]]",
          "per_rank",
          ZERO ",\"offset\":2624,\"bytes\":56") ","
    STATE(BUCKET ".q", "f32", "[[3,1]]", "q", "[[" W "]]", "replicated",
          "\"normal\",\"seed\":0,\"generator\":\"powersgd.generator\","
          "\"draws\":[3],\"offset\":2688,\"bytes\":12")
    // clang-format on
    "],\"matrix_lists\":[],"
    "\"collectives\":[{\"kind\":\"all_reduce\",\"bucket\":\"" BUCKET
    "\",\"group\":0,\"count\":14,"
    "\"dtype\":\"f32\",\"wire_dtype\":\"\",\"encoding\":\"\",\"block\":0,"
    "\"divide\":true,\"root\":0,"
    "\"error\":\"\",\"stream\":-1}],"
    "\"arena\":{\"bytes\":0,\"alignment\":64},"
    "\"state_arena\":{\"bytes\":2700,\"alignment\":64},"
    "\"entries\":[{\"name\":\"step\",\"arguments\":[{\"dtype\":\"f32\","
    "\"shape\":[14],\"scalar\":false,\"inout\":false}],\"results\":[{\"dtype\":"
    "\"f32\","
    "\"shape\":[14],\"argument\":-1}]}]}";

static ddphook_status_t runStep(void *const *buffers) {
  const float *gradient = buffers[0];
  float *out = buffers[1];
  ddphook_status_t status = ddphook_rt_enter(handle, 0);
  if (status != DDPHOOK_OK)
    return status;
  int64_t *iter = ddphook_rt_state(handle, iterState);
  float *error = ddphook_rt_state(handle, errorState);
  float *factor = ddphook_rt_state(handle, factorState);
  for (int i = 0; i < elementCount; ++i)
    error[i] += gradient[i];
  ddphook_rt_collective(handle, 0, error, out, /*step=*/0);
  for (int i = 0; i < elementCount; ++i) {
    out[i] += factor[i % factorCount];
    error[i] -= out[i];
  }
  ++*iter;
  const int64_t draws[] = {factorCount};
  ddphook_rt_random_normal(handle, ddphook_rt_state(handle, generatorState),
                           draws, 1, factor, DDPHOOK_F32);
  return ddphook_rt_leave(handle);
}

static const ddphook_compiled_entry_t entries[] = {{"step", runStep}};

#include "exec_module_export.h"
