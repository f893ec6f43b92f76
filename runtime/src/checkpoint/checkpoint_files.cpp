// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// File names, the manifest's JSON, and the metadata of ranks' files. The
// description of states has those keys of the plan's that loading needs.

#include "checkpoint/checkpoint_files.h"

#include "base/packed_texts.h"
#include "files/atomic_file.h"
#include "files/json.h"
#include "plan/plan_reader.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/random.h>

using namespace ddphook;
using namespace ddphook::plan;

static constexpr char rankWord[] = "{rank}";
static constexpr char pendingSuffix[] = ".pending-";
static constexpr char manifestFormat[] = "ddphook checkpoint";
static constexpr int formatVersion = 2;
/// A manifest has a few hundred bytes.
static constexpr uint64_t maxManifestBytes = 1 << 16;

Status ddphook::drawGeneration(uint64_t *generation) {
  *generation = 0;
  while (*generation == 0)
    if (::getrandom(generation, sizeof(*generation), 0) < 0 && errno != EINTR)
      return systemError(errno, "cannot draw a random number");
  return Status::ok();
}

std::string ddphook::rankFile(const std::string &pattern, int rank) {
  return replaceAll(pattern, rankWord, std::to_string(rank));
}

std::string ddphook::pendingFile(const std::string &file, uint64_t generation) {
  return file + pendingSuffix + printHash(generation);
}

Status ddphook::listPending(const std::string &file,
                            std::vector<PendingFile> *found) {
  const size_t slash = file.rfind('/') + 1; // 0 if there is none
  const std::string directory = file.substr(0, slash);
  const std::string prefix = file.substr(slash) + pendingSuffix;
  constexpr size_t digits = 16;
  const std::unique_ptr<DIR, int (*)(DIR *)> list(
      ::opendir(directory.empty() ? "." : directory.c_str()), ::closedir);
  errno = list ? 0 : errno;
  while (const dirent *entry = list ? ::readdir(list.get()) : nullptr) {
    const std::string name = entry->d_name;
    PendingFile pending;
    if (name.compare(0, prefix.size(), prefix) == 0 &&
        parseHash(name.substr(prefix.size(), digits), &pending.generation) &&
        (name.size() == prefix.size() + digits ||
         name.find(partialSuffix) == prefix.size() + digits)) {
      pending.path = directory + name;
      found->push_back(pending);
    }
    errno = 0;
  }
  return errno == 0 ? Status::ok()
                    : systemError(errno, "cannot list the directory of '%s'",
                                  file.c_str());
}

std::string ddphook::manifestFile(const std::string &pattern) {
  static const std::string extension = ".safetensors";
  const std::string word = "manifest";
  std::string name = pattern;
  if (name.size() > extension.size() &&
      name.compare(name.size() - extension.size(), extension.size(),
                   extension) == 0)
    name.resize(name.size() - extension.size());
  std::string result = replaceAll(name, rankWord, word);
  if (result == name)
    result += "." + word;
  return result + ".json";
}

std::string ddphook::printHash(uint64_t hash) {
  return formatText("%016" PRIx64, hash);
}

bool ddphook::parseHash(std::string_view text, uint64_t *hash) {
  if (text.size() != 16)
    return false;
  auto [end, code] =
      std::from_chars(text.data(), text.data() + text.size(), *hash, 16);
  return code == std::errc() && end == text.data() + text.size();
}

uint64_t ddphook::hashText(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

std::string ddphook::ownerOf(const std::string &text) {
  Manifest manifest;
  if (!parseManifest(text, "", &manifest).isOk() || manifest.savedBy.empty())
    return "another process";
  std::replace_if(
      manifest.savedBy.begin(), manifest.savedBy.end(),
      [](unsigned char c) { return c < ' '; }, '?');
  return manifest.savedBy;
}

/// Returns the text of a manifest before its checksum, either on one line, from
/// which the checksum is computed, or as in the file.
static std::string printFields(const Manifest &manifest, bool isOneLine) {
  std::string text = "{";
  auto add = [&](const char *key, const std::string &value) {
    text += text.size() == 1 ? "" : ",";
    text += isOneLine ? "\"" : "\n  \"";
    text += std::string(key) + (isOneLine ? "\":" : "\": ") + value;
  };
  auto quote = [](const std::string &value) { return '"' + value + '"'; };
  add("format", quote(manifestFormat));
  add("version", std::to_string(formatVersion));
  add("generation", quote(printHash(manifest.generation)));
  add("program_hash", quote(printHash(manifest.programHash)));
  add("states_hash", quote(printHash(manifest.statesHash)));
  add("world_size", std::to_string(manifest.worldSize));
  if (!manifest.savedBy.empty()) {
    std::string owner;
    appendJsonText(&owner, manifest.savedBy, /*isRepaired=*/true);
    add("saved_by", owner);
  }
  return text;
}

static uint64_t checksumOf(const Manifest &manifest) {
  return hashText(printFields(manifest, /*isOneLine=*/true) + "}");
}

std::string ddphook::printManifest(const Manifest &manifest) {
  return printFields(manifest, /*isOneLine=*/false) + ",\n  \"checksum\": \"" +
         printHash(checksumOf(manifest)) + "\"\n}\n";
}

Status ddphook::parseManifest(const std::string &text, const std::string &path,
                              Manifest *manifest) {
  auto malformed = [&](const char *what) {
    return dataLoss("'%s' %s", path.c_str(), what);
  };
  Json json;
  const Json::Result parsed = Json::parse(text, &json);
  auto value = [&](const char *key) {
    static const Json none;
    const Json *found = json.find(key);
    return found ? found : &none;
  };
  if (parsed != Json::Result::Parsed ||
      value("format")->string() != manifestFormat)
    return malformed("is not the manifest of a checkpoint");
  const Json *const version = json.find("version");
  if (version && version->integer != formatVersion)
    return unsupported("'%s': expected a checkpoint of version %d, but got %s",
                       path.c_str(), formatVersion, version->print().c_str());
  auto hash = [&](const char *key, uint64_t *result) {
    return parseHash(value(key)->string(), result);
  };
  uint64_t checksum = 0;
  const int64_t worldSize = value("world_size")->integer;
  manifest->savedBy = value("saved_by")->string();
  const size_t keys = manifest->savedBy.empty() ? 7 : 8;
  if (!version || json.keys.size() != keys || !hash("checksum", &checksum) ||
      !hash("generation", &manifest->generation) || manifest->generation == 0 ||
      !hash("program_hash", &manifest->programHash) ||
      !hash("states_hash", &manifest->statesHash) || worldSize < 1 ||
      worldSize > (1 << 24))
    return malformed("is damaged: a value is missing or wrong");
  manifest->worldSize = static_cast<int>(worldSize);
  if (checksum != checksumOf(*manifest))
    return malformed("is damaged: its checksum is wrong");
  return Status::ok();
}

Status ddphook::readManifestText(const std::string &path, std::string *text) {
  text->clear();
  OpenFile file;
  const Status opened = file.open(path, O_RDONLY, NamedBy::User);
  if (!opened.isOk())
    return file.isMissing() ? Status::ok() : opened;
  if (file.size() > maxManifestBytes || file.size() == 0)
    return dataLoss("'%s' is not the manifest of a checkpoint", path.c_str());
  text->resize(file.size());
  return file.read(text->data(), text->size(), 0);
}

TensorType ddphook::stateTensorType(StateDtype dtype) {
  switch (dtype) {
#define DDPHOOK_STATE_TYPE(NAME, name, bytes, c_type, file)                    \
  case StateDtype::NAME:                                                       \
    return TensorType::file;
#include "ddphook/runtime/element_types.inc"
  }
  return TensorType::I64;
}

TensorView ddphook::stateTensor(const PlanState &state) {
  TensorView tensor;
  tensor.name = state.name;
  tensor.type = stateTensorType(state.dtype);
  if (state.shapes.size() == 1)
    tensor.shape = state.shapes[0];
  else
    tensor.shape = {state.bytes / stateDtypeSize(state.dtype)};
  return tensor;
}

static const char versionKey[] = "ddphook.checkpoint";
static const char generationKey[] = "ddphook.generation";
static const char statesKey[] = "ddphook.states";
static const char worldSizeKey[] = "ddphook.world_size";
static const char rankKey[] = "ddphook.rank";
static const char nodesKey[] = "ddphook.nodes";
/// Followed by the state's name.
static const char checksumPrefix[] = "ddphook.xxh3.";

std::map<std::string, std::string> ddphook::rankMetadata(
    const Manifest &manifest, int rank, const std::vector<PlanState> &states,
    const std::string &description, const std::vector<uint64_t> &checksums,
    const std::string &nodes) {
  std::map<std::string, std::string> metadata = {
      {versionKey, std::to_string(formatVersion)},
      {generationKey, printHash(manifest.generation)},
      {statesKey, description},
      {worldSizeKey, std::to_string(manifest.worldSize)},
      {rankKey, std::to_string(rank)}};
  for (size_t i = 0; i < states.size(); ++i)
    metadata[checksumPrefix + states[i].name] = printHash(checksums[i]);
  if (!nodes.empty())
    metadata[nodesKey] = nodes;
  return metadata;
}

/// Returns the value of a key, or an empty text.
static std::string_view lookUp(const SafetensorsHeader &header,
                               std::string_view key) {
  auto found = header.metadata.find(key);
  return found == header.metadata.end() ? std::string_view() : found->second;
}

std::string_view ddphook::nodesOf(const SafetensorsHeader &header) {
  return lookUp(header, nodesKey);
}

bool ddphook::hasRankMetadata(const SafetensorsHeader &header) {
  return header.metadata.count(versionKey) ||
         header.metadata.count(generationKey);
}

uint64_t ddphook::generationOf(const SafetensorsHeader &header) {
  uint64_t generation = 0;
  return parseHash(lookUp(header, generationKey), &generation) ? generation : 0;
}

Status ddphook::checkRankMetadata(const SafetensorsHeader &header,
                                  const Manifest &manifest, int rank,
                                  std::string_view *description) {
  for (const auto &[key, expected] :
       {std::pair(versionKey, std::to_string(formatVersion)),
        std::pair(worldSizeKey, std::to_string(manifest.worldSize)),
        std::pair(rankKey, std::to_string(rank))}) {
    const std::string got(lookUp(header, key));
    if (got != expected)
      return dataLoss("expected '%s' to be %s in its metadata, but got '%s'",
                      key, expected.c_str(), got.c_str());
  }
  *description = lookUp(header, statesKey);
  if (hashText(*description) != manifest.statesHash)
    return dataLoss(
        "expected '%s' in its metadata to have the hash %s, but got "
        "%s",
        statesKey, printHash(manifest.statesHash).c_str(),
        printHash(hashText(*description)).c_str());
  return Status::ok();
}

Status ddphook::readChecksums(const SafetensorsHeader &header,
                              const std::vector<PlanState> &states,
                              std::vector<uint64_t> *checksums) {
  checksums->clear();
  for (const PlanState &state : states) {
    uint64_t checksum;
    if (!parseHash(lookUp(header, checksumPrefix + state.name), &checksum))
      return dataLoss("expected a checksum of state '%s' in its metadata",
                      state.name.c_str());
    checksums->push_back(checksum);
  }
  return Status::ok();
}

/// Appends a list; `append` appends each element.
template <typename T, typename Function>
static void appendList(std::string *text, const std::vector<T> &list,
                       Function &&append) {
  *text += '[';
  for (const T &element : list) {
    if (&element != list.data())
      *text += ',';
    append(element);
  }
  *text += ']';
}

static void appendState(std::string *text, const PlanState &state) {
  auto appendName = [&](const std::string &name) {
    appendJsonText(text, name);
  };
  *text += "{\"name\":";
  appendName(state.name);
  *text += ",\"dtype\":\"";
  *text += stateDtypeName(state.dtype);
  *text += "\",\"shapes\":";
  appendList(text, state.shapes, [&](const Shape &shape) {
    appendList(text, shape,
               [&](int64_t size) { *text += std::to_string(size); });
  });
  *text += ",\"role\":";
  appendName(state.role);
  *text += ",\"gradients\":";
  appendList(text, state.gradients, [&](const std::vector<std::string> &names) {
    appendList(text, names, appendName);
  });
  *text += ",\"method\":";
  appendName(state.method);
  *text += ",\"placement\":\"";
  *text +=
      state.placement == StatePlacement::Replicated ? "replicated" : "per_rank";
  *text += concat("\",\"seed\":", state.seed, "}");
}

std::string ddphook::printStates(const std::vector<PlanState> &states) {
  std::string text;
  appendList(&text, states,
             [&](const PlanState &state) { appendState(&text, state); });
  return text;
}

Status ddphook::parseStates(std::string_view text,
                            std::vector<PlanState> *states) {
  Json json;
  if (Json::parse(text, &json) != Json::Result::Parsed)
    return dataLoss("malformed description of states: it is not JSON text");
  Status failure;
  Reader top(json, &failure, "description of states");
  states->clear();
  Names names;
  int64_t end = 0;
  top.forEach([&](const Reader &at) {
    if (!at.expectKeys({"name", "dtype", "shapes", "role", "gradients",
                        "method", "placement", "seed"}))
      return;
    PlanState state;
    state.bytes = readDescription(at, &state);
    names.add(at["name"], state.name);
    state.seed = at["seed"].integer(0, int64_t(UINT32_MAX));
    state.offset = end;
    if (state.bytes > maxBytes - end)
      at["shapes"].fail(
          concat("states of at most ", maxBytes, " bytes together"));
    end += state.bytes;
    states->push_back(std::move(state));
  });
  if (failure.isOk())
    checkRoles(top, *states);
  return failure;
}

uint64_t ddphook::hashProgram(const std::vector<PlanState> &states) {
  // Names contain no zero byte, so different lines cannot become equal.
  std::vector<std::string> lines;
  for (const PlanState &state : states) {
    const std::string begin =
        concat(state.role, '\0', stateDtypeName(state.dtype), '\0',
               state.method, '\0', state.seed, '\0');
    for (const std::vector<std::string> &list : state.gradients)
      for (const std::string &name : list)
        lines.push_back(concat(begin, name, '\0'));
    if (state.role.empty()) {
      lines.push_back(begin);
      appendState(&lines.back(), state);
      lines.back() += '\0';
    }
  }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string &line : lines)
    text += line;
  return hashText(text);
}
