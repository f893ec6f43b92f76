/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * What `ddphook-cc --shared` would write for a step whose arrays lie in a
 * device's memory, by hand: it passes their addresses on, and reads scalars and
 * states of integer types itself. For a bucket of 14 elements
 *
 *   error += gradient, mean = mean of error over ranks, error -= mean,
 *   parameters += factor * mean, iteration += 1,
 *   q = new random numbers in every second step, labels as they were given.
 *
 * With DDPHOOK_TEST_TOUCH it adds up the gradient itself, as no such module
 * may. */

#include "abi_text.h"
#include "ddphook/runtime/compiled.h"

enum { elementCount = 14, factorCount = 3 };
enum { iterationState, generatorState, errorState, factorState };

static ddphook_module_t *handle;

#define STATE(name, dtype, shapes, role, gradients, placement, init)           \
  "{\"name\":\"" name "\",\"dtype\":\"" dtype "\",\"shapes\":" shapes          \
  ",\"role\":\"test." role "\",\"gradients\":" gradients                       \
  ",\"method\":\"\",\"placement\":\"" placement "\",\"init\":" init "}"
/* Names of the bucket's gradients. */
#define W "\"b0.w\""
#define B "\"b0.b\""
#define ZERO "\"zero\",\"seed\":0,\"generator\":\"\",\"draws\":[]"
#define ARGUMENT(dtype, shape, scalar, inout)                                  \
  "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"scalar\":" scalar            \
  ",\"inout\":" inout "}"
#define RESULT(dtype, shape, argument)                                         \
  "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"argument\":" argument "}"

static const char plan[] =
    "{\"abi\":" ABI_TEXT
    ",\"memory\":\"device\",\"kernels\":[],\"process_groups\":[{"
    "\"name\":\"dp\",\"size\":0,\"ranks\":[],"
    "\"placement\":\"\",\"parent\":\"\",\"topology\":\"flat\"}],"
    "\"buckets\":[{\"name\":\"b0\",\"group\":\"dp\",\"reduction\":\"mean\","
    "\"dtype\":\"f32\",\"shapes\":[[4,3],[2]],\"gradients\":[],"
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
    STATE("b0.error", "f32", "[[4,3],[2]]", "error", "[[" W "],[" B "]]",
          "per_rank",
          ZERO ",\"offset\":2624,\"bytes\":56") ","
    STATE("b0.q", "f32", "[[3,1]]", "q", "[[" W "]]", "replicated",
          "\"normal\",\"seed\":0,\"generator\":\"powersgd.generator\","
          "\"draws\":[3],\"offset\":2688,\"bytes\":12")
    "],\"matrix_lists\":[],"
    "\"collectives\":[{\"kind\":\"all_reduce\",\"bucket\":\"b0\",\"group\":0,\"count\":14,"
    "\"dtype\":\"f32\",\"wire_dtype\":\"\",\"encoding\":\"\",\"block\":0,\"divide\":true,\"root\":0,"
    "\"error\":\"\",\"stream\":-1}],"
    "\"arena\":{\"bytes\":128,\"alignment\":64},"
    "\"state_arena\":{\"bytes\":2700,\"alignment\":64},"
    "\"entries\":[{\"name\":\"step\",\"arguments\":["
    ARGUMENT("f32", "[14]", "false", "false") ","
    ARGUMENT("f64", "[]", "true", "false") ","
    ARGUMENT("i32", "[2]", "false", "false") ","
    ARGUMENT("f32", "[14]", "false", "true")
    "],\"results\":["
    RESULT("f32", "[14]", "-1") ","
    RESULT("f32", "[14]", "3") ","
    RESULT("i32", "[2]", "-1") ","
    RESULT("f32", "[3]", "-1")
    // clang-format on
    "]}]}";

static ddphook_status_t runStep(void *const *buffers) {
  void *gradient = buffers[0];
  const double factor = *(const double *)buffers[1];
  void *parameters = buffers[3], *mean = buffers[4];
  ddphook_status_t status = ddphook_rt_enter(handle, 0);
  if (status != DDPHOOK_OK)
    return status;
  int64_t *iteration = ddphook_rt_state(handle, iterationState);
  void *error = ddphook_rt_state(handle, errorState);
  void *q = ddphook_rt_state(handle, factorState);
  char *update = (char *)ddphook_rt_arena(handle) + 64;
#ifdef DDPHOOK_TEST_TOUCH
  for (int i = 1; i < elementCount; ++i)
    ((float *)gradient)[0] += ((const float *)gradient)[i];
#endif
  ddphook_rt_add(handle, error, gradient, error, elementCount, DDPHOOK_F32);
  ddphook_rt_wait(
      handle, ddphook_rt_collective_start(handle, 0, error, mean, /*step=*/0));
  ddphook_rt_subtract(handle, error, mean, error, elementCount, DDPHOOK_F32);
  ddphook_rt_scale(handle, factor, mean, update, elementCount, DDPHOOK_F32);
  ddphook_rt_add(handle, parameters, update, parameters, elementCount,
                 DDPHOOK_F32);
  const int64_t draws[] = {factorCount};
  if (*iteration % 2)
    ddphook_rt_random_normal(handle, ddphook_rt_state(handle, generatorState),
                             draws, 1, q, DDPHOOK_F32);
  ++*iteration;
  ddphook_rt_copy(handle, buffers[2], buffers[5], 2 * sizeof(int32_t));
  ddphook_rt_copy(handle, q, buffers[6], factorCount * sizeof(float));
  return ddphook_rt_leave(handle);
}

static const ddphook_compiled_entry_t entries[] = {{"step", runStep}};

#include "exec_module_export.h"
