/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * A backend in plain C, built as a library of its own for c_api_test: it shows
 * that backend.h is all that a backend needs. TEST_BACKEND_VERSION makes one
 * that must be refused. It supports worlds of one and f32 only. */

#include "ddphook/runtime/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef TEST_BACKEND_VERSION
#define TEST_BACKEND_VERSION DDPHOOK_BACKEND_ABI_VERSION
#endif

struct ddphook_device {
  int64_t tickets;
};
struct ddphook_communicator {
  int32_t size;
};

static ddphook_status_t fail(ddphook_backend_error_t *error,
                             const char *message) {
  snprintf(error->message, sizeof(error->message), "%s", message);
  return DDPHOOK_UNSUPPORTED;
}

static ddphook_status_t deviceCreate(const ddphook_device_config_t *config,
                                     ddphook_device_t **device,
                                     ddphook_backend_error_t *error) {
  if (strcmp(config->transport, "auto") != 0)
    return fail(error, "the test backend has no such transport");
  *device = calloc(1, sizeof(**device));
  return *device ? DDPHOOK_OK : DDPHOOK_RESOURCE_EXHAUSTED;
}

static void deviceDestroy(ddphook_device_t *device) { free(device); }

static ddphook_status_t memoryAlloc(ddphook_device_t *device, uint64_t bytes,
                                    uint64_t alignment, void **memory,
                                    ddphook_backend_error_t *error) {
  (void)device;
  (void)error;
  size_t size = (bytes + alignment) / alignment * alignment;
  *memory = aligned_alloc(alignment, size);
  if (!*memory)
    return DDPHOOK_RESOURCE_EXHAUSTED;
  memset(*memory, 0, size);
  return DDPHOOK_OK;
}

static void memoryFree(ddphook_device_t *device, void *memory, uint64_t bytes) {
  (void)device;
  (void)bytes;
  free(memory);
}

static ddphook_status_t copy(ddphook_device_t *device, const void *in,
                             void *out, int64_t bytes,
                             ddphook_backend_error_t *error) {
  (void)device;
  (void)error;
  memcpy(out, in, (size_t)bytes);
  return DDPHOOK_OK;
}

static ddphook_status_t streamSet(ddphook_device_t *device, void *stream,
                                  ddphook_backend_error_t *error) {
  (void)device;
  return stream ? fail(error, "the test backend has no streams") : DDPHOOK_OK;
}

static ddphook_status_t synchronize(ddphook_device_t *device,
                                    ddphook_backend_error_t *error) {
  (void)device;
  (void)error;
  return DDPHOOK_OK;
}

static ddphook_status_t communicatorCreate(
    ddphook_device_t *device, const ddphook_communicator_config_t *config,
    ddphook_communicator_t **communicator, ddphook_backend_error_t *error) {
  (void)device;
  int64_t count = 0;
  const ddphook_backend_store_t *store = config->store;
  ddphook_status_t status =
      store->add(store->self, config->key, 2, &count, error);
  if (status != DDPHOOK_OK)
    return status;
  void *value = NULL;
  size_t size = 0;
  status = store->get(store->self, config->key, 1, &value, &size, error);
  if (status != DDPHOOK_OK)
    return status;
  int isTwo = size == 1 && *(const char *)value == '2';
  store->release(store->self, value);
  if (count != 2 || !isTwo || config->size != 1)
    return fail(error, "the test backend supports worlds of one only");
  *communicator = calloc(1, sizeof(**communicator));
  if (!*communicator)
    return DDPHOOK_RESOURCE_EXHAUSTED;
  (*communicator)->size = config->size;
  return DDPHOOK_OK;
}

static void communicatorDestroy(ddphook_device_t *device,
                                ddphook_communicator_t *communicator) {
  (void)device;
  free(communicator);
}

static ddphook_status_t cast(ddphook_device_t *device, const void *in,
                             int32_t inDtype, void *out, int32_t outDtype,
                             int64_t count, ddphook_backend_error_t *error) {
  (void)device;
  if (inDtype != DDPHOOK_F32 || outDtype != DDPHOOK_F32)
    return fail(error, "the test backend supports f32 only");
  memmove(out, in, (size_t)count * 4);
  return DDPHOOK_OK;
}

static ddphook_status_t scale(ddphook_device_t *device, double factor,
                              const void *in, void *out, int64_t count,
                              int32_t dtype, ddphook_backend_error_t *error) {
  (void)device;
  (void)error;
  if (dtype != DDPHOOK_F32)
    return fail(error, "the test backend supports f32 only");
  for (int64_t i = 0; i < count; ++i)
    ((float *)out)[i] = ((const float *)in)[i] * (float)factor;
  return DDPHOOK_OK;
}

static ddphook_status_t divideByGroupSize(ddphook_device_t *device,
                                          int64_t size, const void *in,
                                          void *out, int64_t count,
                                          int32_t dtype,
                                          ddphook_backend_error_t *error) {
  return scale(device, 1 / (double)size, in, out, count, dtype, error);
}

static ddphook_status_t memoryWrite(ddphook_device_t *device, void *memory,
                                    const void *host, uint64_t bytes,
                                    ddphook_backend_error_t *error) {
  (void)device;
  (void)error;
  memcpy(memory, host, bytes);
  return DDPHOOK_OK;
}

static ddphook_status_t memoryRead(ddphook_device_t *device, void *host,
                                   const void *memory, uint64_t bytes,
                                   ddphook_backend_error_t *error) {
  return memoryWrite(device, host, memory, bytes, error);
}

static ddphook_status_t add(ddphook_device_t *device, const void *a,
                            const void *b, void *out, int64_t count,
                            int32_t dtype, ddphook_backend_error_t *error) {
  (void)device;
  if (dtype != DDPHOOK_F32)
    return fail(error, "the test backend supports f32 only");
  for (int64_t i = 0; i < count; ++i)
    ((float *)out)[i] = ((const float *)a)[i] + ((const float *)b)[i];
  return DDPHOOK_OK;
}

static ddphook_status_t subtract(ddphook_device_t *device, const void *a,
                                 const void *b, void *out, int64_t count,
                                 int32_t dtype,
                                 ddphook_backend_error_t *error) {
  (void)device;
  if (dtype != DDPHOOK_F32)
    return fail(error, "the test backend supports f32 only");
  for (int64_t i = 0; i < count; ++i)
    ((float *)out)[i] = ((const float *)a)[i] - ((const float *)b)[i];
  return DDPHOOK_OK;
}

static ddphook_status_t isFinite(ddphook_device_t *device, const void *in,
                                 int64_t count, int32_t dtype, int32_t *result,
                                 ddphook_backend_error_t *error) {
  (void)device;
  if (dtype != DDPHOOK_F32)
    return fail(error, "the test backend supports f32 only");
  *result = 1;
  for (int64_t i = 0; i < count; ++i)
    *result &= isfinite(((const float *)in)[i]) != 0;
  return DDPHOOK_OK;
}

/* What stands in the table for a function that this backend does not have. */
#define DDPHOOK_DEVICE_FUNCTION(name, ...)                                     \
  static ddphook_status_t lacks_##name(                                        \
      ddphook_device_t *device,                                                \
      DDPHOOK_MAP(DDPHOOK_DEVICE_PARAMETER, __VA_ARGS__),                      \
      ddphook_backend_error_t *error) {                                        \
    return fail(error, "the test backend has no function " #name);             \
  }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "ddphook/runtime/functions.inc"
#pragma GCC diagnostic pop

static ddphook_status_t matricesCreate(ddphook_device_t *device,
                                       const ddphook_matrix_list_t *list,
                                       int32_t dtype,
                                       ddphook_matrices_t **matrices,
                                       ddphook_backend_error_t *error) {
  (void)device;
  (void)list;
  (void)dtype;
  (void)matrices;
  return fail(error, "the test backend has no low-rank products");
}

/* Without a matrix list there are no other low-rank calls. */
static void matricesDestroy(ddphook_device_t *device,
                            ddphook_matrices_t *matrices) {
  (void)device;
  (void)matrices;
}

static ddphook_status_t
runCollective(ddphook_device_t *device, ddphook_communicator_t *communicator,
              const ddphook_collective_t *operation, const void *in, void *out,
              int64_t *ticket, ddphook_backend_error_t *error) {
  if (ticket)
    *ticket = ++device->tickets;
  if (communicator->size != 1)
    return fail(error, "the test backend lost its communicator");
  return cast(device, in, operation->dtype, out, operation->dtype,
              operation->count, error);
}

static ddphook_status_t waitFor(ddphook_device_t *device, int64_t ticket,
                                ddphook_backend_error_t *error) {
  if (ticket > device->tickets)
    return fail(error, "the test backend knows no such ticket");
  return DDPHOOK_OK;
}

static void abortDevice(ddphook_device_t *device, ddphook_status_t status,
                        const char *message) {
  (void)device;
  (void)status;
  (void)message;
}

__attribute__((visibility("default"))) const ddphook_backend_t *
ddphook_backend_get(void) {
  static ddphook_backend_t backend = {
      .struct_size = sizeof(ddphook_backend_t),
      .collective_size = sizeof(ddphook_collective_t),
      .abi_version = TEST_BACKEND_VERSION,
      .name = "test",
      .memory_is_host = 1,
      .device_create = deviceCreate,
      .device_destroy = deviceDestroy,
      .memory_alloc = memoryAlloc,
      .memory_free = memoryFree,
      .memory_write = memoryWrite,
      .memory_read = memoryRead,
      .stream_set = streamSet,
      .synchronize = synchronize,
      .communicator_create = communicatorCreate,
      .communicator_destroy = communicatorDestroy,
#define DDPHOOK_DEVICE_FUNCTION(name, ...) .name = lacks_##name,
#include "ddphook/runtime/functions.inc"
      .is_finite = isFinite,
      .matrices_create = matricesCreate,
      .matrices_destroy = matricesDestroy,
      .collective = runCollective,
      .wait = waitFor,
      .abort = abortDevice,
  };
  backend.copy = copy;
  backend.cast = cast;
  backend.divide_by_group_size = divideByGroupSize;
  backend.scale = scale;
  backend.add = add;
  backend.subtract = subtract;
  return &backend;
}
