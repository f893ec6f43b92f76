// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "job/broadcast.h"

#include "base/wait_scope.h"
#include "store/absent_ranks.h"

#include <algorithm>
#include <cstring>

using namespace ddphook;

Status Broadcast::awaitReceipts(size_t part) {
  auto findLate = [&] {
    std::vector<int> late;
    findAbsent(
        store, options.size,
        [&](int rank) {
          return rank == options.root ? keyOf(part) : receiptOf(part, rank);
        },
        &late)
        .ignore();
    return late;
  };
  WaitScope scope(
      [&] {
        return describeWait(options.rank, findLate(), options.size) +
               " in ddphook_broadcast";
      },
      options.tellsWaits);
  const Deadline deadline = Deadline::after(options.timeoutSeconds);
  std::string none;
  Status status;
  for (int rank = 0; rank < options.size && status.isOk(); ++rank)
    if (rank != options.root)
      status = store.get(receiptOf(part, rank), deadline, &none);
  if (status.code() == DDPHOOK_DEADLINE_EXCEEDED)
    return error(DDPHOOK_DEADLINE_EXCEEDED,
                 "ddphook_broadcast: a part did not reach all ranks within "
                 "%g s: it is late on rank %s",
                 options.timeoutSeconds, listRanks(findLate()).c_str());
  for (int rank = 0; rank < options.size && status.isOk(); ++rank)
    if (rank != options.root)
      status = store.erase(receiptOf(part, rank));
  return status.isOk() ? store.erase(keyOf(part)) : status;
}

Status Broadcast::send(const char *data, size_t bytes, size_t parts) {
  size_t received = 0;
  for (size_t part = 0; part < parts; ++part) {
    // Towards the end fewer parts are in flight, so that a rank that has
    // received the last one does not wait long for the others.
    const size_t inFlight = std::min(mostInFlight, parts - part);
    for (; part - received >= inFlight; ++received)
      DDPHOOK_TRY(awaitReceipts(received));
    DDPHOOK_TRY(store.set(keyOf(part), std::string(data + part * partBytes,
                                                   sizeOf(part, bytes))));
  }
  return Status::ok();
}

Status Broadcast::receive(size_t part, char *data, size_t size) {
  WaitScope scope(
      [&] {
        return describeWait(options.rank, {options.root}, options.size) +
               " in ddphook_broadcast";
      },
      options.tellsWaits);
  std::string value;
  Status status =
      store.get(keyOf(part), Deadline::after(options.timeoutSeconds), &value);
  if (status.code() == DDPHOOK_DEADLINE_EXCEEDED)
    return error(DDPHOOK_DEADLINE_EXCEEDED,
                 "ddphook_broadcast: a part from rank %d did not arrive within "
                 "%g s",
                 options.root, options.timeoutSeconds);
  if (!status.isOk())
    return status;
  if (value.size() != size)
    return error(DDPHOOK_DATA_LOSS,
                 "ddphook_broadcast: expected a part of %zu bytes, but got %zu",
                 size, value.size());
  std::memcpy(data, value.data(), size);
  return Status::ok();
}

Status Broadcast::run(char *data, size_t bytes) {
  const size_t parts = (bytes + partBytes - 1) / partBytes;
  const bool isRoot = options.rank == options.root;
  if (parts == 0)
    return Status::ok();
  if (isRoot)
    DDPHOOK_TRY(send(data, bytes, parts));
  for (size_t part = 0; part < parts && !isRoot; ++part) {
    DDPHOOK_TRY(receive(part, data + part * partBytes, sizeOf(part, bytes)));
    if (part + 1 < parts)
      DDPHOOK_TRY(store.set(receiptOf(part, options.rank), {}));
  }
  // This replaces the receipts for the last part.
  DDPHOOK_TRY(collectives.barrier("ddphook_broadcast (a part)",
                                  Deadline::after(options.timeoutSeconds)));
  return isRoot ? store.erase(keyOf(parts - 1)) : Status::ok();
}
