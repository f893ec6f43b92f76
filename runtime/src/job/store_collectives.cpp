// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every rank sets its own key. Rank 0 collects them and sets one key with all
// values, for which the others wait: O(ranks) messages.

#include "job/store_collectives.h"

#include "base/packed_texts.h"
#include "base/wait_scope.h"
#include "store/absent_ranks.h"

using namespace ddphook;

Status StoreCollectives::nameAbsent(const std::string &what, double seconds) {
  std::vector<int> absent;
  DDPHOOK_TRY(findAbsent(
      store, size, [&](int other) { return keyOf(other); }, &absent));
  if (absent.empty())
    return error(DDPHOOK_DEADLINE_EXCEEDED,
                 "%s: the ranks did not agree within %.3g s", what.c_str(),
                 seconds);
  return error(DDPHOOK_DEADLINE_EXCEEDED,
               "%s: %zu of %d ranks did not arrive within %.3g s: rank %s",
               what.c_str(), absent.size(), size, seconds,
               listRanks(absent).c_str());
}

Status StoreCollectives::gather(const std::string &what,
                                const std::string &mine,
                                const Deadline &deadline, std::string *packed) {
  const std::string all = baseKey(number) + "/all";
  double seconds = deadline.remaining();
  DDPHOOK_TRY(store.set(keyOf(rank), packTexts({what, mine})));

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
    std::vector<std::string> values(static_cast<size_t>(size));
    for (int other = 0; other < size && status.isOk(); ++other)
      status = store.get(keyOf(other), deadline,
                         &values[static_cast<size_t>(other)]);
    *packed = packTexts(values);
    if (status.isOk())
      return store.set(all, *packed);
  }
  if (status.code() == DDPHOOK_DEADLINE_EXCEEDED)
    return nameAbsent(what, seconds);
  return status;
}

/// When this exchange is complete, all ranks have entered it, so all have read
/// the previous one.
void StoreCollectives::eraseOld() {
  if (rank != 0 || number == 0)
    return;
  std::string old = baseKey(number - 1);
  for (int other = 0; other < size; ++other)
    store.erase(old + "/" + std::to_string(other)).ignore();
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
    return error(DDPHOOK_DATA_LOSS, "%s: rank 0 sent malformed data",
                 what.c_str());
  for (int other = 0; other < size; ++other) {
    std::string &text = (*all)[static_cast<size_t>(other)];
    std::vector<std::string> texts = unpackTexts(text);
    if (texts.size() != 2)
      return error(DDPHOOK_DATA_LOSS, "%s: rank %d sent malformed data",
                   what.c_str(), other);
    text = std::move(texts[1]);
    if (odd < 0 && texts[0] != what) {
      odd = other;
      oddWhat = std::move(texts[0]);
    }
  }
  if (odd >= 0)
    return error(DDPHOOK_FAILED_PRECONDITION,
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
