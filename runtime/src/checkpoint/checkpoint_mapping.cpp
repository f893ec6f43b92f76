// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Splits both sides into pieces and matches them by hashes of their keys, so
// that time is proportional to the number of pieces. Keys are views of the
// states' names, of which there may be tens of thousands.

#include "checkpoint/checkpoint_mapping.h"

#include "checkpoint/checkpoint_files.h"
#include "files/safetensors.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

using namespace ddphook;

namespace {

struct NameList {
  const std::string *data = nullptr;
  size_t count = 0;

  NameList() = default;
  NameList(const std::string &name) : data(&name), count(1) {}
  NameList(const std::vector<std::string> &names)
      : data(names.data()), count(names.size()) {}

  const std::string *begin() const { return data; }
  const std::string *end() const { return data + count; }
};

/// A role and its gradients, or the name of a state without a role.
struct PieceKey {
  std::string_view role;
  NameList names;

  bool operator==(const PieceKey &other) const {
    return role == other.role &&
           std::equal(names.begin(), names.end(), other.names.begin(),
                      other.names.end());
  }

  struct Hash {
    size_t operator()(const PieceKey &key) const {
      size_t hash = std::hash<std::string_view>()(key.role);
      for (const std::string &name : key.names)
        hash = hash * 31 + std::hash<std::string>()(name);
      return hash;
    }
  };
};

/// Tensors of a state that belong together.
struct Piece {
  size_t state = 0;
  size_t firstShape = 0, numShapes = 0;
  int64_t offset = 0, bytes = 0; // in the state
  PieceKey key;
};

class Mapper {
public:
  Mapper(const std::vector<PlanState> &saved,
         const std::vector<PlanState> &states, CheckpointMapping *mapping)
      : saved(saved), states(states), mapping(*mapping) {}

  void run();

private:
  void indexSaved();
  void takeShared(size_t state);
  void takePieces(size_t state);
  bool canTake(const Piece &wanted, const Piece &found);
  void lack(size_t state, std::string what);
  std::string explainMissing(const Piece &wanted) const;
  void layOut();

  const std::vector<PlanState> &saved;
  const std::vector<PlanState> &states;
  CheckpointMapping &mapping;

  /// The pieces of the saved states.
  std::vector<Piece> pieces;
  std::unordered_map<PieceKey, size_t, PieceKey::Hash> pieceNumbers;
  /// The saved states of gradients, by role and gradient.
  std::unordered_map<PieceKey, size_t, PieceKey::Hash> ofGradient;
  /// The module's piece that takes each saved piece.
  std::vector<std::optional<Piece>> takers;
  std::vector<bool> isSharedTaken;
};

} // namespace

static std::vector<Piece> getPieces(const std::vector<PlanState> &states,
                                    size_t number) {
  const PlanState &state = states[number];
  std::vector<Piece> pieces;
  if (state.gradients.size() <= 1) {
    Piece whole = {number, 0, state.shapes.size(), 0, state.bytes, {}};
    // A state of no gradients has no piece that a gradient could need.
    if (state.role.empty())
      whole.key = {"", state.name};
    else if (!state.gradients.empty())
      whole.key = {state.role, state.gradients[0]};
    if (whole.key.names.count > 0)
      pieces.push_back(whole);
    return pieces;
  }
  int64_t offset = 0;
  for (size_t i = 0; i < state.gradients.size(); ++i) {
    uint64_t bytes = 0;
    // This cannot overflow, because the whole state fits.
    (void)tensorBytes(state.shapes[i], stateDtypeSize(state.dtype), bytes);
    pieces.push_back({number,
                      i,
                      1,
                      offset,
                      static_cast<int64_t>(bytes),
                      {state.role, state.gradients[i]}});
    offset += static_cast<int64_t>(bytes);
  }
  return pieces;
}

/// Returns a text such as "state 'powersgd.iter' of gradient 'w'".
static std::string describePiece(const PlanState &state, NameList gradients) {
  if (state.role.empty())
    return "state " + printName(state.name);
  std::string text = "state " + printName(state.role) + " of gradient" +
                     (gradients.count > 1 ? "s " : " ") +
                     printName(gradients.data[0]);
  for (size_t i = 1; i < gradients.count && i < 4; ++i)
    text += ", " + printName(gradients.data[i]);
  if (gradients.count > 4)
    text += concat(" and ", gradients.count - 4, " more");
  return text;
}

static std::string describe(const std::vector<PlanState> &states,
                            const Piece &piece) {
  const PlanState &state = states[piece.state];
  return describePiece(state, piece.key.names);
}

static std::string printType(const PlanState &state, const Piece &piece) {
  std::string text = stateDtypeName(state.dtype);
  for (size_t i = 0; i < piece.numShapes; ++i)
    text += " " + printShape(state.shapes[piece.firstShape + i]);
  return text;
}

void Mapper::indexSaved() {
  for (size_t i = 0; i < saved.size(); ++i) {
    const PlanState &state = saved[i];
    for (const std::vector<std::string> &list : state.gradients)
      for (const std::string &gradient : list)
        ofGradient.emplace(PieceKey{state.role, gradient}, i);
    if (state.isShared())
      continue;
    for (const Piece &piece : getPieces(saved, i)) {
      pieceNumbers.emplace(piece.key, pieces.size());
      pieces.push_back(piece);
    }
  }
  takers.resize(pieces.size());
  isSharedTaken.resize(saved.size(), false);
}

void Mapper::lack(size_t state, std::string what) {
  mapping.lacksPart[state] = true;
  mapping.missing.push_back(std::move(what));
}

/// Every gradient brings the counter that it had.
void Mapper::takeShared(size_t number) {
  const PlanState &state = states[number];
  std::vector<SharedSource> &sources = mapping.shared[number];
  std::unordered_set<size_t> known;
  for (const std::string &gradient : state.gradients[0]) {
    auto found = ofGradient.find({state.role, gradient});
    if (found == ofGradient.end()) {
      lack(number, "it has no " + describePiece(state, gradient));
      continue;
    }
    const PlanState &source = saved[found->second];
    if (source.dtype != state.dtype || source.shapes != state.shapes ||
        source.seed != state.seed) {
      lack(number, "its " + describePiece(state, gradient) +
                       (source.seed != state.seed
                            ? concat(" was seeded with ", source.seed,
                                     ", but the module's with ", state.seed)
                            : " is of another type"));
      continue;
    }
    isSharedTaken[found->second] = true;
    if (known.insert(found->second).second)
      sources.push_back({found->second, gradient});
  }
  mapping.lacksAll[number] = sources.empty();
}

static bool isSameType(const PlanState &a, const Piece &pieceOfA,
                       const PlanState &b, const Piece &pieceOfB) {
  return a.dtype == b.dtype && pieceOfA.numShapes == pieceOfB.numShapes &&
         std::equal(a.shapes.begin() + long(pieceOfA.firstShape),
                    a.shapes.begin() +
                        long(pieceOfA.firstShape + pieceOfA.numShapes),
                    b.shapes.begin() + long(pieceOfB.firstShape));
}

/// True if the values mean the same in both; otherwise reports the difference.
bool Mapper::canTake(const Piece &wanted, const Piece &found) {
  const PlanState &state = states[wanted.state];
  const PlanState &source = saved[found.state];
  std::string difference;
  if (source.method != state.method)
    difference = " was kept for '" + source.method + "', but the module has '" +
                 state.method + "'";
  else if (!isSameType(source, found, state, wanted))
    difference = " is " + printType(source, found) + ", but the module's is " +
                 printType(state, wanted);
  else if (source.seed != state.seed)
    difference = concat(" was seeded with ", source.seed,
                        ", but the module's with ", state.seed);
  else if (source.placement == StatePlacement::PerRank &&
           state.placement == StatePlacement::Replicated)
    difference =
        " differs between ranks, but the module's is the same on all ranks";
  if (!difference.empty())
    lack(wanted.state, "its " + describe(states, wanted) + difference);
  return difference.empty();
}

/// Explains a missing piece whose gradients have that state in other groups.
std::string Mapper::explainMissing(const Piece &wanted) const {
  const auto &[role, gradients] = wanted.key;
  for (const std::string &gradient : gradients) {
    auto found = ofGradient.find({role, gradient});
    if (role.empty() || found == ofGradient.end())
      continue;
    for (const std::vector<std::string> &list : saved[found->second].gradients)
      for (const std::string &other : list)
        if (other == gradient && (list.size() > 1 || gradients.count > 1))
          return "its " + describePiece(saved[found->second], list) +
                 " is indivisible, and the module's covers other gradients: " +
                 describe(states, wanted);
  }
  return "it has no " + describe(states, wanted);
}

void Mapper::takePieces(size_t number) {
  bool isAnyTaken = false, isAnyWanted = false;
  for (Piece &wanted : getPieces(states, number)) {
    isAnyWanted = true;
    auto found = pieceNumbers.find(wanted.key);
    if (found == pieceNumbers.end()) {
      lack(number, explainMissing(wanted));
    } else if (canTake(wanted, pieces[found->second])) {
      takers[found->second] = wanted;
      isAnyTaken = true;
    }
  }
  mapping.lacksAll[number] = isAnyWanted && !isAnyTaken;
}

/// Lays out each saved state's runs. Pieces that remain neighbors form one run.
void Mapper::layOut() {
  mapping.runs.resize(saved.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece &piece = pieces[i];
    std::vector<SavedRun> &runs = mapping.runs[piece.state];
    SavedRun run;
    run.bytes = piece.bytes;
    if (takers[i]) {
      run.state = takers[i]->state;
      run.offset = takers[i]->offset;
    }
    SavedRun *last = runs.empty() ? nullptr : &runs.back();
    if (last && last->state == run.state &&
        (!run.state || last->offset + last->bytes == run.offset))
      last->bytes += run.bytes;
    else
      runs.push_back(run);
  }
}

void Mapper::run() {
  mapping = {};
  mapping.lacksPart.resize(states.size(), false);
  mapping.lacksAll.resize(states.size(), false);
  indexSaved();
  for (size_t i = 0; i < states.size(); ++i)
    if (states[i].isShared())
      takeShared(i);
    else
      takePieces(i);
  for (size_t i = 0; i < pieces.size(); ++i)
    if (!takers[i])
      mapping.dropped.push_back(describe(saved, pieces[i]));
  for (size_t i = 0; i < saved.size(); ++i)
    if (saved[i].isShared() && !isSharedTaken[i])
      mapping.dropped.push_back(describePiece(saved[i], saved[i].gradients[0]));
  layOut();
}

Status ddphook::mapStates(const std::vector<PlanState> &saved,
                          const std::vector<PlanState> &states, bool isPartial,
                          CheckpointMapping *mapping) {
  Mapper(saved, states, mapping).run();
  // Report missing pieces first, because they often cause the left-over ones.
  const bool isMissing = !mapping->missing.empty();
  const std::vector<std::string> &list =
      isMissing ? mapping->missing : mapping->dropped;
  if (isPartial || list.empty())
    return Status::ok();
  std::string first =
      (isMissing ? "" : "the module has no counterpart for its ") +
      list.front();
  if (list.size() > 1)
    first += concat(" (and ", list.size() - 1, " more)");
  return Status(DDPHOOK_PLAN_MISMATCH, first);
}

/// Prints a counter's number, or a generator's checksum.
static std::string printValue(const std::vector<char> &value) {
  int64_t count = 0;
  if (value.size() != sizeof(count))
    return printHash(hashText({value.data(), value.size()}));
  std::memcpy(&count, value.data(), sizeof(count));
  return std::to_string(count);
}

Status ddphook::placeShared(
    const CheckpointMapping &mapping, const std::vector<PlanState> &states,
    const std::map<size_t, std::vector<char>> &values,
    const std::function<void(size_t, const std::vector<char> &)> &place) {
  for (const auto &[number, sources] : mapping.shared) {
    for (const SharedSource &source : sources) {
      const std::vector<char> &value = values.at(source.saved);
      const std::vector<char> &first = values.at(sources[0].saved);
      if (value != first)
        return error(DDPHOOK_PLAN_MISMATCH,
                     "the module has one state '%s' for gradients '%s' and "
                     "'%s', but their saved values differ: %s and %s",
                     states[number].role.c_str(), sources[0].gradient.c_str(),
                     source.gradient.c_str(), printValue(first).c_str(),
                     printValue(value).c_str());
    }
    if (!sources.empty())
      place(number, values.at(sources[0].saved));
  }
  return Status::ok();
}
