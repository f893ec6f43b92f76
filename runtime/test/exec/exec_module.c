/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * What `ddphook-cc --shared` would write for a few small functions, by hand, so
 * that ddphook-exec is tested without a compiler. One entry point misbehaves on
 * demand. DDPHOOK_TEST_DEFECT builds modules that no loader may accept:
 * 1 another ABI version, 2 a struct too small, 3 a plan with another hash,
 * 4 no exported module. */

#include "abi_text.h"
#include "ddphook/runtime/compiled.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#ifndef DDPHOOK_TEST_DEFECT
#define DDPHOOK_TEST_DEFECT 0
#endif

enum { vectorSize = 7 };

static ddphook_module_t *handle;

#define ARGUMENT(dtype, shape, inout)                                          \
  "{\"dtype\":\"" dtype "\",\"shape\":" shape                                  \
  ",\"scalar\":false,\"inout\":" inout "}"
#define RESULT(dtype, shape, argument)                                         \
  "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"argument\":" argument "}"
#define ENTRY(name, arguments, results)                                        \
  "{\"name\":\"" name "\",\"arguments\":[" arguments "],\"results\":[" results \
  "]}"
#define VECTOR_IN ARGUMENT("f32", "[7]", "false")
#define VECTOR_OUT RESULT("f32", "[7]", "-1")

static const char plan[] =
    "{\"abi\":" ABI_TEXT
    ",\"memory\":\"host\",\"kernels\":[],\"process_groups\":[{"
    "\"name\":\"dp\",\"size\":0,\"ranks\":[],"
    "\"placement\":\"\",\"parent\":\"\",\"topology\":\"flat\"}],"
    "\"buckets\":[{\"name\":\"b0\",\"group\":\"dp\",\"reduction\":\"mean\","
    "\"dtype\":\"f32\",\"shapes\":[[7]],\"gradients\":[],"
    "\"hook\":\"#ddp.allreduce\","
    "\"wire_dtype\":\"\",\"encoding\":\"\",\"block\":0,\"wire_bytes\":28,"
    "\"state_bytes\":0}],"
    "\"states\":[],\"matrix_lists\":[],"
    "\"collectives\":["
    "{\"kind\":\"all_reduce\",\"bucket\":\"b0\",\"group\":0,\"count\":7,"
    "\"dtype\":\"f32\","
    "\"wire_dtype\":\"\",\"encoding\":\"\",\"block\":0,\"divide\":true,"
    "\"root\":0,"
    "\"error\":\"\",\"stream\":-1},"
    "{\"kind\":\"all_reduce\",\"bucket\":\"b0\",\"group\":0,\"count\":7,"
    "\"dtype\":\"f32\","
    "\"wire_dtype\":\"f16\",\"encoding\":\"\",\"block\":0,\"divide\":true,"
    "\"root\":0,"
    "\"error\":\"\",\"stream\":-1}],"
    "\"arena\":{\"bytes\":64,\"alignment\":64},"
    "\"state_arena\":{\"bytes\":0,\"alignment\":64},"
    "\"entries\":["
    // clang-format off
    ENTRY("step", VECTOR_IN, VECTOR_OUT) ","
    ENTRY("halves", VECTOR_IN, VECTOR_OUT) ","
    ENTRY("update", ARGUMENT("f32", "[7]", "true") "," VECTOR_IN,
          RESULT("f32", "[7]", "0") "," RESULT("f32", "[]", "-1")) ","
    ENTRY("types",
          ARGUMENT("f16", "[2,3]", "false") ","
          ARGUMENT("bf16", "[2,3]", "false") ","
          ARGUMENT("f32", "[2,3]", "false") ","
          ARGUMENT("f64", "[2,3]", "false") ","
          ARGUMENT("i1", "[2,3]", "false") ","
          ARGUMENT("i8", "[2,3]", "false") ","
          ARGUMENT("i16", "[2,3]", "false") ","
          ARGUMENT("i32", "[2,3]", "false") ","
          ARGUMENT("i64", "[2,3]", "false") ","
          ARGUMENT("index", "[2,3]", "false") ","
          ARGUMENT("f32", "[]", "false") ","
          ARGUMENT("f32", "[0,3]", "false"),
          RESULT("f16", "[2,3]", "-1") ","
          RESULT("bf16", "[2,3]", "-1") ","
          RESULT("f32", "[2,3]", "-1") ","
          RESULT("f64", "[2,3]", "-1") ","
          RESULT("i1", "[2,3]", "-1") ","
          RESULT("i8", "[2,3]", "-1") ","
          RESULT("i16", "[2,3]", "-1") ","
          RESULT("i32", "[2,3]", "-1") ","
          RESULT("i64", "[2,3]", "-1") ","
          RESULT("index", "[2,3]", "-1") ","
          RESULT("f32", "[]", "-1") ","
          RESULT("f32", "[0,3]", "-1")) ","
    ENTRY("misbehave",
          ARGUMENT("i32", "[]", "false") "," ARGUMENT("i32", "[]", "false"),
          VECTOR_OUT) ","
    ENTRY("forget", , VECTOR_OUT) ","
    ENTRY("nothing", , )
    // clang-format on
    "]}";

static ddphook_status_t runStep(void *const *buffers) {
  ddphook_status_t status = ddphook_rt_enter(handle, 0);
  if (status != DDPHOOK_OK)
    return status;
  ddphook_rt_collective(handle, 0, buffers[0], buffers[1], /*step=*/0);
  return ddphook_rt_leave(handle);
}

static ddphook_status_t runHalves(void *const *buffers) {
  ddphook_status_t status = ddphook_rt_enter(handle, 1);
  if (status != DDPHOOK_OK)
    return status;
  ddphook_rt_collective(handle, 1, buffers[0], buffers[1], /*step=*/0);
  return ddphook_rt_leave(handle);
}

/// parameter -= 0.5 · mean(gradient); also gives the mean's first element.
static ddphook_status_t runUpdate(void *const *buffers) {
  float *parameter = buffers[0];
  ddphook_status_t status = ddphook_rt_enter(handle, 2);
  if (status != DDPHOOK_OK)
    return status;
  float *mean = ddphook_rt_arena(handle);
  ddphook_rt_collective(handle, 0, buffers[1], mean, /*step=*/0);
  status = ddphook_rt_leave(handle);
  if (status != DDPHOOK_OK)
    return status;
  for (int i = 0; i < vectorSize; ++i)
    parameter[i] -= 0.5f * mean[i];
  memcpy(buffers[2], mean, sizeof(float));
  return DDPHOOK_OK;
}

static ddphook_status_t runTypes(void *const *buffers) {
  static const size_t bytes[12] = {12, 12, 24, 48, 6, 6, 12, 24, 48, 48, 4, 0};
  ddphook_status_t status = ddphook_rt_enter(handle, 3);
  if (status != DDPHOOK_OK)
    return status;
  for (int i = 0; i < 12; ++i)
    memcpy(buffers[12 + i], buffers[i], bytes[i]);
  return ddphook_rt_leave(handle);
}

/// All ranks reduce, but for the one that argument 0 names: that one does what
/// argument 1 says.
static ddphook_status_t runMisbehave(void *const *buffers) {
  static const float values[vectorSize];
  const char *rank = getenv("RANK");
  ddphook_status_t status = ddphook_rt_enter(handle, 4);
  if (status != DDPHOOK_OK)
    return status;
  if (rank && atoi(rank) == *(const int32_t *)buffers[0]) {
    switch (*(const int32_t *)buffers[1]) {
    case 0:
      raise(SIGKILL);
      break;
    case 1:
      raise(SIGSEGV);
      break;
    case 2:
      while (1)
        pause();
    case 3:
      exit(5);
    case 4:
      ddphook_rt_leave(handle);
      return DDPHOOK_UNSUPPORTED;
    case 5:
      raise(SIGSTOP);
      break;
    }
  }
  ddphook_rt_collective(handle, 0, values, buffers[2], /*step=*/0);
  return ddphook_rt_leave(handle);
}

/// Leaves its result unwritten.
static ddphook_status_t runForget(void *const *buffers) {
  (void)buffers;
  ddphook_status_t status = ddphook_rt_enter(handle, 5);
  return status != DDPHOOK_OK ? status : ddphook_rt_leave(handle);
}

static ddphook_status_t runNothing(void *const *buffers) {
  (void)buffers;
  ddphook_status_t status = ddphook_rt_enter(handle, 6);
  return status != DDPHOOK_OK ? status : ddphook_rt_leave(handle);
}

static const ddphook_compiled_entry_t entries[] = {
    {"step", runStep},       {"halves", runHalves},       {"update", runUpdate},
    {"types", runTypes},     {"misbehave", runMisbehave}, {"forget", runForget},
    {"nothing", runNothing},
};

#if DDPHOOK_TEST_DEFECT == 4
#define ddphook_compiled_module otherSymbol
#endif
extern ddphook_compiled_module_t ddphook_compiled_module;
ddphook_compiled_module_t ddphook_compiled_module = {
    sizeof(ddphook_compiled_module_t) - (DDPHOOK_TEST_DEFECT == 2),
    DDPHOOK_ABI_VERSION + (DDPHOOK_TEST_DEFECT == 1),
    plan,
    sizeof(plan) - 1,
    0,
    &handle,
    sizeof(entries) / sizeof(entries[0]),
    entries,
    NULL,
    0,
};

/// The compiler writes the hash as a constant; here it is made at load time.
__attribute__((constructor)) static void setHash(void) {
  ddphook_compiled_module.plan_hash =
      XXH3_64bits(plan, sizeof(plan) - 1) + (DDPHOOK_TEST_DEFECT == 3);
}
