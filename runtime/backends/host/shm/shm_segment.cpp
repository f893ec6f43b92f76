// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The system calls for the segment; see shm_segment.h.

#include "shm_segment.h"

#include "base/boot_id.h"
#include "base/file_descriptor.h"
#include "base/write_signals.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::host;

/// Identifies the machine and the PID namespace: processes with equal results
/// see each other under the same process IDs.
static Status findProcessSpace(std::string *result) {
  std::string bootId, space;
  DDPHOOK_TRY(readBootId(&bootId));
  DDPHOOK_TRY(readNamespace("/proc/self/ns/pid", &space));
  *result = bootId + "/" + space;
  return Status::ok();
}

/// Treats the limit on file sizes as a resource like the others.
static Status memoryError(int errorNumber, const char *what, size_t bytes) {
  Status status = systemError(
      errorNumber, "cannot %s %zu bytes of shared memory", what, bytes);
  if (errorNumber == EFBIG)
    return Status(DDPHOOK_RESOURCE_EXHAUSTED, status.message());
  return status;
}

ShmSegment::~ShmSegment() {
  if (base)
    munmap(base, totalBytes);
  if (file >= 0)
    close(file);
}

void ShmSegment::layOut(int size) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t ranks = static_cast<size_t>(size);
  auto roundUp = [](size_t a, size_t b) { return (a + b - 1) / b * b; };
  // The slots of all ranks together fit well into a last-level cache.
  constexpr size_t maxSlot = 256 << 10, minSlot = 64 << 10, budget = 32 << 20;
  slotSize = std::clamp(budget / (ranks * kSlots), minSlot, maxSlot);
  slotSize = roundUp(slotSize, page);
  controlBytes =
      roundUp(sizeof(SegmentHeader) + ranks * sizeof(RankControl), page);
  totalBytes = controlBytes + ranks * kSlots * slotSize;
}

Status ShmSegment::mapFile() {
  void *mapped =
      mmap(nullptr, totalBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED)
    return memoryError(errno, "map", totalBytes);
  base = static_cast<char *>(mapped);
  // A child process that outlives the group must not keep the memory.
  madvise(base, totalBytes, MADV_DONTFORK);
  return Status::ok();
}

Status ShmSegment::reserveRange(size_t offset, size_t bytes) {
  const NoWriteSignals noSignals;
  int result;
  do
    result = posix_fallocate(file, static_cast<off_t>(offset),
                             static_cast<off_t>(bytes));
  while (result == EINTR);
  if (result != 0)
    return memoryError(result, "reserve", bytes);
  return Status::ok();
}

Status ShmSegment::create(int size, std::string *address) {
  const NoWriteSignals noSignals;
  layOut(size);
  file =
      aboveStandard(memfd_create("ddphook", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file < 0)
    return systemError(errno, "cannot create shared memory");
  if (ftruncate(file, static_cast<off_t>(totalBytes)) != 0)
    return memoryError(errno, "create", totalBytes);
  // Nobody can truncate memory that others have mapped.
  if (fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return systemError(errno, "cannot seal shared memory");
  DDPHOOK_TRY(reserveRange(0, controlBytes));
  DDPHOOK_TRY(mapFile());
  uint64_t nonce[2];
  if (getrandom(nonce, sizeof(nonce), 0) != sizeof(nonce))
    return systemError(errno, "cannot get random bytes");
  std::memcpy(header().nonce, nonce, sizeof(nonce));
  std::string space;
  DDPHOOK_TRY(findProcessSpace(&space));
  *address = formatText("%d %d %" PRIx64 " %" PRIx64 " %s", getpid(), file,
                        nonce[0], nonce[1], space.c_str());
  return Status::ok();
}

Status ShmSegment::open(int size, const std::string &address) {
  layOut(size);
  long pid;
  int number, parsed = 0;
  uint64_t nonce[2];
  if (std::sscanf(address.c_str(), "%ld %d %" SCNx64 " %" SCNx64 " %n", &pid,
                  &number, &nonce[0], &nonce[1], &parsed) != 4)
    return internalError("expected the address of a segment, but got '%s'",
                         address.c_str());
  std::string space;
  DDPHOOK_TRY(findProcessSpace(&space));
  if (address.substr(static_cast<size_t>(parsed)) != space)
    return unsupported(
        "shared memory needs all ranks on one machine and in one PID "
        "namespace");
  std::string path = concat("/proc/", pid, "/fd/", number);
  file = aboveStandard(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file < 0 && (errno == EACCES || errno == EPERM))
    return unsupported("may not open the shared memory of process %ld: %s", pid,
                       std::strerror(errno));
  // The process has ended, or has failed; somebody else knows why.
  if (file < 0 && errno == ENOENT)
    return peerLost("process %ld has closed its shared memory", pid);
  if (file < 0)
    return systemError(errno, "cannot open the shared memory of process %ld",
                       pid);
  struct stat info;
  if (fstat(file, &info) != 0)
    return systemError(errno, "cannot inspect shared memory");
  if (info.st_size != static_cast<off_t>(totalBytes))
    return internalError(concat("expected a segment of ", totalBytes,
                                " bytes, but got ", info.st_size));
  DDPHOOK_TRY(mapFile());
  if (std::memcmp(header().nonce, nonce, sizeof(nonce)) != 0)
    return internalError("found the shared memory of another group");
  return Status::ok();
}

Status ShmSegment::reserve(int rank) {
  // Each rank reserves its own slots, so that the pages are on its NUMA node.
  return reserveRange(slotOffset(rank), kSlots * slotSize);
}

void ShmSegment::finish() {
#ifdef MADV_POPULATE_WRITE
  // This only saves page faults later; older kernels do not support it.
  madvise(base, totalBytes, MADV_POPULATE_WRITE);
#endif
  close(file);
  file = -1;
}
