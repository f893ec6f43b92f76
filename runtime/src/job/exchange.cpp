//===- exchange.cpp - small all-gathers through a store -------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every rank sets a key of its own; rank 0 collects them and sets one key with
// all of them, for which the others wait: O(ranks) messages.
//
//===----------------------------------------------------------------------===//
#include "job/exchange.h"

#include "base/wait_scope.h"
#include "store/absent_ranks.h"

#include <cstring>

using namespace ddphook;

static void appendPart(std::string *packed, const std::string &part) {
  uint64_t size = part.size();
  char bytes[8];
  for (int i = 0; i < 8; ++i)
    bytes[i] = static_cast<char>(size >> (8 * i));
  packed->append(bytes, sizeof(bytes));
  packed->append(part);
}

/// Takes the next part off the front; false when `packed` is malformed.
static bool takePart(std::string_view *packed, std::string *part) {
  if (packed->size() < 8)
    return false;
  uint64_t size = 0;
  for (int i = 0; i < 8; ++i)
    size |= uint64_t(static_cast<unsigned char>((*packed)[i])) << (8 * i);
  packed->remove_prefix(8);
  if (size > packed->size())
    return false;
  part->assign(packed->substr(0, size));
  packed->remove_prefix(size);
  return true;
}

Status Exchange::nameAbsent(const std::string &what, double seconds) {
  std::vector<int> absent;
  DDPHOOK_RETURN_IF_ERROR(findAbsent(
      store, size, [&](int other) { return keyOf(other); }, &absent));
  if (absent.empty())
    return error(DDPHOOK_DEADLINE_EXCEEDED,
                 "%s: the ranks did not agree within %.3g s", what.c_str(),
                 seconds);
  return error(DDPHOOK_DEADLINE_EXCEEDED,
               "%s: %zu of %d ranks did not come within %.3g s: rank %s",
               what.c_str(), absent.size(), size, seconds,
               listRanks(absent).c_str());
}

Status Exchange::gather(const std::string &what, const std::string &mine,
                        const Deadline &deadline, std::string *packed) {
  const std::string all = baseKey(number) + "/all";
  double seconds = deadline.remaining();
  std::string part;
  appendPart(&part, what);
  appendPart(&part, mine);
  DDPHOOK_RETURN_IF_ERROR(store.set(keyOf(rank), part));

  WaitScope scope(
      [&] {
        std::vector<int> absent;
        findAbsent(
            store, size, [&](int other) { return keyOf(other); }, &absent)
            .ignore();
        return describeWait(rank, absent, size) + " in " + what;
      },
      tellsWaits);
  Status status;
  if (rank != 0) {
    status = store.get(all, deadline, packed);
  } else {
    for (int other = 0; other < size && status.isOk(); ++other) {
      std::string value;
      status = store.get(keyOf(other), deadline, &value);
      appendPart(packed, value);
    }
    if (status.isOk())
      return store.set(all, *packed);
  }
  if (status.code() == DDPHOOK_DEADLINE_EXCEEDED)
    return nameAbsent(what, seconds);
  return status;
}

/// When this exchange is complete, all ranks have entered it, so all have read
/// the one before.
void Exchange::eraseOld() {
  if (rank != 0 || number == 0)
    return;
  std::string old = baseKey(number - 1);
  for (int other = 0; other < size; ++other)
    store.erase(old + "/" + std::to_string(other)).ignore();
  store.erase(old + "/all").ignore();
}

Status Exchange::allGather(const std::string &what, const std::string &mine,
                           const Deadline &deadline,
                           std::vector<std::string> *all) {
  all->assign(1, mine);
  if (size == 1)
    return Status::ok();
  std::string packed;
  DDPHOOK_RETURN_IF_ERROR(gather(what, mine, deadline, &packed));
  eraseOld();
  ++number;

  all->assign(static_cast<size_t>(size), {});
  std::string_view rest = packed;
  int odd = -1;
  std::string oddWhat;
  for (int other = 0; other < size; ++other) {
    std::string part, otherWhat;
    bool isWhole = takePart(&rest, &part);
    std::string_view inner = part;
    isWhole = isWhole && takePart(&inner, &otherWhat) &&
              takePart(&inner, &(*all)[static_cast<size_t>(other)]);
    if (!isWhole)
      return error(DDPHOOK_DATA_LOSS, "%s: rank %d sent malformed data",
                   what.c_str(), other);
    if (odd < 0 && otherWhat != what) {
      odd = other;
      oddWhat = otherWhat;
    }
  }
  if (odd >= 0)
    return error(DDPHOOK_FAILED_PRECONDITION,
                 "the ranks make different calls: %s on rank %d, but %s on "
                 "rank %d",
                 what.c_str(), rank, oddWhat.c_str(), odd);
  return Status::ok();
}

Status Exchange::barrier(const std::string &what, const Deadline &deadline) {
  std::vector<std::string> all;
  return allGather(what, {}, deadline, &all);
}
