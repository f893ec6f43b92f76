// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "trace/divergence.h"

#include "base/packed_texts.h"
#include "store/store.h"

#include <algorithm>
#include <map>
#include <sstream>

using namespace ddphook;
using namespace ddphook::trace;

std::string Whereabouts::encode() const {
  std::ostringstream numbers;
  numbers << step << ' ' << called << ' ' << begun << ' ' << ended;
  for (int rank : place.members)
    numbers << ' ' << rank;
  return packTexts({numbers.str(), begunName, place.module});
}

std::optional<Whereabouts> Whereabouts::decode(std::string_view text) {
  const std::vector<std::string> texts = unpackTexts(text);
  if (texts.size() != 3)
    return std::nullopt;
  std::istringstream numbers(texts[0]);
  Whereabouts result;
  if (!(numbers >> result.step >> result.called >> result.begun >>
        result.ended))
    return std::nullopt;
  for (int rank; numbers >> rank;)
    result.place.members.push_back(rank);
  if (!numbers.eof())
    return std::nullopt;
  result.begunName = texts[1];
  result.place.module = texts[2];
  return result;
}

Whereabouts trace::findWhereabouts(const Recorder &recorder) {
  Whereabouts result;
  const RankRecording *part = recorder.part();
  if (!part)
    return result;
  const Progress &progress = part->progress();
  // Read later counters first, so that no collective seems ended but not begun.
  result.ended = progress.ended.load(std::memory_order_acquire);
  result.begun = progress.begun.load(std::memory_order_acquire);
  result.called = progress.called.load(std::memory_order_relaxed);
  result.step = progress.step.load(std::memory_order_relaxed);
  const auto name = progress.begunName.load(std::memory_order_relaxed);
  result.begunName = part->nameOf(name);
  result.place = recorder.placeOf(name);
  return result;
}

/// Returns "ranks 0, 2 wait in all_reduce b3 of step 4"; `one` is one of them.
static std::string describeWaiting(const std::vector<int> &ranks,
                                   const Whereabouts &one) {
  return concat(nameRanks(ranks),
                ranks.size() == 1 ? " waits in " : " wait in ", one.begunName,
                " of step ", one.step);
}

/// Returns true if `rank` takes part in the collective that `one` waits in.
static bool isMember(const Whereabouts &one, int rank) {
  const std::vector<int> &members = one.place.members;
  return members.empty() ||
         std::find(members.begin(), members.end(), rank) != members.end();
}

/// Returns the sentence for the collective in which `first` waits.
static std::string
describeAround(const Whereabouts &first,
               const std::vector<std::optional<Whereabouts>> &ranks) {
  std::vector<int> waiting, silent;
  std::string text;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto &rank = ranks[i];
    const int number = static_cast<int>(i);
    if (!isMember(first, number))
      continue;
    if (!rank) {
      silent.push_back(number);
    } else if (rank->isInCollective() && rank->begun == first.begun) {
      waiting.push_back(number);
    } else if (rank->begun < first.begun) {
      text += concat(text.empty() ? "" : ", ", nameRanks({number}),
                     " is in step ", rank->step, " and has not ",
                     rank->called < first.begun ? "called " : "begun ",
                     first.begunName);
    }
  }
  if (!silent.empty())
    text += (text.empty() ? "" : ", ") + nameRanks(silent) +
            (silent.size() == 1 ? " does not answer" : " do not answer");
  if (text.empty())
    return "";
  return text + "; " + describeWaiting(waiting, first);
}

/// Says which rank of `first`'s group waits in which collective if these
/// differ, for example because ranks call modules in different orders.
static std::string
describeDifferent(const Whereabouts &first,
                  const std::vector<std::optional<Whereabouts>> &ranks) {
  std::map<std::string, std::vector<int>> waiting;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int number = static_cast<int>(i);
    if (ranks[i] && ranks[i]->isInCollective() && isMember(first, number))
      waiting[ranks[i]->begunName + " of " + ranks[i]->place.module].push_back(
          number);
  }
  if (waiting.size() < 2)
    return "";
  std::string text;
  for (const auto &[name, numbers] : waiting)
    text +=
        (text.empty() ? "the ranks wait in different collectives: " : ", ") +
        nameRanks(numbers) + " in " + name;
  return text;
}

std::string trace::describeDivergence(
    const std::vector<std::optional<Whereabouts>> &ranks) {
  std::vector<const Whereabouts *> waiting;
  for (const auto &rank : ranks)
    if (rank && rank->isInCollective())
      waiting.push_back(&*rank);
  // Order ranks by the number of their collective, then by rank.
  std::sort(waiting.begin(), waiting.end(),
            [](const Whereabouts *a, const Whereabouts *b) {
              return std::pair(a->begun, a) < std::pair(b->begun, b);
            });
  // The ranks of another group may all be in their collective, about to end it.
  for (auto *describe : {describeAround, describeDifferent})
    for (const Whereabouts *first : waiting)
      if (std::string text = describe(*first, ranks); !text.empty())
        return text;
  return "";
}

std::string trace::describeSilence(const std::optional<Whereabouts> &own,
                                   int rank) {
  const std::string silence = "rank 0 does not answer";
  return own && own->isInCollective()
             ? silence + "; " + describeWaiting({rank}, *own)
             : silence;
}
