// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "store/store_values.h"

#include "store/store.h"

#include <algorithm>
#include <iterator>

using namespace ddphook;
using namespace ddphook::wire;

void StoreValues::set(const std::string &key, std::string value) {
  auto waiting = waiters.find(key);
  if (waiting != waiters.end()) {
    for (const Waiter &waiter : waiting->second)
      waiter.connection->send(Kind::Value, waiter.id, value);
    waiters.erase(waiting);
  }
  values[key] = std::move(value);
}

void StoreValues::get(StoreConnection &connection, uint32_t id,
                      const std::string &key, const Status &never) {
  auto found = values.find(key);
  if (found != values.end())
    return connection.send(Kind::Value, id, found->second);
  if (!never.isOk())
    return connection.send(Kind::Error, id, encodeStatus(never));
  waiters[key].push_back({&connection, id});
}

void StoreValues::tryGet(StoreConnection &connection, uint32_t id,
                         const std::string &key) const {
  auto found = values.find(key);
  if (found == values.end())
    return connection.send(Kind::Missing, id);
  connection.send(Kind::Value, id, found->second);
}

void StoreValues::add(StoreConnection &connection, uint32_t id,
                      const std::string &key, std::string_view summand) {
  int64_t delta = 0, sum = 0;
  auto found = values.find(key);
  const std::string text(summand);
  Status status = addToCounter(key, &text, 0, &delta);
  if (status.isOk())
    status = addToCounter(key, found == values.end() ? nullptr : &found->second,
                          delta, &sum);
  if (!status.isOk())
    return connection.send(Kind::Error, id, encodeStatus(status));
  std::string value = std::to_string(sum);
  connection.send(Kind::Value, id, value);
  set(key, std::move(value));
}

void StoreValues::forget(const StoreConnection &connection,
                         std::optional<uint32_t> id) {
  for (auto entry = waiters.begin(); entry != waiters.end();) {
    auto &list = entry->second;
    list.erase(std::remove_if(list.begin(), list.end(),
                              [&](const Waiter &waiter) {
                                return waiter.connection == &connection &&
                                       waiter.id == id.value_or(waiter.id);
                              }),
               list.end());
    entry = list.empty() ? waiters.erase(entry) : std::next(entry);
  }
}

void StoreValues::failAll(const Status &status) {
  const std::string encoded = encodeStatus(status);
  for (auto &entry : waiters)
    for (const Waiter &waiter : entry.second)
      waiter.connection->send(Kind::Error, waiter.id, encoded);
  waiters.clear();
}
