// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A libFuzzer target. The first byte of its input says who reads the rest:
//
//   p  parsePlan()                       d  describeDifference(), of two lines
//   s  parseSafetensorsHeader()          f  a file, as safetensors
//   m  parseManifest()                   x  an exchange's answer
//   w  a message's beginning             e  a failure that travels as a value
//
// What a reader accepts must keep what its header promises. Conversations of
// the store are in store_fuzzer.cpp.

#include "checkpoint/checkpoint_files.h"
#include "files/safetensors.h"
#include "job/store_collectives.h"
#include "plan/plan.h"
#include "store/store_protocol.h"

#include <nlohmann/json.hpp>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace ddphook;

/// Says what was promised, and stops, unless it is kept.
static void promise(bool isKept, const char *what) {
  if (isKept)
    return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

static void readPlan(std::string_view text) {
  Plan plan;
  if (!parsePlan(text, &plan).isOk())
    return;
  for (const PlanCollective &collective : plan.collectives)
    promise(collective.group < plan.processGroups.size() &&
                collective.count >= 0 && collective.root >= 0,
            "collectives have a group, a count and a root");
  for (size_t i = 0; i < plan.states.size(); ++i) {
    const PlanState &state = plan.states[i];
    promise(state.offset >= 0 && state.bytes >= 0 &&
                state.offset <= plan.stateArena.bytes - state.bytes,
            "states lie in their arena");
    promise(!state.generator || *state.generator < i,
            "generators come before the states that they fill");
  }
  for (const PlanEntry &entry : plan.entries)
    for (const PlanValue &result : entry.results)
      promise(result.argument < static_cast<int64_t>(entry.arguments.size()),
              "results that are arguments are some argument");
  promise(describeDifference(text, "one", text, "other") ==
              describeDifference(text, "one", text, "other"),
          "differences are described the same twice");
}

static void comparePlans(std::string_view text) {
  size_t end = text.find('\n');
  if (end == std::string_view::npos)
    return;
  std::string_view first = text.substr(0, end);
  std::string_view second = text.substr(end + 1);
  Plan plan;
  if (first != second && parsePlan(first, &plan).isOk() &&
      parsePlan(second, &plan).isOk())
    promise(!describeDifference(first, "rank 0", second, "rank 1").empty(),
            "a difference is described");
}

static void checkHeader(const SafetensorsHeader &header, uint64_t dataBytes) {
  uint64_t sum = 0;
  std::vector<TensorView> tensors;
  for (const auto &[name, tensor] : header.tensors) {
    uint64_t bytes = 0;
    promise(tensor.begin <= tensor.end && tensor.end <= dataBytes &&
                tensorBytes(tensor.shape, tensorTypeSize(tensor.type), bytes) &&
                bytes == tensor.end - tensor.begin,
            "tensors are as long as they say, and within the data");
    sum += bytes;
    tensors.push_back({name, tensor.type, tensor.shape, nullptr});
  }
  promise(sum == dataBytes, "tensors leave no gap");

  SafetensorsLayout layout;
  std::map<std::string, std::string> metadata(header.metadata.begin(),
                                              header.metadata.end());
  std::string written;
  promise(layOutSafetensors(tensors, layout).isOk() &&
              makeSafetensorsHeader(tensors, layout, metadata, &written).isOk(),
          "what was read can be written");
  SafetensorsHeader again;
  promise(parseSafetensorsHeader(std::string_view(written).substr(8), dataBytes,
                                 again)
                  .isOk() &&
              again.metadata == header.metadata &&
              again.tensors.size() == header.tensors.size(),
          "what was written can be read");
}

/// The number of data bytes comes first.
static void readHeader(std::string_view bytes) {
  uint64_t dataBytes = 0;
  if (bytes.size() < sizeof(dataBytes))
    return;
  std::memcpy(&dataBytes, bytes.data(), sizeof(dataBytes));
  SafetensorsHeader header;
  if (parseSafetensorsHeader(bytes.substr(sizeof(dataBytes)), dataBytes, header)
          .isOk())
    checkHeader(header, dataBytes);
}

static void readFile(std::string_view bytes) {
  int file = ::memfd_create("fuzz", MFD_CLOEXEC);
  promise(file >= 0 && ::write(file, bytes.data(), bytes.size()) ==
                           static_cast<ssize_t>(bytes.size()),
          "a file in memory can be made");
  SafetensorsReader reader;
  if (reader.open("/proc/self/fd/" + std::to_string(file)).isOk()) {
    for (const auto &[name, tensor] : reader.header().tensors) {
      std::vector<char> data(tensor.end - tensor.begin);
      promise(reader.read(tensor, data.data()).isOk(),
              "tensors of a whole file can be read");
    }
    Manifest manifest;
    manifest.generation = generationOf(reader.header());
    promise(manifest.generation == 0 || !reader.header().metadata.empty(),
            "a generation comes from metadata");
    std::string_view description;
    std::vector<PlanState> states;
    std::vector<uint64_t> checksums;
    if (checkRankMetadata(reader.header(), manifest, 0, &description).isOk() &&
        parseStates(description, &states).isOk() &&
        readChecksums(reader.header(), states, &checksums).isOk())
      promise(checksums.size() == states.size(), "every state has a checksum");
  }
  ::close(file);
}

/// With a checksum that is right, or nothing but the checksum would be tested.
static void readManifest(std::string_view bytes) {
  std::string text(bytes);
  Manifest manifest;
  parseManifest(text, "manifest", &manifest).ignore();

  auto json = nlohmann::ordered_json::parse(text, nullptr,
                                            /*allow_exceptions=*/false);
  if (!json.is_object())
    return;
  json.erase("checksum");
  std::string rest =
      json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  json["checksum"] = printHash(XXH3_64bits(rest.data(), rest.size()));
  text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (!parseManifest(text, "manifest", &manifest).isOk())
    return;
  promise(manifest.generation != 0 && manifest.worldSize > 0,
          "a manifest has a generation and ranks");
  Manifest again;
  promise(parseManifest(printManifest(manifest), "manifest", &again).isOk() &&
              again.generation == manifest.generation &&
              again.programHash == manifest.programHash &&
              again.statesHash == manifest.statesHash &&
              again.worldSize == manifest.worldSize,
          "a manifest that was written can be read");
}

namespace {

/// Answers every question with the same bytes.
class EchoStore : public Store {
public:
  explicit EchoStore(std::string_view answer) : answer(answer) {}

  Status set(const std::string &, const std::string &) override {
    return Status::ok();
  }
  Status get(const std::string &, const Deadline &,
             std::string *value) override {
    *value = answer;
    return Status::ok();
  }
  Status add(const std::string &, int64_t, int64_t *) override {
    return Status::ok();
  }
  Status erase(const std::string &) override { return Status::ok(); }

private:
  const std::string answer;
};

} // namespace

static void readStoreCollectives(std::string_view bytes) {
  for (int rank = 0; rank < 2; ++rank) {
    EchoStore store(bytes);
    StoreCollectives collectives(store, "fuzz/", rank, /*size=*/2);
    std::vector<std::string> all;
    if (collectives.allGather("fuzz", "mine", Deadline::after(1), &all).isOk())
      promise(all.size() == 2, "an all-gather gives what every rank gave");
  }
}

static void readFailure(std::string_view bytes) {
  Status status = wire::decodeStatus(bytes);
  promise(!status.isOk(), "a failure is one");
  Status again = wire::decodeStatus(wire::encodeStatus(status));
  promise(again.code() == status.code() && again.message() == status.message(),
          "a failure arrives as it was sent");
}

static void readMessage(std::string_view bytes) {
  using wire::Frame;
  if (std::optional<Frame> frame = Frame::decodeHeader(bytes))
    promise(frame->keySize <= Frame::maxKeySize &&
                frame->valueSize <= Frame::maxValueSize,
            "a message's sizes are within their limits");
  if (std::optional<wire::Hello> hello = wire::Hello::decode(bytes)) {
    std::optional<wire::Hello> again = wire::Hello::decode(hello->encode());
    promise(again && again->rank == hello->rank &&
                again->worldSize == hello->worldSize &&
                again->runId == hello->runId,
            "a greeting arrives as it was sent");
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return -1;
  std::string_view rest(reinterpret_cast<const char *>(data) + 1, size - 1);
  switch (data[0]) {
  case 'p':
    readPlan(rest);
    return 0;
  case 'd':
    comparePlans(rest);
    return 0;
  case 's':
    readHeader(rest);
    return 0;
  case 'f':
    readFile(rest);
    return 0;
  case 'm':
    readManifest(rest);
    return 0;
  case 'x':
    readStoreCollectives(rest);
    return 0;
  case 'e':
    readFailure(rest);
    return 0;
  case 'w':
    readMessage(rest);
    return 0;
  default:
    return -1;
  }
}
