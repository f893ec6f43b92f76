// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "store/store.h"

#include "base/wait_scope.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

using namespace ddphook;

Status ddphook::addToCounter(const std::string &key, const std::string *text,
                             int64_t delta, int64_t *sum) {
  int64_t value = 0;
  bool isNumber = true;
  if (text) {
    char *end = nullptr;
    errno = 0;
    value = std::strtoll(text->c_str(), &end, 10);
    isNumber = errno == 0 && !text->empty() && *end == '\0';
  }
  if (!isNumber || __builtin_add_overflow(value, delta, sum))
    return invalid("expected a counter in '%s', but got other bytes",
                   key.c_str());
  return Status::ok();
}

Status MemoryStore::set(const std::string &key, const std::string &value) {
  std::lock_guard<std::mutex> lock(mutex);
  values[key] = value;
  changed.notify_all();
  return Status::ok();
}

Status MemoryStore::get(const std::string &key, const Deadline &deadline,
                        std::string *value) {
  std::unique_lock<std::mutex> lock(mutex);
  auto ready = [&] { return !failure.isOk() || values.count(key) != 0; };
  while (!changed.wait_until(lock, std::min(deadline.time(), WaitScope::due()),
                             ready) &&
         !deadline.expired()) {
    // poll() may ask this store who is missing.
    lock.unlock();
    WaitScope::poll();
    lock.lock();
  }
  auto found = values.find(key);
  if (found != values.end()) {
    *value = found->second;
    return Status::ok();
  }
  if (!failure.isOk())
    return failure;
  return deadlineExceeded("no rank set '%s' in time", key.c_str());
}

Status MemoryStore::add(const std::string &key, int64_t delta,
                        int64_t *result) {
  std::lock_guard<std::mutex> lock(mutex);
  auto found = values.find(key);
  DDPHOOK_TRY(addToCounter(
      key, found == values.end() ? nullptr : &found->second, delta, result));
  values[key] = std::to_string(*result);
  changed.notify_all();
  return Status::ok();
}

Status MemoryStore::erase(const std::string &key) {
  std::lock_guard<std::mutex> lock(mutex);
  values.erase(key);
  return Status::ok();
}

void MemoryStore::fail(Status newFailure) {
  std::lock_guard<std::mutex> lock(mutex);
  failure = std::move(newFailure);
  changed.notify_all();
}

/// How many absent ranks a message names.
static constexpr size_t maxNamedRanks = 8;

Status ddphook::findAbsent(Store &store, int size,
                           const std::function<std::string(int)> &keyOf,
                           std::vector<int> *absent) {
  absent->clear();
  for (int rank = 0; rank < size; ++rank) {
    bool isPresent = false;
    DDPHOOK_TRY(store.exists(keyOf(rank), &isPresent));
    if (!isPresent)
      absent->push_back(rank);
  }
  return Status::ok();
}

std::string ddphook::listRanks(const std::vector<int> &ranks) {
  std::string names;
  for (size_t i = 0; i < ranks.size() && i < maxNamedRanks; ++i)
    names += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return ranks.size() > maxNamedRanks ? names + ", …" : names;
}

std::string ddphook::nameRanks(const std::vector<int> &ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + listRanks(ranks);
}

std::string ddphook::describeWait(int rank, const std::vector<int> &absent,
                                  int size) {
  const std::string whom = !absent.empty() ? nameRanks(absent)
                           : rank == 0     ? "the others"
                                           : "rank 0";
  return concat("rank ", rank, " is waiting for ", whom, " of ", size);
}
