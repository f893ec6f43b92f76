// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rank 0 reads the manifest and sends it to all, so only its machine needs it.
// Every rank reads its file into an image of its states. States change only
// when all images are whole and agree. Every byte that is used passes once
// through a checksum. With the buckets of the save, a state is one run.

#include "base/log.h"
#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_mapping.h"
#include "job/context.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

using namespace ddphook;

static const char loadTask[] = "load its states";
/// The number of states without a saved value that are logged by name.
static constexpr size_t maxLoggedStates = 8;
/// The parts in which files are read. They stay in cache for the checksum.
static constexpr int64_t readBytes = int64_t(1) << 20;

namespace {

/// Loads states. Everything except the files is the same on all ranks.
class Loader {
public:
  Loader(ddphook_module &module, const std::string &pattern, uint32_t flags)
      : module(module), context(module.context), states(module.plan.states),
        pattern(pattern), flags(flags), manifestPath(manifestFile(pattern)) {}

  Status load(ddphook_state_info_t *info);

private:
  Status checkCall() const;
  Status findManifest();
  bool isOtherWorld() const {
    return manifest && manifest->worldSize != context.worldSize();
  }
  bool isReplicated(size_t state) const {
    return states[state].placement == StatePlacement::Replicated;
  }
  char *imageOf(size_t state) { return image.data() + states[state].offset; }

  void report(size_t state, const char *what);
  void logReport() const;
  Status readImage();
  Status readPlain();
  Status readCheckpoint();
  Status openRankFile(const std::string &path,
                      std::unique_ptr<SafetensorsReader> *reader) const;
  Status findSaved(const SafetensorsReader &reader);
  Status map();
  bool isForeign(size_t state) const;
  bool isNeeded(size_t number) const;
  Status beginAnew();
  Status readRankFile();
  Status readSaved(const SafetensorsReader &reader, const TensorInfo &tensor,
                   size_t number, uint64_t *hash);
  Status explainMismatch(Status status) const;
  Status checkValues();
  std::string hashReplicated();
  Status compareReplicated(const std::vector<std::string> &hashes) const;
  Status broadcastReplicated();
  Status writeStates();

  ddphook_module &module;
  Context &context;
  const std::vector<PlanState> &states;
  const std::string &pattern;
  const uint32_t flags;
  const std::string manifestPath;

  const std::string nodes = printNodes(context.allNodes());
  /// Not set for plain files.
  std::optional<Manifest> manifest;
  /// True if the nodes differ from those of the save, so that the errors of the
  /// parts of a node's sum begin as in a new job. The same on all ranks.
  bool isOtherNodes = false;
  /// The states as in their arena.
  std::vector<char> image;
  /// The states of the checkpoint (the module's own or `others`), their
  /// mapping, and the values that several states share.
  std::vector<PlanState> others;
  const std::vector<PlanState> *saved = &states;
  std::vector<uint64_t> checksums;
  CheckpointMapping mapping;
  bool isMapped = false;
  std::map<size_t, std::vector<char>> sharedValues;
  ddphook_state_info_t result = {};
  /// Lines about states without a saved value. If the world size differs, only
  /// rank 0, which reads the file, has them.
  std::vector<std::string> reports;
};

} // namespace

Status Loader::checkCall() const {
  constexpr uint32_t known =
      DDPHOOK_STATE_STRICT | DDPHOOK_STATE_PLAIN | DDPHOOK_STATE_PARTIAL;
  if (flags & ~known)
    return invalid("expected no flags except DDPHOOK_STATE_STRICT, "
                   "DDPHOOK_STATE_PLAIN and DDPHOOK_STATE_PARTIAL, but got %u",
                   flags);
  if ((flags & DDPHOOK_STATE_STRICT) && (flags & DDPHOOK_STATE_PARTIAL))
    return invalid(
        "expected DDPHOOK_STATE_STRICT or DDPHOOK_STATE_PARTIAL, but "
        "got both");
  if (pattern.empty())
    return invalid("expected a pattern of file names, but got an empty one");
  if (module.isRunning())
    return failedPrecondition("an entry point is running");
  return Status::ok();
}

/// Sends the manifest from rank 0 to every rank.
Status Loader::findManifest() {
  Status status = checkCall();
  std::string text;
  if (status.isOk() && context.rank() == 0)
    status = readManifestText(manifestPath, &text);
  const std::string mine = std::to_string(flags);
  std::vector<std::string> all;
  DDPHOOK_TRY(context.agree("ddphook_state_load", loadTask, status,
                            mine + " " + text, &all));
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].compare(0, mine.size() + 1, mine + " ") != 0)
      return invalid("rank %zu loads states with different flags than rank %d",
                     rank, context.rank());

  text = all[0].substr(mine.size() + 1);
  if (text.empty()) {
    if (!(flags & DDPHOOK_STATE_PLAIN))
      return error(DDPHOOK_IO_ERROR,
                   "there is no checkpoint: '%s' does not exist",
                   manifestPath.c_str());
    if (context.worldSize() > 1 && rankFile(pattern, 0) == rankFile(pattern, 1))
      return invalid("expected {rank} in the pattern of the files of %d ranks, "
                     "but got '%s'",
                     context.worldSize(), pattern.c_str());
    return Status::ok();
  }
  Manifest found;
  DDPHOOK_TRY(parseManifest(text, manifestPath, &found));
  manifest = found;
  if (isOtherWorld() && (flags & DDPHOOK_STATE_STRICT))
    return failedPrecondition(
        "the checkpoint of '%s' has another world size: expected %d "
        "ranks, but got %d",
        manifestPath.c_str(), context.worldSize(), found.worldSize);
  return Status::ok();
}

/// Adds a line such as "state 'b0.error' of 'w', 'b' begins at zero".
void Loader::report(size_t state, const char *what) {
  std::string names;
  for (const std::vector<std::string> &list : states[state].gradients)
    for (const std::string &name : list)
      names += (names.empty() ? " of '" : ", '") + name + "'";
  reports.push_back("state '" + states[state].name + "'" + names + " " + what);
}

/// Logs the report for programs that do not look at it.
void Loader::logReport() const {
  if (result.zeroed == 0 || context.rank() != 0)
    return;
  const std::string file = "'" + manifestPath + "'";
  if (isOtherWorld())
    log(LogLevel::Warn,
        concat(file, " was saved by ", manifest->worldSize,
               " ranks, but this job has ", context.worldSize()));
  else if (isOtherNodes)
    log(LogLevel::Warn, file + " was saved by ranks on other nodes");
  for (size_t i = 0; i < reports.size(); ++i) {
    if (i == maxLoggedStates && !isLogged(LogLevel::Info))
      return log(LogLevel::Warn,
                 concat(file, ": so do ", reports.size() - i,
                        " other states (DDPHOOK_LOG=info names them)"));
    log(LogLevel::Warn, file + ": " + reports[i]);
  }
}

/// Opens this rank's file. It may not have its final name yet, or may just
/// get it from a rank of an earlier life of the job.
Status Loader::openRankFile(const std::string &path,
                            std::unique_ptr<SafetensorsReader> *reader) const {
  Status status;
  for (const std::string &name :
       {path, pendingFile(path, manifest->generation), path}) {
    *reader = std::make_unique<SafetensorsReader>();
    Status opened = (*reader)->open(name);
    if (opened.isOk() &&
        generationOf((*reader)->header()) == manifest->generation)
      return Status::ok();
    // The error of the file under its final name is more informative.
    if (!status.isOk())
      continue;
    status = opened.isOk()
                 ? dataLoss("'%s' is not rank %d's file of the checkpoint of "
                            "'%s'%s",
                            path.c_str(), context.rank(), manifestPath.c_str(),
                            hasRankMetadata((*reader)->header())
                                ? ", but of another one"
                                : "")
                 : opened;
  }
  return status;
}

Status Loader::findSaved(const SafetensorsReader &reader) {
  const SafetensorsHeader &header = reader.header();
  std::string_view description;
  DDPHOOK_TRY(
      checkRankMetadata(header, *manifest, context.rank(), &description));
  isOtherNodes = module.plan.hasShareErrors() && nodesOf(header) != nodes;
  // Descriptions can be long, and most jobs resume with the same states.
  if (description != printStates(states)) {
    DDPHOOK_TRY(parseStates(description, &others));
    saved = &others;
  }
  DDPHOOK_TRY(readChecksums(header, *saved, &checksums));
  if (header.tensors.size() != saved->size())
    return dataLoss("expected %zu tensors, but got %zu", saved->size(),
                    header.tensors.size());
  return Status::ok();
}

Status Loader::map() {
  DDPHOOK_TRY(mapStates(*saved, states, (flags & DDPHOOK_STATE_PARTIAL) != 0,
                        &mapping));
  for (size_t i = 0; i < states.size(); ++i)
    if (isForeign(i))
      mapping.shared.erase(i);
  isMapped = true;
  return Status::ok();
}

Status Loader::explainMismatch(Status status) const {
  return withContext(std::move(status), "the checkpoint of '" + manifestPath +
                                            "' belongs to another plan, and "
                                            "does not fit this one");
}

/// Reads this rank's file. PLAN_MISMATCH if its states cannot be mapped.
Status Loader::readRankFile() {
  const std::string path = rankFile(pattern, context.rank());
  std::unique_ptr<SafetensorsReader> reader;
  DDPHOOK_TRY(openRankFile(path, &reader));
  DDPHOOK_TRY(withContext(findSaved(*reader), "'" + path + "'"));
  DDPHOOK_TRY(explainMismatch(map()));
  DDPHOOK_TRY(beginAnew());
  for (size_t i = 0; i < saved->size(); ++i) {
    const TensorView expected = stateTensor((*saved)[i]);
    const TensorInfo *tensor = reader->find(expected.name);
    if (!tensor || tensor->type != expected.type ||
        tensor->shape != expected.shape)
      return dataLoss("'%s': expected a tensor '%s' of type %s and shape %s",
                      path.c_str(), expected.name.c_str(),
                      tensorTypeName(expected.type),
                      printShape(expected.shape).c_str());
    uint64_t hash = 0;
    if (!isNeeded(i))
      continue;
    DDPHOOK_TRY(readSaved(*reader, *tensor, i, &hash));
    if (hash != checksums[i])
      return dataLoss("'%s': tensor '%s' is damaged: expected the checksum %s, "
                      "but got %s",
                      path.c_str(), expected.name.c_str(),
                      printHash(checksums[i]).c_str(), printHash(hash).c_str());
  }
  // Gradients that now share a counter or a generator must agree on it.
  return explainMismatch(
      placeShared(mapping, states, sharedValues,
                  [&](size_t number, const std::vector<char> &value) {
                    std::copy(value.begin(), value.end(), imageOf(number));
                  }));
}

/// True if the file has another rank's value of a state, or if the state is the
/// error of a part of a node's sum and the nodes differ.
bool Loader::isForeign(size_t state) const {
  return (isOtherWorld() && !isReplicated(state)) ||
         (isOtherNodes && states[state].isShareError());
}

/// True if a part of a saved state is needed.
bool Loader::isNeeded(size_t number) const {
  if ((*saved)[number].isShared())
    return true;
  return std::any_of(
      mapping.runs[number].begin(), mapping.runs[number].end(),
      [&](const SavedRun &run) { return run.state && !isForeign(*run.state); });
}

/// Sets the initial values of states that the file lacks, or has only in part.
Status Loader::beginAnew() {
  bool isAny = false;
  for (size_t i = 0; i < states.size(); ++i)
    isAny |= (isForeign(i) || (isMapped && mapping.lacksPart[i])) &&
             states[i].init != StateInit::Zero;
  if (!isAny)
    return Status::ok();
  return drawFirstValues(module.plan, [&](size_t i, const void *value) {
    std::memcpy(imageOf(i), value, states[i].bytes);
    return Status::ok();
  });
}

/// Reads a saved state, copies what is needed to the image, and checksums it.
Status Loader::readSaved(const SafetensorsReader &reader,
                         const TensorInfo &tensor, size_t number,
                         uint64_t *hash) {
  XXH3_state_t hashing;
  XXH3_64bits_reset(&hashing);
  std::vector<char> scratch;
  int64_t position = 0;
  auto read = [&](const SavedRun &run) {
    const bool isTaken = run.state && !isForeign(*run.state);
    for (int64_t done = 0; done < run.bytes;) {
      const int64_t size = std::min(run.bytes - done, readBytes);
      if (!isTaken)
        scratch.resize(size);
      char *to =
          isTaken ? imageOf(*run.state) + run.offset + done : scratch.data();
      DDPHOOK_TRY(reader.readPart(tensor, position, to, size));
      XXH3_64bits_update(&hashing, to, size);
      done += size;
      position += size;
    }
    return Status::ok();
  };
  if ((*saved)[number].isShared()) {
    std::vector<char> &value = sharedValues[number];
    value.resize((*saved)[number].bytes);
    DDPHOOK_TRY(reader.read(tensor, value.data()));
    XXH3_64bits_update(&hashing, value.data(), value.size());
  } else {
    for (const SavedRun &run : mapping.runs[number])
      DDPHOOK_TRY(read(run));
  }
  *hash = XXH3_64bits_digest(&hashing);
  return Status::ok();
}

Status Loader::readCheckpoint() {
  // If the world size differs, rank 0 reads for all ranks.
  if (isOtherWorld() && context.rank() != 0)
    return beginAnew();
  DDPHOOK_TRY(readRankFile());
  if (isOtherNodes && (flags & DDPHOOK_STATE_STRICT))
    return failedPrecondition(
        "the checkpoint of '%s' has error feedback of shards, and was "
        "saved by ranks on other nodes: expected the ranks to run on "
        "the nodes %s, in rank order",
        manifestPath.c_str(), nodes.c_str());
  result.world_size = manifest->worldSize;
  for (size_t i = 0; i < states.size(); ++i)
    if (!isForeign(i) && !mapping.lacksAll[i]) {
      ++result.loaded;
    } else {
      ++result.zeroed;
      report(i, states[i].init == StateInit::Zero
                    ? "begins at zero"
                    : "starts from its initial value");
    }
  if (context.rank() == 0) {
    const std::string file = "'" + manifestPath + "': ";
    for (const std::string &what : mapping.missing)
      log(LogLevel::Info, file + what);
    for (const std::string &what : mapping.dropped)
      log(LogLevel::Info, file + "its " + what + " is dropped");
  }
  result.missing = static_cast<int32_t>(mapping.missing.size());
  result.dropped = static_cast<int32_t>(mapping.dropped.size());
  return Status::ok();
}

/// True if a tensor matches a state, in its shape or flat.
static bool fits(const TensorInfo &tensor, const PlanState &state) {
  const std::vector<int64_t> flat = {state.bytes / stateDtypeSize(state.dtype)};
  return tensor.type == stateTensorType(state.dtype) &&
         (tensor.shape == flat || tensor.shape == stateTensor(state).shape);
}

Status Loader::readPlain() {
  const std::string path = rankFile(pattern, context.rank());
  SafetensorsReader reader;
  DDPHOOK_TRY(reader.open(path));
  if (hasRankMetadata(reader.header()))
    return dataLoss(
        "'%s' is a part of a checkpoint, whose manifest '%s' does not "
        "exist",
        path.c_str(), manifestPath.c_str());
  size_t known = 0;
  for (size_t i = 0; i < states.size(); ++i) {
    const PlanState &state = states[i];
    const TensorInfo *tensor = reader.find(state.name);
    if (!tensor) {
      if (flags & DDPHOOK_STATE_STRICT)
        return invalid("'%s' has no tensor of state '%s'", path.c_str(),
                       state.name.c_str());
      DDPHOOK_TRY(readState(module, i, 0, imageOf(i), state.bytes));
      report(i, "is unchanged");
      continue;
    }
    if (!fits(*tensor, state)) {
      const TensorView expected = stateTensor(state);
      return invalid(
          "'%s', tensor '%s': expected %s %s, but got %s %s", path.c_str(),
          state.name.c_str(), tensorTypeName(expected.type),
          printShape(expected.shape).c_str(), tensorTypeName(tensor->type),
          printShape(tensor->shape).c_str());
    }
    DDPHOOK_TRY(reader.read(*tensor, imageOf(i)));
    ++known;
  }
  if (known != reader.header().tensors.size())
    for (const auto &tensor : reader.header().tensors)
      if (std::none_of(states.begin(), states.end(),
                       [&](const PlanState &state) {
                         return state.name == tensor.first;
                       }))
        return invalid(
            "'%s' has a tensor '%s', but the module has no such state",
            path.c_str(), tensor.first.c_str());
  result.loaded = static_cast<int32_t>(known);
  result.kept = static_cast<int32_t>(states.size() - known);
  return Status::ok();
}

/// Checks for values that would make a later step fail.
Status Loader::checkValues() {
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i].init != StateInit::Mt19937)
      continue;
    std::vector<int32_t> generator(generatorElements);
    std::memcpy(generator.data(), imageOf(i), states[i].bytes);
    if (!isGenerator(generator.data()))
      return invalid("state '%s': expected a random generator with a position "
                     "from 0 to 624, but got %d",
                     states[i].name.c_str(), generator.back());
  }
  return Status::ok();
}

Status Loader::readImage() {
  DDPHOOK_TRY(context.synchronize());
  image.assign(module.plan.stateArena.bytes, 0);
  DDPHOOK_TRY(manifest ? readCheckpoint() : readPlain());
  return checkValues();
}

/// Returns sixteen digits for each replicated state.
std::string Loader::hashReplicated() {
  std::string hashes;
  for (size_t i = 0; i < states.size(); ++i)
    if (isReplicated(i))
      hashes += printHash(XXH3_64bits(imageOf(i), states[i].bytes));
  return hashes;
}

/// Ranks with different factors or counters would not run the same steps.
Status Loader::compareReplicated(const std::vector<std::string> &hashes) const {
  for (size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] == hashes[0])
      continue;
    size_t at = 0;
    for (size_t i = 0; i < states.size(); ++i) {
      if (!isReplicated(i))
        continue;
      if (hashes[rank].compare(at, 16, hashes[0], at, 16) != 0)
        return invalid(
            "state '%s' is the same on all ranks, but the files give "
            "rank 0 and rank %zu different values",
            states[i].name.c_str(), rank);
      at += 16;
    }
  }
  return Status::ok();
}

Status Loader::broadcastReplicated() {
  std::vector<char> packed;
  for (size_t i = 0; i < states.size(); ++i)
    if (isReplicated(i))
      packed.insert(packed.end(), imageOf(i), imageOf(i) + states[i].bytes);
  DDPHOOK_TRY(context.broadcast(packed.data(), packed.size(), /*root=*/0));
  const char *from = packed.data();
  for (size_t i = 0; i < states.size(); ++i) {
    if (!isReplicated(i))
      continue;
    std::copy(from, from + states[i].bytes, imageOf(i));
    from += states[i].bytes;
  }
  return Status::ok();
}

Status Loader::writeStates() {
  for (size_t i = 0; i < states.size(); ++i)
    DDPHOOK_TRY(writeState(module, i, 0, imageOf(i), states[i].bytes));
  return Status::ok();
}

Status Loader::load(ddphook_state_info_t *info) {
  DDPHOOK_TRY(context.failure());
  DDPHOOK_TRY(findManifest());
  const Status read = withoutExceptions([&] { return readImage(); });
  std::vector<std::string> all;
  DDPHOOK_TRY(context.agree(
      "ddphook_state_load (read)", loadTask, read,
      read.isOk() && !isOtherWorld() ? hashReplicated() : "", &all));
  if (isOtherWorld())
    DDPHOOK_TRY(broadcastReplicated());
  else
    DDPHOOK_TRY(compareReplicated(all));

  // From here on a failure leaves a mixture of old and new states.
  Status written = writeStates();
  if (!written.isOk())
    return context.fail(std::move(written));
  // Only rank 0 has read a file.
  if (isOtherWorld())
    DDPHOOK_TRY(context.broadcast(&result, sizeof(result), 0));
  std::string text;
  for (const std::string &line : reports)
    text += line + "\n";
  DDPHOOK_TRY(context.agree("ddphook_state_load (end)", loadTask, Status::ok(),
                            text, &all));
  logReport();
  module.stateReport = isOtherWorld() ? all[0] : text;
  *info = result;
  info->report = module.stateReport.c_str();
  return Status::ok();
}

Status ddphook::loadStates(ddphook_module &module, const std::string &pattern,
                           uint32_t flags, ddphook_state_info_t *info) {
  return Loader(module, pattern, flags).load(info);
}
