// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every byte that is used passes once through a checksum. If the buckets are
// those of the module that saved, a state is one run of bytes.

#include "checkpoint/checkpoint_read.h"

#include "checkpoint/checkpoint_states.h"
#include "module/state_init.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

using namespace ddphook;

/// The parts in which files are read. They stay in cache for the checksum.
static constexpr int64_t partBytes = int64_t(1) << 20;

/// Opens the file of `rank`. It may not have its final name yet, or may just
/// get it from a rank of an earlier life of the job.
Status CheckpointReader::openRankFile(
    const std::string &path, int rank,
    std::unique_ptr<SafetensorsReader> *reader) const {
  Status status;
  for (const std::string &name :
       {path, pendingFile(path, manifest.generation), path}) {
    *reader = std::make_unique<SafetensorsReader>();
    Status opened = (*reader)->open(name);
    if (opened.isOk() &&
        generationOf((*reader)->header()) == manifest.generation)
      return Status::ok();
    // The error of the file under its final name is more informative.
    if (!status.isOk())
      continue;
    status = opened.isOk()
                 ? error(DDPHOOK_DATA_LOSS,
                         "'%s' is not rank %d's file of the checkpoint of "
                         "'%s'%s",
                         path.c_str(), rank, manifestPath.c_str(),
                         hasRankMetadata((*reader)->header())
                             ? ", but of another one"
                             : "")
                 : opened;
  }
  return status;
}

/// Finds the states in the file.
Status CheckpointReader::findSaved(const SafetensorsReader &reader, int rank) {
  const SafetensorsHeader &header = reader.header();
  std::string_view description;
  DDPHOOK_TRY(checkRankMetadata(header, manifest, rank, &description));
  isOtherNodes = plan.hasShareErrors() && nodesOf(header) != nodes;
  // Descriptions can be long, and most jobs resume with the same states.
  if (description != printStates(states)) {
    DDPHOOK_TRY(parseStates(description, &others));
    saved = &others;
  }
  DDPHOOK_TRY(readChecksums(header, *saved, &checksums));
  if (header.tensors.size() != saved->size())
    return error(DDPHOOK_DATA_LOSS, "expected %zu tensors, but got %zu",
                 saved->size(), header.tensors.size());
  return Status::ok();
}

/// Maps the saved states to those of the module.
Status CheckpointReader::map() {
  if (saved == &states)
    mapped = mapInPlace(states);
  else
    DDPHOOK_TRY(mapStates(*saved, states, isPartial, &mapped));
  for (size_t i = 0; i < states.size(); ++i)
    if (isForeign(i))
      mapped.shared.erase(i);
  isMapped = true;
  return Status::ok();
}

Status CheckpointReader::explainMismatch(Status status) const {
  return withContext(std::move(status), "the checkpoint of '" + manifestPath +
                                            "' belongs to another plan, and "
                                            "does not fit this one");
}

Status CheckpointReader::read(int rank) {
  const std::string path = rankFile(pattern, rank);
  std::unique_ptr<SafetensorsReader> reader;
  DDPHOOK_TRY(openRankFile(path, rank, &reader));
  Status status = findSaved(*reader, rank);
  if (!status.isOk())
    return withContext(std::move(status), "'" + path + "'");
  status = map();
  if (!status.isOk())
    return explainMismatch(std::move(status));
  DDPHOOK_TRY(beginAnew());
  for (size_t i = 0; i < saved->size(); ++i) {
    const TensorView expected = stateTensor((*saved)[i]);
    const TensorInfo *tensor = reader->find(expected.name);
    if (!tensor || tensor->type != expected.type ||
        tensor->shape != expected.shape)
      return error(DDPHOOK_DATA_LOSS,
                   "'%s': expected a tensor '%s' of type %s and shape %s",
                   path.c_str(), expected.name.c_str(),
                   tensorTypeName(expected.type),
                   printShape(expected.shape).c_str());
    uint64_t hash = 0;
    if (!isNeeded(i))
      continue;
    DDPHOOK_TRY(readSaved(*reader, *tensor, i, &hash));
    if (hash != checksums[i])
      return error(DDPHOOK_DATA_LOSS,
                   "'%s': tensor '%s' is damaged: expected the checksum %s, "
                   "but got %s",
                   path.c_str(), expected.name.c_str(),
                   printHash(checksums[i]).c_str(), printHash(hash).c_str());
  }
  return takeShared();
}

/// True if the file has another rank's value of a state, or if the state is the
/// error of a part of a node's sum and the nodes differ.
bool CheckpointReader::isForeign(size_t state) const {
  return (isOtherWorld && states[state].placement == StatePlacement::PerRank) ||
         (isOtherNodes && states[state].isShareError());
}

/// True if a part of a saved state is needed.
bool CheckpointReader::isNeeded(size_t number) const {
  if ((*saved)[number].isShared())
    return true;
  return std::any_of(
      mapped.runs[number].begin(), mapped.runs[number].end(),
      [&](const SavedRun &run) { return run.state && !isForeign(*run.state); });
}

/// Sets the initial values of states that the file lacks, or has only in part.
Status CheckpointReader::beginAnew() {
  bool isAny = false;
  for (size_t i = 0; i < states.size(); ++i)
    isAny |= (isForeign(i) || (isMapped && mapped.lacksPart[i])) &&
             states[i].init != StateInit::Zero;
  if (!isAny)
    return Status::ok();
  return drawFirstValues(plan, [&](size_t i, const void *value) {
    std::memcpy(imageOf(i), value, static_cast<size_t>(states[i].bytes));
    return Status::ok();
  });
}

/// Reads all bytes of a saved state, copies the needed ones to the image, and
/// returns their checksum.
Status CheckpointReader::readSaved(const SafetensorsReader &reader,
                                   const TensorInfo &tensor, size_t number,
                                   uint64_t *hash) {
  XXH3_state_t hashing;
  XXH3_64bits_reset(&hashing);
  std::vector<char> scratch;
  int64_t position = 0;
  auto read = [&](const SavedRun &run) {
    const bool isTaken = run.state && !isForeign(*run.state);
    for (int64_t done = 0; done < run.bytes;) {
      const int64_t size = std::min(run.bytes - done, partBytes);
      if (!isTaken)
        scratch.resize(static_cast<size_t>(size));
      char *to =
          isTaken ? imageOf(*run.state) + run.offset + done : scratch.data();
      DDPHOOK_TRY(reader.readPart(tensor, static_cast<uint64_t>(position), to,
                                  static_cast<uint64_t>(size)));
      XXH3_64bits_update(&hashing, to, static_cast<size_t>(size));
      done += size;
      position += size;
    }
    return Status::ok();
  };
  if ((*saved)[number].isShared()) {
    std::vector<char> &value = sharedValues[number];
    value.resize(static_cast<size_t>((*saved)[number].bytes));
    DDPHOOK_TRY(reader.read(tensor, value.data()));
    XXH3_64bits_update(&hashing, value.data(), value.size());
  } else {
    for (const SavedRun &run : mapped.runs[number])
      DDPHOOK_TRY(read(run));
  }
  *hash = XXH3_64bits_digest(&hashing);
  return Status::ok();
}

/// Counters and generators: gradients that now share one must agree on it.
Status CheckpointReader::takeShared() {
  Status status =
      placeShared(mapped, states, sharedValues,
                  [&](size_t number, const std::vector<char> &value) {
                    std::copy(value.begin(), value.end(), imageOf(number));
                  });
  return status.isOk() ? status : explainMismatch(std::move(status));
}
