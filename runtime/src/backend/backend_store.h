// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Converts in both directions: the runtime's Store to the C table for backends,
// and such a table to a Store for backends in C++.

#pragma once

#include "ddphook/runtime/backend.h"
#include "store/store.h"

namespace ddphook {

/// Writes a failure to `error` and returns its code.
ddphook_status_t toBackendError(const Status &status,
                                ddphook_backend_error_t *error);

/// Does the same for `function`, which returns a Status, and for exceptions.
template <typename Function>
ddphook_status_t reportTo(ddphook_backend_error_t *error, Function &&function) {
  return toBackendError(withoutExceptions(std::forward<Function>(function)),
                        error);
}

Status fromBackendError(ddphook_status_t code,
                        const ddphook_backend_error_t &error);

/// Returns `store` as a table; `store` must outlive it.
ddphook_backend_store_t toBackendStore(Store &store);

/// A table as a store; the table must outlive it.
class BackendStore : public Store {
public:
  explicit BackendStore(const ddphook_backend_store_t &table) : table(table) {}

  Status set(const std::string &key, const std::string &value) override;
  Status get(const std::string &key, const Deadline &deadline,
             std::string *value) override;
  Status add(const std::string &key, int64_t delta, int64_t *result) override;
  Status erase(const std::string &key) override;

private:
  const ddphook_backend_store_t &table;
};

} // namespace ddphook
