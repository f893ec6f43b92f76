//===- work_device.cpp - memory and calls of a backend --------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See work_device.h.
//
//===----------------------------------------------------------------------===//
#include "work_device.h"

#include "backend/backend_loader.h"
#include "backend/backend_store.h"

using namespace ddphook;
using namespace ddphook::bench;

static constexpr double kTimeoutSeconds = 60;
static constexpr uint64_t kAlignment = 256;

Status WorkDevice::open(const std::string &name, int threads,
                        std::unique_ptr<WorkDevice> *result) {
  std::unique_ptr<WorkDevice> opened(new WorkDevice());
  DDPHOOK_RETURN_IF_ERROR(loadBackend(name, &opened->backend));
  ddphook_device_config_t config = {};
  config.struct_size = sizeof(config);
  config.transport = "auto";
  config.local_address = "";
  config.timeout_s = kTimeoutSeconds;
  config.threads = threads;
  config.options = "";
  ddphook_backend_error_t message = {};
  DDPHOOK_RETURN_IF_ERROR(fromBackendError(
      opened->backend->device_create(&config, &opened->device, &message),
      message));
  *result = std::move(opened);
  return Status::ok();
}

WorkDevice::~WorkDevice() {
  if (device)
    backend->device_destroy(device);
}

Status WorkDevice::synchronize() const {
  ddphook_backend_error_t message = {};
  return fromBackendError(backend->synchronize(device, &message), message);
}

Status DeviceArray::allocate(WorkDevice &device, int64_t bytes,
                             std::unique_ptr<DeviceArray> *result) {
  std::unique_ptr<DeviceArray> array(new DeviceArray(device));
  array->bytes = static_cast<uint64_t>(bytes);
  ddphook_backend_error_t message = {};
  DDPHOOK_RETURN_IF_ERROR(fromBackendError(
      device.table().memory_alloc(device.get(), array->bytes, kAlignment,
                                  &array->memory, &message),
      message));
  *result = std::move(array);
  return Status::ok();
}

DeviceArray::~DeviceArray() {
  if (memory)
    device.table().memory_free(device.get(), memory, bytes);
}

Status DeviceArray::write(const void *host, int64_t size,
                          int64_t offset) const {
  ddphook_backend_error_t message = {};
  return fromBackendError(
      device.table().memory_write(device.get(), as<char>() + offset, host,
                                  static_cast<uint64_t>(size), &message),
      message);
}

Status DeviceArray::read(void *host, int64_t size, int64_t offset) const {
  ddphook_backend_error_t message = {};
  return fromBackendError(
      device.table().memory_read(device.get(), host, as<char>() + offset,
                                 static_cast<uint64_t>(size), &message),
      message);
}

Status DeviceArray::fill(unsigned char byte) const {
  const std::vector<unsigned char> image(bytes, byte);
  return write(image.data(), static_cast<int64_t>(bytes));
}
