// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "backend/backend_store.h"

#include <cstdlib>
#include <cstring>

using namespace ddphook;

ddphook_status_t ddphook::toBackendError(const Status &status,
                                         ddphook_backend_error_t *error) {
  if (!status.isOk() && error) {
    size_t size = std::min(status.message().size(), sizeof(error->message) - 1);
    std::memcpy(error->message, status.message().data(), size);
    error->message[size] = '\0';
  }
  return status.code();
}

Status ddphook::fromBackendError(ddphook_status_t code,
                                 const ddphook_backend_error_t &error) {
  if (code == DDPHOOK_OK)
    return Status::ok();
  return Status(
      code, {error.message, ::strnlen(error.message, sizeof(error.message))});
}

static Store &storeOf(void *self) { return *static_cast<Store *>(self); }

static ddphook_status_t setValue(void *self, const char *key, const void *value,
                                 size_t size, ddphook_backend_error_t *error) {
  return reportTo(error, [&] {
    std::string bytes;
    if (size > 0)
      bytes.assign(static_cast<const char *>(value), size);
    return storeOf(self).set(key, bytes);
  });
}

static ddphook_status_t getValue(void *self, const char *key, double timeout,
                                 void **value, size_t *size,
                                 ddphook_backend_error_t *error) {
  return reportTo(error, [&] {
    std::string bytes;
    DDPHOOK_TRY(storeOf(self).get(key, Deadline::after(timeout), &bytes));
    *size = bytes.size();
    *value = nullptr;
    if (bytes.empty())
      return Status::ok();
    *value = std::malloc(bytes.size());
    if (!*value)
      throw std::bad_alloc();
    std::memcpy(*value, bytes.data(), bytes.size());
    return Status::ok();
  });
}

static void releaseValue(void *, void *value) { std::free(value); }

static ddphook_status_t addValue(void *self, const char *key, int64_t delta,
                                 int64_t *result,
                                 ddphook_backend_error_t *error) {
  return reportTo(error, [&] { return storeOf(self).add(key, delta, result); });
}

static ddphook_status_t eraseValue(void *self, const char *key,
                                   ddphook_backend_error_t *error) {
  return reportTo(error, [&] { return storeOf(self).erase(key); });
}

ddphook_backend_store_t ddphook::toBackendStore(Store &store) {
  ddphook_backend_store_t table = {};
  table.struct_size = sizeof(table);
  table.self = &store;
  table.set = setValue;
  table.get = getValue;
  table.release = releaseValue;
  table.add = addValue;
  table.erase = eraseValue;
  return table;
}

Status BackendStore::set(const std::string &key, const std::string &value) {
  ddphook_backend_error_t error = {};
  return fromBackendError(
      table.set(table.self, key.c_str(), value.data(), value.size(), &error),
      error);
}

Status BackendStore::get(const std::string &key, const Deadline &deadline,
                         std::string *value) {
  ddphook_backend_error_t error = {};
  void *bytes = nullptr;
  size_t size = 0;
  DDPHOOK_TRY(
      fromBackendError(table.get(table.self, key.c_str(), deadline.remaining(),
                                 &bytes, &size, &error),
                       error));
  value->clear();
  if (bytes)
    value->assign(static_cast<const char *>(bytes), size);
  table.release(table.self, bytes);
  return Status::ok();
}

Status BackendStore::add(const std::string &key, int64_t delta,
                         int64_t *result) {
  ddphook_backend_error_t error = {};
  return fromBackendError(
      table.add(table.self, key.c_str(), delta, result, &error), error);
}

Status BackendStore::erase(const std::string &key) {
  ddphook_backend_error_t error = {};
  return fromBackendError(table.erase(table.self, key.c_str(), &error), error);
}
