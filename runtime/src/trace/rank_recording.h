// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory of a rank's rings, event names and progress.

#pragma once

#include "base/status.h"
#include "trace/ring.h"

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ddphook::trace {

/// The threads whose events are distinguished, with their numbers in traces.
enum class Lane : int {
  Steps = 0,        ///< Runs steps.
  Communication = 1 ///< Runs collectives in flight.
};
constexpr int laneCount = 2;

enum class Category : uint32_t { Step, Kernel, Collective, Wait };
const char *categoryName(Category category);

/// The common data of all events with one name.
struct Name {
  Name() = default;
  Name(Category category, std::string text)
      : category(category), text(std::move(text)) {}

  Category category = Category::Kernel;
  std::string text;
  /// For a collective: its number in the plan, its bucket, its process group,
  /// and the bytes that the rank puts on the wire.
  int32_t collective = -1;
  std::string bucket, group;
  int64_t wireBytes = 0;
};

/// The data of a rank that are known before its first event.
struct PartIdentity {
  /// The same on all ranks of a run, and different in other runs.
  std::string runId;
  int32_t rank = 0, worldSize = 1;
  int64_t process = 0;
  std::string host;
  /// The clock that now() reads there, and the value to add to its times to get
  /// those of rank 0, with an error of at most `clockUncertainty`.
  std::string clock;
  int64_t clockOffset = 0, clockUncertainty = 0;
};

/// How a rank's recording ended.
enum class PartState : uint32_t {
  Open,   ///< Not ended: the rank runs, or died.
  Closed, ///< Ended with the context.
  Failed  ///< Ended by a failure known to the rank.
};

/// A rank's progress: the numbers of its step and of the collectives that were
/// called, begun and ended, each from 1 in program order. Any thread may read
/// it. One thread writes the first two, and often another one the others, so
/// each pair has its own cache line.
struct Progress {
  alignas(64) std::atomic<uint64_t> step;
  std::atomic<uint64_t> called;
  alignas(64) std::atomic<uint64_t> begun;
  std::atomic<uint64_t> ended;
  /// The name of the collective that began last.
  std::atomic<uint64_t> begunName;
};

class RankRecordingFile;

class RankRecording {
public:
  /// Creates a part for about `events` events per thread, with a new file at
  /// `path`, unless that is empty, which replaces an older one.
  static Status create(const PartIdentity &identity, uint64_t events,
                       const std::string &path,
                       std::unique_ptr<RankRecording> *part);
  /// Does not delete the file.
  ~RankRecording();

  Ring ring(Lane lane) const;
  Progress &progress() const;
  /// Adds a name and returns its number, or otherName if there is no space.
  uint32_t addName(const Name &name);
  /// Returns the text of name number `name`; any thread may call it.
  std::string nameOf(uint32_t name) const;
  /// Records the first failure that this rank knows of; any thread may call it.
  void fail(const std::string &message);
  /// Ends the recording: completes the file, and makes its bytes visible to
  /// other machines if `isRemote`.
  void close(bool isRemote);

  /// Packs its last events into at most `mostBytes` bytes, for savePart();
  /// empty if not even the other data fit. No event may be written meanwhile.
  std::string pack(uint64_t mostBytes) const;

  /// Returns its bytes, as in a file.
  std::string_view bytes() const {
    return {static_cast<const char *>(memory), size};
  }

private:
  RankRecording() = default;

  void *memory = nullptr;
  size_t size = 0;
  std::unique_ptr<RankRecordingFile> file; ///< May be null.
  uint32_t names = 0;
};

struct PartContents {
  PartIdentity identity;
  PartState state = PartState::Open;
  std::string failure;
  int64_t failureTime = 0;
  std::vector<Name> names;
  struct Thread {
    std::vector<Event> events; ///< In the order in which they ended.
    std::vector<Event> open;   ///< Not ended; the innermost is last.
    uint64_t lost = 0;         ///< Number of older, overwritten events.
  };
  std::array<Thread, laneCount> threads;
};

/// Reads a part that may still be written: at most the last `mostEvents` events
/// of each thread. DATA_LOSS: the bytes are not those of a part.
Status readPart(std::string_view bytes, PartContents *contents,
                uint64_t mostEvents = UINT64_MAX);

} // namespace ddphook::trace
