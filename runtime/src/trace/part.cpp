//===- part.cpp - what one rank has recorded ------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The layout: a header, the names one after the other, and the slots of each
// ring. A reader trusts no number in it.
//
//===----------------------------------------------------------------------===//
#include "trace/part.h"

#include "base/file_size_signal.h"
#include "files/atomic_file.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::trace;

namespace {

constexpr char magic[8] = {'d', 'd', 'p', 't', 'r', 'a', 'c', 'e'};
constexpr uint32_t layoutVersion = 2;
constexpr uint64_t namesCapacity = 1 << 20;
constexpr uint64_t pageBytes = 4096;
/// More are a damaged number: a trace has an entry for every rank.
constexpr int32_t mostRanks = 1 << 18;
/// 73 years, and half of them between two clocks: their sums and differences
/// are numbers, too.
constexpr int64_t mostTime = int64_t(1) << 61, mostOffset = mostTime / 2;

/// A text that is cut where it is too long.
template <size_t size>
struct Text {
  char bytes[size];

  void set(std::string_view text) {
    const size_t length = std::min(text.size(), size - 1);
    std::memcpy(bytes, text.data(), length);
    bytes[length] = '\0';
  }
  std::string get() const { return {bytes, ::strnlen(bytes, size)}; }
};

struct Header {
  char magic[8];
  uint32_t version;
  int32_t rank, worldSize;
  int64_t process, clockOffset, clockUncertainty;
  uint64_t capacity; ///< Slots of each ring; a power of two.
  Text<128> runId;
  Text<256> host, clock;
  std::atomic<uint32_t> state;
  std::atomic<uint64_t> namesSize;
  int64_t failureTime;
  Text<1024> failure;
  Progress progress;
  RingMemory rings[laneCount];
};

/// Before the three texts of a name.
struct NameHeader {
  uint32_t category;
  int32_t collective;
  int64_t wireBytes;
  uint32_t sizes[3];
};

constexpr uint64_t namesOffset =
    (sizeof(Header) + pageBytes - 1) / pageBytes * pageBytes;
constexpr uint64_t slotsOffset = namesOffset + namesCapacity;

uint64_t partBytes(uint64_t capacity) {
  return slotsOffset + laneCount * capacity * sizeof(EventSlot);
}

Header &headerOf(void *memory) { return *static_cast<Header *>(memory); }

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

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// Maps a part over `file`, or anonymous memory if that is -1.
Status Part::map(const PartIdentity &identity, uint64_t events, int file,
                 std::unique_ptr<Part> *part) {
  constexpr uint64_t least = 64, most = uint64_t(1) << 26;
  uint64_t capacity = least;
  while (capacity < std::min(events, most))
    capacity *= 2;
  std::unique_ptr<Part> result(new Part());
  const uint64_t bytes = partBytes(capacity);
  const NoFileSizeSignal noSignal;
  if (file >= 0)
    if (int failed = ::posix_fallocate(file, 0, static_cast<off_t>(bytes)))
      return systemError(failed, "cannot take %llu bytes of disk space",
                         static_cast<unsigned long long>(bytes));
  // Resident, so that steps do not fault its pages in.
  void *memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        file >= 0 ? MAP_SHARED | MAP_POPULATE
                                  : MAP_PRIVATE | MAP_ANONYMOUS,
                        file, 0);
  if (memory == MAP_FAILED)
    return systemError(errno, "cannot map %llu bytes",
                       static_cast<unsigned long long>(bytes));
#ifdef MADV_POPULATE_WRITE
  // A file's pages are resident to be read; the first store to each would still
  // fault, for the file system to reserve its blocks. Kernels before 5.14 leave
  // it at that.
  if (file >= 0)
    ::madvise(memory, bytes, MADV_POPULATE_WRITE);
#endif
  result->memory = memory;
  result->size = bytes;
  Header &header = headerOf(memory);
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
  std::memcpy(header.magic, magic, sizeof(magic));
  *part = std::move(result);
  return Status::ok();
}

Status Part::create(const PartIdentity &identity, uint64_t events,
                    std::unique_ptr<Part> *part) {
  return map(identity, events, /*file=*/-1, part);
}

Status Part::create(const PartIdentity &identity, uint64_t events,
                    const std::string &path, std::unique_ptr<Part> *part) {
  // Another job may still have the old one mapped: it must not shrink.
  ::unlink(path.c_str());
  const int file = ::open(
      path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file < 0)
    return systemError(errno, "cannot create '%s'", path.c_str());
  Status status = map(identity, events, file, part);
  ::close(file);
  if (!status.isOk())
    ::unlink(path.c_str());
  return withContext(std::move(status), "'" + path + "'");
}

Part::~Part() {
  if (memory)
    ::munmap(memory, size);
}

Ring Part::ring(Lane lane) const {
  Header &header = headerOf(memory);
  const auto number = static_cast<uint64_t>(lane);
  auto *slots =
      reinterpret_cast<EventSlot *>(static_cast<char *>(memory) + slotsOffset) +
      number * header.capacity;
  return Ring(&header.rings[number], slots, header.capacity);
}

Progress &Part::progress() const { return headerOf(memory).progress; }

uint32_t Part::addName(const Name &name) {
  Header &header = headerOf(memory);
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

void Part::fail(const std::string &message) {
  Header &header = headerOf(memory);
  if (header.state.load(std::memory_order_relaxed) !=
      static_cast<uint32_t>(PartState::Open))
    return;
  header.failureTime = now();
  header.failure.set(message);
  header.state.store(static_cast<uint32_t>(PartState::Failed),
                     std::memory_order_release);
}

void Part::close(bool isRemote) {
  auto open = static_cast<uint32_t>(PartState::Open);
  headerOf(memory).state.compare_exchange_strong(
      open, static_cast<uint32_t>(PartState::Closed),
      std::memory_order_acq_rel);
  if (isRemote)
    ::msync(memory, size, MS_SYNC);
}

std::string Part::pack(uint64_t mostBytes) const {
  const Header &header = headerOf(memory);
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
  std::memcpy(packed.data() + offsetof(Header, capacity), &capacity,
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

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

static Status readNames(std::string_view bytes, std::vector<Name> *names);

std::string Part::nameOf(uint32_t name) const {
  const Header &header = headerOf(memory);
  std::vector<Name> all;
  readNames(bytes().substr(namesOffset,
                           header.namesSize.load(std::memory_order_acquire)),
            &all)
      .ignore();
  return name < all.size() ? all[name].text : "";
}

static Status malformed(const char *what) {
  return error(DDPHOOK_DATA_LOSS, "expected a part of a trace, but %s", what);
}

static Status readNames(std::string_view bytes, std::vector<Name> *names) {
  while (!bytes.empty()) {
    NameHeader entry;
    if (bytes.size() < sizeof(entry))
      return malformed("a name is cut off");
    std::memcpy(&entry, bytes.data(), sizeof(entry));
    bytes.remove_prefix(sizeof(entry));
    if (entry.category > static_cast<uint32_t>(Category::Wait))
      return malformed("a name has no category");
    Name name;
    name.category = static_cast<Category>(entry.category);
    name.collective = entry.collective;
    name.wireBytes = entry.wireBytes;
    std::string *texts[] = {&name.text, &name.bucket, &name.group};
    for (int i = 0; i < 3; ++i) {
      if (bytes.size() < entry.sizes[i])
        return malformed("a name is cut off");
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
  constexpr auto relaxed = std::memory_order_relaxed;
  const uint64_t depth = std::min<uint64_t>(
      memory.depth.load(std::memory_order_acquire), RingMemory::maxDepth);
  for (uint64_t i = 0; i < depth; ++i) {
    const auto &open = memory.open[i];
    thread->open.push_back(
        unpack(open[0].load(relaxed), 0, open[1].load(relaxed), 0));
  }
  const uint64_t end = memory.recorded.load(std::memory_order_acquire);
  // The slot that is written next may be half written, whoever was killed.
  const uint64_t kept = std::min({end, capacity - 1, mostEvents});
  uint64_t begin = end - kept;
  for (uint64_t i = begin; i < end; ++i) {
    const auto &words = slots[i & (capacity - 1)].words;
    thread->events.push_back(
        unpack(words[0].load(relaxed), words[1].load(relaxed),
               words[2].load(relaxed), words[3].load(relaxed)));
  }
  // What was overwritten meanwhile.
  std::atomic_thread_fence(std::memory_order_acquire);
  const uint64_t later = memory.recorded.load(relaxed);
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
      std::memcmp(bytes.data(), magic, sizeof(magic)) != 0)
    return malformed("it begins otherwise");
  const Header &header = *reinterpret_cast<const Header *>(bytes.data());
  if (header.version != layoutVersion)
    return error(DDPHOOK_UNSUPPORTED,
                 "expected a part of a trace of version %u, but got %u",
                 layoutVersion, header.version);
  const uint64_t capacity = header.capacity;
  if (capacity == 0 || (capacity & (capacity - 1)) != 0 ||
      capacity > bytes.size() || bytes.size() != partBytes(capacity))
    return malformed("it has another size");
  if (header.worldSize < 1 || header.worldSize > mostRanks || header.rank < 0 ||
      header.rank >= header.worldSize)
    return malformed("its rank is none");
  if (header.clockOffset < -mostOffset || header.clockOffset > mostOffset ||
      !isTime(header.clockUncertainty))
    return malformed("its clock is none");
  PartContents result;
  result.identity = {header.runId.get(), header.rank,
                     header.worldSize,   header.process,
                     header.host.get(),  header.clock.get(),
                     header.clockOffset, header.clockUncertainty};
  const uint32_t state = header.state.load(std::memory_order_acquire);
  if (state > static_cast<uint32_t>(PartState::Failed))
    return malformed("its state is none");
  result.state = static_cast<PartState>(state);
  if (result.state == PartState::Failed) {
    result.failure = header.failure.get();
    result.failureTime = header.failureTime;
    if (!isTime(result.failureTime))
      return malformed("its failure has no time");
  }
  const auto *slots =
      reinterpret_cast<const EventSlot *>(bytes.data() + slotsOffset);
  for (size_t lane = 0; lane < laneCount; ++lane)
    readRing(header.rings[lane], slots + lane * capacity, capacity, mostEvents,
             &result.threads[lane]);
  // After the events, which may have got names meanwhile.
  const uint64_t namesSize = header.namesSize.load(std::memory_order_acquire);
  if (namesSize > namesCapacity)
    return malformed("its names have no room in it");
  DDPHOOK_RETURN_IF_ERROR(
      readNames(bytes.substr(namesOffset, namesSize), &result.names));
  const auto count = static_cast<uint32_t>(result.names.size());
  for (const PartContents::Thread &thread : result.threads) {
    for (const std::vector<Event> *events : {&thread.events, &thread.open})
      for (const Event &event : *events) {
        if (event.name >= count)
          return malformed("an event has no name");
        if (!isTime(event.begin) || !isTime(event.waited))
          return malformed("an event has no time");
      }
    for (const Event &event : thread.events)
      if (event.end < event.begin || !isTime(event.end))
        return malformed("an event has no time");
  }
  *contents = std::move(result);
  return Status::ok();
}

Status trace::readPartFile(const std::string &path, PartContents *contents) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return systemError(errno, "cannot open '%s'", path.c_str());
  struct stat attributes = {};
  void *memory = MAP_FAILED;
  size_t size = 0;
  if (::fstat(file, &attributes) == 0 && attributes.st_size > 0) {
    size = static_cast<size_t>(attributes.st_size);
    memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  }
  ::close(file);
  Status status = malformed("it is empty");
  if (memory != MAP_FAILED) {
    status = readPart({static_cast<const char *>(memory), size}, contents);
    ::munmap(memory, size);
  }
  return withContext(std::move(status), "'" + path + "'");
}

std::string trace::runOfPart(const std::string &path) {
  constexpr size_t size = offsetof(Header, host);
  alignas(Header) char bytes[size];
  std::ifstream file(path, std::ios::binary);
  if (!file.read(bytes, size) || std::memcmp(bytes, magic, sizeof(magic)) != 0)
    return {};
  Text<sizeof(Header::runId)> text;
  std::memcpy(&text, bytes + offsetof(Header, runId), sizeof(text));
  return text.get();
}

Status trace::savePart(std::string_view packed, const std::string &path) {
  if (packed.size() < namesOffset)
    return malformed("it is cut off");
  uint64_t names = 0;
  std::memcpy(&names, packed.data() + offsetof(Header, namesSize),
              sizeof(names));
  if (names > namesCapacity || packed.size() - namesOffset < names)
    return malformed("its names have no room in it");
  const uint64_t fixed = namesOffset + names;
  const std::string gap(slotsOffset - fixed, '\0');
  AtomicFile file(path);
  DDPHOOK_RETURN_IF_ERROR(file.open());
  DDPHOOK_RETURN_IF_ERROR(file.write(packed.data(), fixed));
  DDPHOOK_RETURN_IF_ERROR(file.write(gap.data(), gap.size()));
  DDPHOOK_RETURN_IF_ERROR(
      file.write(packed.data() + fixed, packed.size() - fixed));
  return file.commit(/*isDurable=*/false);
}
