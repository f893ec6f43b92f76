// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every rank sets its own key. Rank 0 collects them and sets one key with all
// values, for which the others wait: O(ranks) messages.

#include "job/store_collectives.h"

#include "base/packed_texts.h"
#include "base/wait_scope.h"

#include <algorithm>
#include <cstring>

using namespace ddphook;

static constexpr size_t bytesPerPart = size_t(2) << 20;
/// The root sends a part only when all ranks have received the part this many
/// before it. The parts in flight are in the memory of rank 0.
static constexpr size_t mostInFlight = 16;

std::vector<int>
StoreCollectives::absent(const std::function<std::string(int)> &key) {
  std::vector<int> ranks;
  findAbsent(store, size, key, &ranks).ignore();
  return ranks;
}

Status StoreCollectives::nameAbsent(const std::string &what, double seconds) {
  std::vector<int> absent;
  DDPHOOK_TRY(findAbsent(
      store, size, [&](int other) { return keyOf(other); }, &absent));
  if (absent.empty())
    return deadlineExceeded("%s: the ranks did not agree within %.3g s",
                            what.c_str(), seconds);
  return deadlineExceeded(
      "%s: %zu of %d ranks did not arrive within %.3g s: rank %s", what.c_str(),
      absent.size(), size, seconds, listRanks(absent).c_str());
}

Status StoreCollectives::gather(const std::string &what,
                                const std::string &mine,
                                const Deadline &deadline, std::string *packed) {
  const std::string all = baseKey(number) + "/all";
  double seconds = deadline.remaining();
  DDPHOOK_TRY(store.set(keyOf(rank), packTexts({what, mine})));

  WaitScope scope(
      [&] {
        const auto key = [&](int other) { return keyOf(other); };
        return describeWait(rank, absent(key), size) + " in " + what;
      },
      tellsWaits);
  Status status;
  if (rank != 0) {
    status = store.get(all, deadline, packed);
  } else {
    std::vector<std::string> values(static_cast<size_t>(size));
    for (int other = 0; other < size && status.isOk(); ++other)
      status = store.get(keyOf(other), deadline, &values[other]);
    *packed = packTexts(values);
    if (status.isOk())
      return store.set(all, *packed);
  }
  if (status.code() == DDPHOOK_DEADLINE_EXCEEDED)
    return nameAbsent(what, seconds);
  return status;
}

/// When this exchange is complete, all ranks have read the previous one.
void StoreCollectives::eraseOld() {
  if (rank != 0 || number == 0)
    return;
  std::string old = baseKey(number - 1);
  for (int other = 0; other < size; ++other)
    store.erase(concat(old, "/", other)).ignore();
  store.erase(old + "/all").ignore();
}

Status StoreCollectives::allGather(const std::string &what,
                                   const std::string &mine,
                                   const Deadline &deadline,
                                   std::vector<std::string> *all) {
  all->assign(1, mine);
  if (size == 1)
    return Status::ok();
  std::string packed;
  DDPHOOK_TRY(gather(what, mine, deadline, &packed));
  eraseOld();
  ++number;

  int odd = -1;
  std::string oddWhat;
  *all = unpackTexts(packed);
  if (all->size() != static_cast<size_t>(size))
    return dataLoss("%s: rank 0 sent malformed data", what.c_str());
  for (int other = 0; other < size; ++other) {
    std::string &text = (*all)[other];
    std::vector<std::string> texts = unpackTexts(text);
    if (texts.size() != 2)
      return dataLoss("%s: rank %d sent malformed data", what.c_str(), other);
    text = std::move(texts[1]);
    if (odd < 0 && texts[0] != what) {
      odd = other;
      oddWhat = std::move(texts[0]);
    }
  }
  if (odd >= 0)
    return failedPrecondition(
        "the ranks make different calls: %s on rank %d, but %s on "
        "rank %d",
        what.c_str(), rank, oddWhat.c_str(), odd);
  return Status::ok();
}

Status StoreCollectives::barrier(const std::string &what,
                                 const Deadline &deadline) {
  std::vector<std::string> all;
  return allGather(what, {}, deadline, &all);
}

static size_t sizeOfPart(size_t part, size_t bytes) {
  return std::min(bytesPerPart, bytes - part * bytesPerPart);
}

/// On the root: waits until all ranks have received a part, and removes it.
Status StoreCollectives::awaitReceipts(size_t part, double seconds) {
  auto findLate = [&] {
    return absent([&](int other) {
      return other == rank ? partKey(part) : receiptOf(part, other);
    });
  };
  WaitScope scope(
      [&] {
        return describeWait(rank, findLate(), size) + " in ddphook_broadcast";
      },
      tellsWaits);
  const Deadline deadline = Deadline::after(seconds);
  std::string none;
  Status status;
  for (int other = 0; other < size && status.isOk(); ++other)
    if (other != rank)
      status = store.get(receiptOf(part, other), deadline, &none);
  if (status.code() == DDPHOOK_DEADLINE_EXCEEDED)
    return deadlineExceeded(
        "ddphook_broadcast: a part did not reach all ranks within "
        "%g s: it is late on rank %s",
        seconds, listRanks(findLate()).c_str());
  for (int other = 0; other < size && status.isOk(); ++other)
    if (other != rank)
      status = store.erase(receiptOf(part, other));
  return status.isOk() ? store.erase(partKey(part)) : status;
}

Status StoreCollectives::sendParts(const char *data, size_t bytes,
                                   double seconds) {
  const size_t parts = (bytes + bytesPerPart - 1) / bytesPerPart;
  size_t received = 0;
  for (size_t part = 0; part < parts; ++part) {
    // Towards the end fewer parts are in flight, so that a rank that has
    // received the last one does not wait long for the others.
    const size_t inFlight = std::min(mostInFlight, parts - part);
    for (; part - received >= inFlight; ++received)
      DDPHOOK_TRY(awaitReceipts(received, seconds));
    DDPHOOK_TRY(store.set(partKey(part), std::string(data + part * bytesPerPart,
                                                     sizeOfPart(part, bytes))));
  }
  return Status::ok();
}

Status StoreCollectives::receivePart(size_t part, char *data, size_t bytes,
                                     int root, double seconds) {
  WaitScope scope(
      [&] {
        return describeWait(rank, {root}, size) + " in ddphook_broadcast";
      },
      tellsWaits);
  std::string value;
  Status status = store.get(partKey(part), Deadline::after(seconds), &value);
  if (status.code() == DDPHOOK_DEADLINE_EXCEEDED)
    return deadlineExceeded(
        "ddphook_broadcast: a part from rank %d did not arrive within "
        "%g s",
        root, seconds);
  DDPHOOK_TRY(status);
  if (value.size() != bytes)
    return dataLoss(
        "ddphook_broadcast: expected a part of %zu bytes, but got %zu", bytes,
        value.size());
  std::memcpy(data, value.data(), bytes);
  return Status::ok();
}

Status StoreCollectives::broadcast(char *data, size_t bytes, int root,
                                   double seconds) {
  ++broadcasts;
  const size_t parts = (bytes + bytesPerPart - 1) / bytesPerPart;
  if (parts == 0 || size == 1)
    return Status::ok();
  if (rank == root)
    DDPHOOK_TRY(sendParts(data, bytes, seconds));
  for (size_t part = 0; part < parts && rank != root; ++part) {
    DDPHOOK_TRY(receivePart(part, data + part * bytesPerPart,
                            sizeOfPart(part, bytes), root, seconds));
    if (part + 1 < parts)
      DDPHOOK_TRY(store.set(receiptOf(part, rank), {}));
  }
  // This replaces the receipts for the last part.
  DDPHOOK_TRY(barrier("ddphook_broadcast (a part)", Deadline::after(seconds)));
  return rank == root ? store.erase(partKey(parts - 1)) : Status::ok();
}
