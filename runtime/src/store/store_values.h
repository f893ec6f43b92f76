// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The values that StoreServer keeps, and requests that it cannot answer yet.

#pragma once

#include "base/status.h"
#include "store/store_connection.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddphook {

/// Sends answers to the connections of the requests.
class StoreValues {
public:
  void set(const std::string &key, std::string value);
  void erase(const std::string &key) { values.erase(key); }
  /// Answers when there is a value. If `never` is a failure, a missing key will
  /// never be set, so it answers with `never` at once.
  void get(StoreConnection &connection, uint32_t id, const std::string &key,
           const Status &never);
  /// Answers at once.
  void tryGet(StoreConnection &connection, uint32_t id,
              const std::string &key) const;
  void add(StoreConnection &connection, uint32_t id, const std::string &key,
           std::string_view summand);

  /// Forgets the request `id` of a connection, or all of its requests.
  void forget(const StoreConnection &connection,
              std::optional<uint32_t> id = std::nullopt);
  /// Fails all requests that have not been answered.
  void failAll(const Status &status);

private:
  struct Waiter {
    StoreConnection *connection;
    uint32_t id;
  };

  std::map<std::string, std::string> values;
  std::map<std::string, std::vector<Waiter>> waiters;
};

} // namespace ddphook
