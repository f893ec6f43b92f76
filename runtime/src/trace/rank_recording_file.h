// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A file follows the memory of a part and outlives its process. Files are for
// the machines of one job: numbers are in the processor's byte order.
//
// The memory is not a mapping of the file: anyone who may write to the file may
// truncate it, and a store to a truncated page is a SIGBUS.

#pragma once

#include "files/open_file.h"
#include "trace/rank_recording_layout.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace ddphook::trace {

/// Writes new data of a part to a file, on a separate thread. After each of its
/// system calls the file is a readable part, so a kill at any time leaves one.
class RankRecordingFile {
public:
  /// The longest time that an event is only in memory, if the disk keeps up.
  static constexpr std::chrono::milliseconds interval{50};

  /// Creates the file at `path`, replacing an existing one, and reserves its
  /// disk space, so that no later write fails unless somebody truncates it.
  /// `part` is the memory of a part and must outlive the file.
  static Status create(std::string_view part, const std::string &path,
                       std::unique_ptr<RankRecordingFile> *result);
  /// Completes the file.
  ~RankRecordingFile();

  /// Wakes the thread without waiting for it.
  void hurry() { wake.notify_one(); }
  /// Writes the rest and ends the thread; see RankRecording::close().
  void finish(bool isRemote);

private:
  RankRecordingFile(std::string_view part, std::string path, int file);
  void run();
  Status writeNew();
  Status writeRing(size_t lane, uint64_t end);
  Status writeHeader(const PartHeader &header) {
    return write(&header, sizeof(header), 0);
  }
  Status write(const void *data, uint64_t bytes, uint64_t offset);

  const std::string_view part;
  const std::string path;
  const int file;
  /// The header in the file, and the next one.
  std::unique_ptr<PartHeader> written, next;
  std::vector<uint64_t> slots; ///< Space to copy some slots.

  std::mutex mutex;
  std::condition_variable wake;
  bool isOver = false;
  std::thread thread;
};

/// Reads a part from a file; IO_ERROR or DATA_LOSS if it fails.
Status readPartFile(const std::string &path, NamedBy namedBy,
                    PartContents *contents);

/// Returns the run of the part that the runtime named, or an empty text.
std::string runOfPart(const std::string &path);

/// Writes the result of another process's pack() as a file of a part.
Status savePart(std::string_view packed, const std::string &path);

} // namespace ddphook::trace
