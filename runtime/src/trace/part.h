//===- part.h - what one rank has recorded ----------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory of a rank's rings, of the names of its events and of where the
// rank is. A file may follow it (part_file.h).
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_TRACE_PART_H
#define DDPHOOK_RUNTIME_SRC_TRACE_PART_H

#include "base/status.h"
#include "trace/ring.h"

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ddphook::trace {

/// The threads whose events are told apart, with their numbers in traces.
enum class Lane : int {
  Steps = 0,        ///< The one that runs steps.
  Communication = 1 ///< That of collectives in flight.
};
constexpr int laneCount = 2;

enum class Category : uint32_t { Step, Kernel, Collective, Wait };
const char *categoryName(Category category);

/// What events of one name have in common.
struct Name {
  Name() = default;
  Name(Category category, std::string text)
      : category(category), text(std::move(text)) {}

  Category category = Category::Kernel;
  std::string text;
  /// Of a collective: its number in the plan, its bucket, process group, and
  /// the bytes that the rank puts on the wire.
  int32_t collective = -1;
  std::string bucket, group;
  int64_t wireBytes = 0;
};

/// What is known of a rank before its first event.
struct PartIdentity {
  /// The same on all ranks of a run, and on no rank of another one.
  std::string runId;
  int32_t rank = 0, worldSize = 1;
  int64_t process = 0;
  std::string host;
  /// Which clock now() reads there, and what to add to its times to get those
  /// of rank 0's; off by at most `clockUncertainty`.
  std::string clock;
  int64_t clockOffset = 0, clockUncertainty = 0;
};

/// How a rank's recording has ended.
enum class PartState : uint32_t {
  Open,   ///< Not at all: the rank runs, or has died.
  Closed, ///< With the context.
  Failed  ///< By a failure that the rank knows of.
};

/// Where a rank is: the numbers of its step and of the collectives that were
/// called, begun and ended, each from 1 in the order of the program. Any thread
/// reads it. One thread writes the first two, another often the others: each
/// has a line of the cache.
struct Progress {
  alignas(64) std::atomic<uint64_t> step;
  std::atomic<uint64_t> called;
  alignas(64) std::atomic<uint64_t> begun;
  std::atomic<uint64_t> ended;
  /// The name of the collective that began last.
  std::atomic<uint64_t> begunName;
};

class PartFile;

class Part {
public:
  /// For about `events` events of each thread.
  static Status create(const PartIdentity &identity, uint64_t events,
                       std::unique_ptr<Part> *part);
  /// The same, followed by a new file, which replaces what is at `path`.
  static Status create(const PartIdentity &identity, uint64_t events,
                       const std::string &path, std::unique_ptr<Part> *part);
  /// The file stays.
  ~Part();
  Part(const Part &) = delete;
  Part &operator=(const Part &) = delete;

  Ring ring(Lane lane) const;
  Progress &progress() const;
  /// Adds a name and gives its number, or otherName when there is no room.
  uint32_t addName(const Name &name);
  /// The text of name number `name`; any thread.
  std::string nameOf(uint32_t name) const;
  /// Books a failure of which this rank knows, the first one; any thread.
  void fail(const std::string &message);
  /// No event follows: completes the file, and makes its bytes visible to other
  /// machines if `isRemote`.
  void close(bool isRemote);

  /// Its last events in at most `mostBytes` bytes, for savePart(); nothing when
  /// not even what is no event has room there. No event is being written.
  std::string pack(uint64_t mostBytes) const;

  /// Its bytes, as a file of it has them.
  std::string_view bytes() const {
    return {static_cast<const char *>(memory), size};
  }

private:
  Part() = default;
  static Status map(const PartIdentity &identity, uint64_t events, int flags,
                    std::unique_ptr<Part> *part);

  void *memory = nullptr;
  size_t size = 0;
  std::unique_ptr<PartFile> file; ///< Or null.
  uint32_t names = 0;
};

/// A part as it is read.
struct PartContents {
  PartIdentity identity;
  PartState state = PartState::Open;
  std::string failure;
  int64_t failureTime = 0;
  std::vector<Name> names;
  struct Thread {
    std::vector<Event> events; ///< In the order in which they ended.
    std::vector<Event> open;   ///< Without an end; the innermost last.
    uint64_t lost = 0;         ///< Older events that were overwritten.
  };
  std::array<Thread, laneCount> threads;
};

/// Reads a part that may still be written, at most `mostEvents` of each thread,
/// the last ones. DATA_LOSS: the bytes are not those of a part.
Status readPart(std::string_view bytes, PartContents *contents,
                uint64_t mostEvents = UINT64_MAX);

} // namespace ddphook::trace

#endif // DDPHOOK_RUNTIME_SRC_TRACE_PART_H
