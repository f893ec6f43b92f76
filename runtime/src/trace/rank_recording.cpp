// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "trace/rank_recording.h"

#include "trace/rank_recording_file.h"
#include "trace/rank_recording_layout.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <sys/mman.h>

using namespace ddphook;
using namespace ddphook::trace;

namespace {

/// Larger numbers are corrupt: a trace has an entry for every rank.
constexpr int32_t mostRanks = 1 << 18;
/// 73 years, and half of that between two clocks: nothing overflows.
constexpr int64_t mostTime = int64_t(1) << 61, mostOffset = mostTime / 2;

/// Precedes the three texts of a name.
struct NameHeader {
  uint32_t category;
  int32_t collective;
  int64_t wireBytes;
  uint32_t sizes[3];
};

PartHeader &headerOf(void *memory) {
  return *static_cast<PartHeader *>(memory);
}

} // namespace

const char *trace::categoryName(Category category) {
  switch (category) {
  case Category::Step:
    return "step";
  case Category::Kernel:
    return "kernel";
  case Category::Collective:
    return "collective";
  case Category::Wait:
    return "wait";
  }
  return "unknown";
}

/// Maps shared memory: a fork's copy on write would fault in a step.
Status RankRecording::create(const PartIdentity &identity, uint64_t events,
                             const std::string &path,
                             std::unique_ptr<RankRecording> *part) {
  constexpr uint64_t least = 64;
  uint64_t capacity = least;
  while (capacity < std::min(events, mostSlots))
    capacity *= 2;
  std::unique_ptr<RankRecording> result(new RankRecording());
  const uint64_t bytes = partBytes(capacity);
  // With a file it is resident, so that steps have no page faults.
  void *memory = ::mmap(
      nullptr, bytes, PROT_READ | PROT_WRITE,
      MAP_SHARED | MAP_ANONYMOUS | (path.empty() ? 0 : MAP_POPULATE), -1, 0);
  if (memory == MAP_FAILED)
    return systemError(errno, "cannot map %llu bytes",
                       static_cast<unsigned long long>(bytes));
  result->memory = memory;
  result->size = bytes;
  PartHeader &header = headerOf(memory);
  header.version = layoutVersion;
  header.rank = identity.rank;
  header.worldSize = identity.worldSize;
  header.process = identity.process;
  header.clockOffset = identity.clockOffset;
  header.clockUncertainty = identity.clockUncertainty;
  header.capacity = capacity;
  header.runId.set(identity.runId);
  header.host.set(identity.host);
  header.clock.set(identity.clock);
  std::memcpy(header.magic, partMagic, sizeof(partMagic));
  if (!path.empty())
    DDPHOOK_TRY(
        RankRecordingFile::create(result->bytes(), path, &result->file));
  *part = std::move(result);
  return Status::ok();
}

RankRecording::~RankRecording() {
  file.reset();
  if (memory)
    ::munmap(memory, size);
}

Ring RankRecording::ring(Lane lane) const {
  PartHeader &header = headerOf(memory);
  const auto number = static_cast<uint64_t>(lane);
  auto *slots =
      reinterpret_cast<EventSlot *>(static_cast<char *>(memory) + slotsOffset) +
      number * header.capacity;
  return Ring(&header.rings[number], slots, header.capacity);
}

Progress &RankRecording::progress() const { return headerOf(memory).progress; }

uint32_t RankRecording::addName(const Name &name) {
  PartHeader &header = headerOf(memory);
  const std::string *texts[] = {&name.text, &name.bucket, &name.group};
  NameHeader entry = {static_cast<uint32_t>(name.category),
                      name.collective,
                      name.wireBytes,
                      {}};
  uint64_t bytes = sizeof(entry);
  for (int i = 0; i < 3; ++i) {
    entry.sizes[i] = static_cast<uint32_t>(texts[i]->size());
    bytes += texts[i]->size();
  }
  const uint64_t begin = header.namesSize.load(std::memory_order_relaxed);
  if (bytes > namesCapacity - begin)
    return otherName;
  char *place = static_cast<char *>(memory) + namesOffset + begin;
  std::memcpy(place, &entry, sizeof(entry));
  place += sizeof(entry);
  for (const std::string *text : texts)
    place = std::copy(text->begin(), text->end(), place);
  header.namesSize.store(begin + bytes, std::memory_order_release);
  return names++;
}

void RankRecording::fail(const std::string &message) {
  PartHeader &header = headerOf(memory);
  if (header.state.load(std::memory_order_relaxed) !=
      static_cast<uint32_t>(PartState::Open))
    return;
  header.failureTime = now();
  header.failure.set(message);
  header.state.store(static_cast<uint32_t>(PartState::Failed),
                     std::memory_order_release);
  if (file)
    file->hurry();
}

void RankRecording::close(bool isRemote) {
  auto open = static_cast<uint32_t>(PartState::Open);
  headerOf(memory).state.compare_exchange_strong(
      open, static_cast<uint32_t>(PartState::Closed),
      std::memory_order_acq_rel);
  if (file)
    file->finish(isRemote);
}

std::string RankRecording::pack(uint64_t mostBytes) const {
  const PartHeader &header = headerOf(memory);
  const uint64_t fixed =
      namesOffset + header.namesSize.load(std::memory_order_acquire);
  uint64_t recorded = 0;
  for (const RingMemory &ring : header.rings)
    recorded = std::max(recorded, ring.recorded.load());
  auto bytesWith = [&](uint64_t capacity) {
    return fixed + laneCount * capacity * sizeof(EventSlot);
  };
  // A ring keeps one event less than it has slots.
  uint64_t capacity = header.capacity;
  while (capacity > 1 &&
         (capacity / 2 > recorded || bytesWith(capacity) > mostBytes))
    capacity /= 2;
  if (bytesWith(capacity) > mostBytes)
    return {};
  std::string packed(bytes().substr(0, fixed));
  packed.resize(bytesWith(capacity));
  std::memcpy(packed.data() + offsetof(PartHeader, capacity), &capacity,
              sizeof(capacity));
  for (uint64_t lane = 0; lane < laneCount; ++lane) {
    const uint64_t end = header.rings[lane].recorded.load();
    const char *from = bytes().data() + slotsOffset +
                       lane * header.capacity * sizeof(EventSlot);
    char *to = packed.data() + fixed + lane * capacity * sizeof(EventSlot);
    for (uint64_t i = end - std::min(end, capacity); i < end; ++i)
      std::memcpy(to + (i & (capacity - 1)) * sizeof(EventSlot),
                  from + (i & (header.capacity - 1)) * sizeof(EventSlot),
                  sizeof(EventSlot));
  }
  return packed;
}

static Status readNames(std::string_view bytes, std::vector<Name> *names);

std::string RankRecording::nameOf(uint32_t name) const {
  const PartHeader &header = headerOf(memory);
  std::vector<Name> all;
  readNames(bytes().substr(namesOffset,
                           header.namesSize.load(std::memory_order_acquire)),
            &all)
      .ignore();
  return name < all.size() ? all[name].text : "";
}

Status trace::malformedPart(const char *what) {
  return dataLoss("expected a part of a trace, but %s", what);
}

static Status readNames(std::string_view bytes, std::vector<Name> *names) {
  while (!bytes.empty()) {
    NameHeader entry;
    if (bytes.size() < sizeof(entry))
      return malformedPart("a name is cut off");
    std::memcpy(&entry, bytes.data(), sizeof(entry));
    bytes.remove_prefix(sizeof(entry));
    if (entry.category > static_cast<uint32_t>(Category::Wait))
      return malformedPart("a name has no category");
    Name name;
    name.category = static_cast<Category>(entry.category);
    name.collective = entry.collective;
    name.wireBytes = entry.wireBytes;
    std::string *texts[] = {&name.text, &name.bucket, &name.group};
    for (int i = 0; i < 3; ++i) {
      if (bytes.size() < entry.sizes[i])
        return malformedPart("a name is cut off");
      texts[i]->assign(bytes.substr(0, entry.sizes[i]));
      bytes.remove_prefix(entry.sizes[i]);
    }
    names->push_back(std::move(name));
  }
  return Status::ok();
}

static Event unpack(uint64_t begin, uint64_t end, uint64_t name,
                    uint64_t waited) {
  return {static_cast<int64_t>(begin), static_cast<int64_t>(end),
          static_cast<uint32_t>(name), static_cast<uint32_t>(name >> 32),
          static_cast<int64_t>(waited)};
}

static bool isTime(int64_t ns) { return ns >= 0 && ns <= mostTime; }

static void readRing(const RingMemory &memory, const EventSlot *slots,
                     uint64_t capacity, uint64_t mostEvents,
                     PartContents::Thread *thread) {
  const uint64_t depth = std::min<uint64_t>(
      memory.depth.load(std::memory_order_acquire), RingMemory::maxDepth);
  for (uint64_t i = 0; i < depth; ++i) {
    const auto &open = memory.open[i];
    thread->open.push_back(
        unpack(open[0].load(relaxed), 0, open[1].load(relaxed), 0));
  }
  const uint64_t end = memory.recorded.load(std::memory_order_acquire);
  // The slot that is written next may be incomplete if a process was killed.
  const uint64_t kept = std::min({end, capacity - 1, mostEvents});
  uint64_t begin = end - kept;
  for (uint64_t i = begin; i < end; ++i) {
    const auto &words = slots[i & (capacity - 1)].words;
    thread->events.push_back(
        unpack(words[0].load(relaxed), words[1].load(relaxed),
               words[2].load(relaxed), words[3].load(relaxed)));
  }
  // Discard events that were overwritten in the meantime.
  std::atomic_thread_fence(std::memory_order_acquire);
  const uint64_t later =
      std::max(memory.recorded.load(relaxed), memory.overwritten.load(relaxed));
  const uint64_t oldest = later >= capacity ? later - capacity + 1 : 0;
  if (oldest > begin) {
    const uint64_t gone = std::min(oldest, end) - begin;
    thread->events.erase(thread->events.begin(),
                         thread->events.begin() + static_cast<long>(gone));
    begin += gone;
  }
  thread->lost = begin;
}

Status trace::readPart(std::string_view bytes, PartContents *contents,
                       uint64_t mostEvents) {
  if (bytes.size() < slotsOffset ||
      std::memcmp(bytes.data(), partMagic, sizeof(partMagic)) != 0)
    return malformedPart("it has no magic number");
  const PartHeader &header =
      *reinterpret_cast<const PartHeader *>(bytes.data());
  if (header.version != layoutVersion)
    return unsupported("expected a part of a trace of version %u, but got %u",
                       layoutVersion, header.version);
  const uint64_t capacity = header.capacity;
  if (!isCapacity(capacity) || bytes.size() != partBytes(capacity))
    return malformedPart("it has the wrong size");
  if (header.worldSize < 1 || header.worldSize > mostRanks || header.rank < 0 ||
      header.rank >= header.worldSize)
    return malformedPart("its rank is invalid");
  if (header.clockOffset < -mostOffset || header.clockOffset > mostOffset ||
      !isTime(header.clockUncertainty))
    return malformedPart("its clock is invalid");
  PartContents result;
  result.identity = {header.runId.get(), header.rank,
                     header.worldSize,   header.process,
                     header.host.get(),  header.clock.get(),
                     header.clockOffset, header.clockUncertainty};
  const uint32_t state = header.state.load(std::memory_order_acquire);
  if (state > static_cast<uint32_t>(PartState::Failed))
    return malformedPart("its state is invalid");
  result.state = static_cast<PartState>(state);
  if (result.state == PartState::Failed) {
    result.failure = header.failure.get();
    result.failureTime = header.failureTime;
    if (!isTime(result.failureTime))
      return malformedPart("its failure has an invalid time");
  }
  const auto *slots =
      reinterpret_cast<const EventSlot *>(bytes.data() + slotsOffset);
  for (size_t lane = 0; lane < laneCount; ++lane)
    readRing(header.rings[lane], slots + lane * capacity, capacity, mostEvents,
             &result.threads[lane]);
  // Read names after the events, which may have got names in the meantime.
  const uint64_t namesSize = header.namesSize.load(std::memory_order_acquire);
  if (namesSize > namesCapacity)
    return malformedPart("its names do not fit into it");
  DDPHOOK_TRY(readNames(bytes.substr(namesOffset, namesSize), &result.names));
  const auto count = static_cast<uint32_t>(result.names.size());
  for (const PartContents::Thread &thread : result.threads) {
    for (const std::vector<Event> *events : {&thread.events, &thread.open})
      for (const Event &event : *events) {
        if (event.name >= count)
          return malformedPart("an event has no name");
        if (!isTime(event.begin) || !isTime(event.waited))
          return malformedPart("an event has an invalid time");
      }
    for (const Event &event : thread.events)
      if (event.end < event.begin || !isTime(event.end))
        return malformedPart("an event has an invalid time");
  }
  *contents = std::move(result);
  return Status::ok();
}
