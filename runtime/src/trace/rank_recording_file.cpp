// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "trace/rank_recording_file.h"

#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/threads.h"
#include "base/write_signals.h"
#include "files/atomic_file.h"
#include "trace/rank_recording_layout.h"

#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::trace;

static constexpr uint64_t slotWords = sizeof(EventSlot) / sizeof(uint64_t);
/// The number of slots that are written at a time.
static constexpr uint64_t slotsAtOnce = 2048;

RankRecordingFile::RankRecordingFile(std::string_view part, std::string path,
                                     int file)
    : part(part), path(std::move(path)), file(file),
      written(std::make_unique<PartHeader>()),
      next(std::make_unique<PartHeader>()), slots(slotsAtOnce * slotWords) {}

RankRecordingFile::~RankRecordingFile() {
  finish(/*isRemote=*/false);
  ::close(file);
}

Status RankRecordingFile::create(std::string_view part, const std::string &path,
                                 std::unique_ptr<RankRecordingFile> *result) {
  // Another job may still write to the old file.
  ::unlink(path.c_str());
  const int file = aboveStandard(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
             0666));
  if (file < 0)
    return systemError(errno, "cannot create '%s'", path.c_str());
  std::unique_ptr<RankRecordingFile> created(
      new RankRecordingFile(part, path, file));
  const NoWriteSignals noSignals;
  int failed;
  do
    failed = ::posix_fallocate(file, 0, static_cast<off_t>(part.size()));
  while (failed == EINTR);
  Status status;
  if (failed != 0)
    status = systemError(failed, "cannot take %zu bytes of disk space for '%s'",
                         part.size(), path.c_str());
  if (status.isOk())
    status = created->writeNew();
  // If memory is exhausted, the rest is missing.
  if (status.isOk())
    status = startThread(
        "ddphook-trace", &created->thread,
        [self = created.get()] { self->run(); },
        [](const Status &) { return false; });
  if (status.isOk())
    *result = std::move(created);
  else
    ::unlink(path.c_str());
  return status;
}

void RankRecordingFile::run() {
  Status status;
  for (bool isLast = false; status.isOk() && !isLast;) {
    {
      std::unique_lock<std::mutex> lock(mutex);
      if (!isOver)
        wake.wait_for(lock, interval);
      isLast = isOver;
    }
    status = writeNew();
  }
  if (!status.isOk())
    log(LogLevel::Warn,
        "'" + path + "' is no longer written: " + status.message());
}

void RankRecordingFile::finish(bool isRemote) {
  if (!thread.joinable())
    return;
  {
    std::lock_guard<std::mutex> lock(mutex);
    isOver = true;
  }
  wake.notify_one();
  thread.join();
  if (isRemote)
    ::fsync(file);
}

/// Copies a ring while its thread continues to record. Retries while events
/// end, so that no event is counted as both open and ended, or as neither.
static void copyRing(const RingMemory &from, RingMemory *to) {
  constexpr auto acquire = std::memory_order_acquire;
  uint64_t recorded = from.recorded.load(acquire);
  for (int attempt = 0; attempt < 4; ++attempt) {
    to->depth.store(from.depth.load(acquire), relaxed);
    for (uint32_t i = 0; i < RingMemory::maxDepth; ++i)
      for (int word = 0; word < 2; ++word)
        to->open[i][word].store(from.open[i][word].load(acquire), relaxed);
    to->recorded.store(recorded, relaxed);
    const uint64_t later = from.recorded.load(acquire);
    if (std::exchange(recorded, later) == later)
      return;
  }
}

static void copyHeader(const PartHeader &from, PartHeader *to) {
  // The fields before `state` never change.
  std::memcpy(static_cast<void *>(to), &from, offsetof(PartHeader, state));
  for (size_t lane = 0; lane < laneCount; ++lane)
    copyRing(from.rings[lane], &to->rings[lane]);
  // Copy names after the events, which may have got names in the meantime.
  to->namesSize.store(from.namesSize.load(std::memory_order_acquire), relaxed);
  const uint32_t state = from.state.load(std::memory_order_acquire);
  if (state == static_cast<uint32_t>(PartState::Failed)) {
    to->failureTime = from.failureTime;
    to->failure = from.failure;
  }
  to->state.store(state, relaxed);
}

/// Writes the header twice: first to mark the slots that will lose the events
/// it counts and, once the slots are written, to count the new events.
Status RankRecordingFile::writeNew() {
  const auto &memory = *reinterpret_cast<const PartHeader *>(part.data());
  struct stat attributes;
  if (::fstat(file, &attributes) != 0)
    return systemError(errno, "cannot read it");
  const bool isWhole = static_cast<size_t>(attributes.st_size) == part.size();
  if (!isWhole) {
    // Somebody truncated the file: write everything again.
    if (::ftruncate(file, static_cast<off_t>(part.size())) != 0)
      return systemError(errno, "cannot write it");
    written->namesSize.store(0, relaxed);
    for (RingMemory &ring : written->rings)
      ring.recorded.store(0, relaxed);
  }
  copyHeader(memory, next.get());
  const uint64_t names = written->namesSize.load(relaxed);
  DDPHOOK_TRY(write(part.data() + namesOffset + names,
                    next->namesSize.load(relaxed) - names,
                    namesOffset + names));
  bool hasEvents = false;
  for (size_t lane = 0; lane < laneCount; ++lane) {
    const uint64_t end = next->rings[lane].recorded.load(relaxed);
    written->rings[lane].overwritten.store(end, relaxed);
    next->rings[lane].overwritten.store(end, relaxed);
    hasEvents |= end != written->rings[lane].recorded.load(relaxed);
  }
  if (hasEvents) {
    DDPHOOK_TRY(writeHeader(*written));
    for (size_t lane = 0; lane < laneCount; ++lane)
      DDPHOOK_TRY(writeRing(lane, next->rings[lane].recorded.load(relaxed)));
  }
  if (hasEvents || !isWhole ||
      std::memcmp(written.get(), next.get(), sizeof(PartHeader)) != 0)
    DDPHOOK_TRY(writeHeader(*next));
  std::swap(written, next);
  return Status::ok();
}

/// Writes the slots of events before number `end` that the file lacks.
Status RankRecordingFile::writeRing(size_t lane, uint64_t end) {
  const auto &memory = *reinterpret_cast<const PartHeader *>(part.data());
  const uint64_t capacity = memory.capacity;
  const uint64_t first = slotsOffset + lane * capacity * sizeof(EventSlot);
  const auto *ring = reinterpret_cast<const EventSlot *>(part.data() + first);
  uint64_t begin = written->rings[lane].recorded.load(relaxed);
  begin = std::max(begin, end > capacity ? end - capacity : 0);
  while (begin < end) {
    const uint64_t slot = begin & (capacity - 1);
    const uint64_t count =
        std::min({end - begin, capacity - slot, slotsAtOnce});
    for (uint64_t i = 0; i < count; ++i)
      for (uint64_t word = 0; word < slotWords; ++word)
        slots[i * slotWords + word] = ring[slot + i].words[word].load(relaxed);
    DDPHOOK_TRY(write(slots.data(), count * sizeof(EventSlot),
                      first + slot * sizeof(EventSlot)));
    begin += count;
  }
  // The ring's thread may have overwritten slots while they were copied.
  std::atomic_thread_fence(std::memory_order_acquire);
  next->rings[lane].overwritten.store(memory.rings[lane].recorded.load(relaxed),
                                      relaxed);
  return Status::ok();
}

Status RankRecordingFile::write(const void *data, uint64_t bytes,
                                uint64_t offset) {
  return writeAt(file, offset, data, bytes)
             ? Status::ok()
             : systemError(errno, "cannot write it");
}

Status trace::readPartFile(const std::string &path, NamedBy namedBy,
                           PartContents *contents) {
  // Bytes with the alignment of a part's numbers.
  struct alignas(PartHeader) Line {
    char bytes[alignof(PartHeader)];
  };
  OpenFile file;
  DDPHOOK_TRY(file.open(path, O_RDONLY, namedBy));
  if (file.size() < slotsOffset)
    return withContext(malformedPart("it has the wrong size"),
                       "'" + path + "'");
  // A file that is not a part may be huge; its beginning is enough.
  uint64_t capacity = 0;
  DDPHOOK_TRY(
      file.read(&capacity, sizeof(capacity), offsetof(PartHeader, capacity)));
  const bool fits = isCapacity(capacity) && file.size() == partBytes(capacity);
  const uint64_t size = fits ? file.size() : slotsOffset;
  std::vector<Line> lines((size + sizeof(Line) - 1) / sizeof(Line));
  DDPHOOK_TRY(file.read(lines.data(), size, 0));
  // The rank may have overwritten slots since the header was read; it marks
  // them in the header first.
  auto &header = *reinterpret_cast<PartHeader *>(lines.data());
  for (size_t lane = 0; lane < laneCount; ++lane)
    DDPHOOK_TRY(file.read(&header.rings[lane].overwritten, sizeof(uint64_t),
                          offsetof(PartHeader, rings) +
                              lane * sizeof(RingMemory) +
                              offsetof(RingMemory, overwritten)));
  return withContext(readPart({lines.front().bytes, size}, contents),
                     "'" + path + "'");
}

std::string trace::runOfPart(const std::string &path) {
  OpenFile file;
  char magic[sizeof(partMagic)];
  Text<sizeof(PartHeader::runId)> run;
  if (!file.open(path, O_RDONLY, NamedBy::Runtime).isOk() ||
      !file.read(magic, sizeof(magic), 0).isOk() ||
      std::memcmp(magic, partMagic, sizeof(magic)) != 0 ||
      !file.read(&run, sizeof(run), offsetof(PartHeader, runId)).isOk())
    return {};
  return run.get();
}

Status trace::savePart(std::string_view packed, const std::string &path) {
  if (packed.size() < namesOffset)
    return malformedPart("it is cut off");
  uint64_t names = 0;
  std::memcpy(&names, packed.data() + offsetof(PartHeader, namesSize),
              sizeof(names));
  if (names > namesCapacity || packed.size() - namesOffset < names)
    return malformedPart("its names do not fit into it");
  const uint64_t fixed = namesOffset + names;
  const std::string gap(slotsOffset - fixed, '\0');
  AtomicFile file(path);
  DDPHOOK_TRY(file.open());
  DDPHOOK_TRY(file.write(packed.data(), fixed));
  DDPHOOK_TRY(file.write(gap.data(), gap.size()));
  DDPHOOK_TRY(file.write(packed.data() + fixed, packed.size() - fixed));
  return file.commit(/*isDurable=*/false);
}
