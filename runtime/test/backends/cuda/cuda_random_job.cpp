// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All values are whole numbers up to 2048, which halves have too: whatever adds
// them, in whatever order, comes to the same bits.

#include "backends/cuda/cuda_random_job.h"

#include "ddphook/runtime/compiled.h"

#include <algorithm>
#include <random>

using namespace ddphook::test;
using Kind = RandomStep::Kind;

namespace {

constexpr float kLargest = 2048;

/// Arrays of every rank.
using State = std::vector<std::vector<Array>>;

class Maker {
public:
  explicit Maker(uint64_t seed) : random(seed) {}
  RandomJob make();

private:
  int draw(int below) { return static_cast<int>(random() % below); }
  bool isOnce(int in) { return draw(in) == 0; }
  unsigned all() const { return (1u << job.ranks) - 1; }
  unsigned membersOf(int group) const;

  void add(RandomStep step) { job.steps.push_back(std::move(step)); }
  void writeAll();
  /// Waits for what is begun, on ranks where one of these arrays is in use.
  void waitFor(unsigned ranks, std::vector<int> arrays);
  void waitForAll();
  RandomStep drawCompute();
  bool run(const RandomStep &step, State &on) const;
  bool runCollective(const RandomStep &step, State &on) const;
  void addCompute(RandomStep step);
  void addStart();
  void addCapture();
  void addReplay();
  void addRead();
  void addStep();

  std::mt19937_64 random;
  RandomJob job;
  State state;
  /// Of each rank: arrays that something begun works on.
  std::vector<std::vector<bool>> inUse;
  /// The compute steps of every graph, and whether it is still there.
  std::vector<std::vector<RandomStep>> graphs;
  std::vector<bool> isAlive;
};

} // namespace

static bool isSmall(const Array &array) {
  return std::all_of(array.begin(), array.end(),
                     [](float value) { return value <= kLargest; });
}

unsigned Maker::membersOf(int group) const {
  unsigned bits = 0;
  for (int rank : job.groups[static_cast<size_t>(group)])
    bits |= 1u << rank;
  return bits;
}

void Maker::waitFor(unsigned ranks, std::vector<int> arrays) {
  unsigned waiting = 0;
  for (int rank = 0; rank < job.ranks; ++rank) {
    std::vector<bool> &used = inUse[static_cast<size_t>(rank)];
    const bool isUsed =
        std::any_of(arrays.begin(), arrays.end(), [&](int array) {
          return used[static_cast<size_t>(array)];
        });
    if (!(ranks >> rank & 1) || !isUsed)
      continue;
    waiting |= 1u << rank;
    used.assign(used.size(), false);
  }
  if (waiting)
    add({Kind::Wait, waiting});
}

void Maker::waitForAll() {
  std::vector<int> arrays;
  for (int array = 0; array < RandomJob::arrayCount; ++array)
    arrays.push_back(array);
  waitFor(all(), arrays);
}

void Maker::writeAll() {
  waitForAll();
  for (int array = 0; array < RandomJob::arrayCount; ++array) {
    RandomStep step = {Kind::Write, all()};
    step.a = array;
    for (std::vector<Array> &arrays : state) {
      Array &values = arrays[static_cast<size_t>(array)];
      for (float &value : values)
        value = static_cast<float>(draw(9));
      step.values.push_back(values);
    }
    add(std::move(step));
  }
}

/// A step that computes, on the ranks that take it.
RandomStep Maker::drawCompute() {
  RandomStep step = {Kind::Scale, all()};
  step.a = draw(RandomJob::arrayCount);
  step.b = draw(RandomJob::arrayCount);
  step.c = draw(RandomJob::arrayCount);
  if (isOnce(4))
    return step;
  step.kind = Kind::Add;
  if (isOnce(4))
    return step;
  step.kind = Kind::Collective;
  step.group = draw(static_cast<int>(job.groups.size()));
  step.ranks = membersOf(step.group);
  step.collective = draw(5);
  step.asHalf = isOnce(3) && step.collective <= DDPHOOK_ALL_GATHER;
  step.root = step.collective == DDPHOOK_BROADCAST
                  ? draw(static_cast<int>(
                        job.groups[static_cast<size_t>(step.group)].size()))
                  : 0;
  // The others may be in place only where the parts are.
  if (step.collective != DDPHOOK_ALL_REDUCE && step.a == step.b)
    step.b = (step.a + 1) % RandomJob::arrayCount;
  return step;
}

bool Maker::runCollective(const RandomStep &step, State &on) const {
  const std::vector<int> &members = job.groups[static_cast<size_t>(step.group)];
  const size_t size = members.size();
  const auto count = static_cast<size_t>(job.count);
  const size_t part = count / size;
  auto in = [&](size_t member) -> const Array & {
    return on[static_cast<size_t>(members[member])]
             [static_cast<size_t>(step.a)];
  };
  Array sum(count);
  for (size_t member = 0; member < size; ++member)
    for (size_t i = 0; i < count; ++i)
      sum[i] += in(member)[i];
  // Also in a part that nobody keeps.
  if (step.collective <= DDPHOOK_REDUCE_SCATTER && !isSmall(sum))
    return false;
  std::vector<Array> results;
  for (size_t member = 0; member < size; ++member) {
    Array out =
        on[static_cast<size_t>(members[member])][static_cast<size_t>(step.b)];
    for (size_t i = 0; i < count; ++i) {
      const size_t owner = i / part, inside = i % part;
      switch (step.collective) {
      case DDPHOOK_ALL_REDUCE:
        out[i] = sum[i];
        break;
      case DDPHOOK_REDUCE_SCATTER:
        if (owner == 0)
          out[i] = sum[member * part + i];
        break;
      case DDPHOOK_ALL_GATHER:
        out[i] = in(owner)[inside];
        break;
      case DDPHOOK_ALL_TO_ALL:
        out[i] = in(owner)[member * part + inside];
        break;
      default:
        out[i] = in(static_cast<size_t>(step.root))[i];
        break;
      }
    }
    results.push_back(std::move(out));
  }
  for (size_t member = 0; member < size; ++member)
    on[static_cast<size_t>(members[member])][static_cast<size_t>(step.b)] =
        results[member];
  return true;
}

/// False where a number becomes too large.
bool Maker::run(const RandomStep &step, State &on) const {
  if (step.kind == Kind::Collective || step.kind == Kind::Start)
    return runCollective(step, on);
  const bool isScale = step.kind == Kind::Scale;
  bool isStillSmall = true;
  for (std::vector<Array> &arrays : on) {
    const Array &a = arrays[static_cast<size_t>(step.a)];
    const Array &b = arrays[static_cast<size_t>(step.b)];
    Array out(a.size());
    for (size_t i = 0; i < a.size(); ++i)
      out[i] = isScale ? 2 * a[i] : a[i] + b[i];
    isStillSmall = isStillSmall && isSmall(out);
    arrays[static_cast<size_t>(isScale ? step.b : step.c)] = std::move(out);
  }
  return isStillSmall;
}

void Maker::addCompute(RandomStep step) {
  if (State after = state; !run(step, after))
    writeAll();
  waitFor(step.ranks, {step.a, step.b, step.c});
  run(step, state);
  add(std::move(step));
}

void Maker::addStart() {
  RandomStep step = drawCompute();
  if (step.kind != Kind::Collective)
    return;
  step.kind = Kind::Start;
  addCompute(step);
  for (int rank = 0; rank < job.ranks; ++rank)
    for (int array : {step.a, step.b})
      if (step.ranks >> rank & 1)
        inUse[static_cast<size_t>(rank)][static_cast<size_t>(array)] = true;
}

void Maker::addCapture() {
  waitForAll();
  add({Kind::SetStream, all()});
  // What a capture can be begun on: streams of the caller's.
  const int streams[] = {1, 2, 4};
  job.steps.back().stream = streams[draw(3)];
  add({Kind::BeginCapture, all()});
  std::vector<RandomStep> body;
  for (int i = draw(5); i >= 0; --i) {
    RandomStep step = drawCompute();
    const bool isBegun = step.kind == Kind::Collective && isOnce(3);
    if (isBegun)
      step.kind = Kind::Start;
    body.push_back(step);
    add(step);
    if (isBegun)
      add({Kind::Wait, step.ranks});
  }
  add({Kind::EndCapture, all()});
  job.steps.back().graph = job.graphs++;
  graphs.push_back(std::move(body));
  isAlive.push_back(true);
}

void Maker::addReplay() {
  if (job.graphs == 0)
    return;
  const int graph = draw(job.graphs);
  if (!isAlive[static_cast<size_t>(graph)])
    return;
  State after = state;
  for (const RandomStep &step : graphs[static_cast<size_t>(graph)])
    if (!run(step, after))
      return;
  waitForAll();
  add({Kind::SetStream, all()});
  job.steps.back().stream = 1 + draw(RandomJob::streamCount - 1);
  add({Kind::Replay, all()});
  job.steps.back().graph = graph;
  state = std::move(after);
  if (!isOnce(4))
    return;
  add({Kind::Synchronize, all()});
  add({Kind::DropGraph, all()});
  job.steps.back().graph = graph;
  isAlive[static_cast<size_t>(graph)] = false;
}

void Maker::addRead() {
  RandomStep step = {Kind::Read, all()};
  step.a = draw(RandomJob::arrayCount);
  waitFor(step.ranks, {step.a});
  for (const std::vector<Array> &arrays : state)
    step.values.push_back(arrays[static_cast<size_t>(step.a)]);
  add(std::move(step));
}

void Maker::addStep() {
  RandomStep step = {Kind::SetStream, all()};
  switch (draw(12)) {
  case 0:
    step.stream = draw(RandomJob::streamCount);
    return add(step);
  case 1:
    step.kind = Kind::Delay;
    step.ranks = 1u << draw(job.ranks);
    step.microseconds = draw(3000);
    return add(step);
  case 2:
    step.kind = Kind::Synchronize;
    step.ranks = 1u << draw(job.ranks);
    return add(step);
  case 3:
    return isOnce(2) ? addCapture() : addReplay();
  case 4:
    step.kind = Kind::Error;
    if (isOnce(2))
      return add(step);
    step.kind = Kind::Allocate;
    step.ranks = 1u << draw(job.ranks);
    step.a = draw(RandomJob::arrayCount);
    waitFor(step.ranks, {step.a});
    return add(step);
  case 5:
    if (!isOnce(4))
      return addReplay();
    waitForAll();
    step.kind = Kind::Leave;
    step.group = draw(static_cast<int>(job.groups.size()));
    step.ranks = membersOf(step.group);
    // NCCL ends no communicator that a graph refers to.
    for (int graph = 0; graph < job.graphs; ++graph)
      if (isAlive[static_cast<size_t>(graph)])
        return;
    return add(step);
  case 6:
  case 7:
    return addRead();
  case 8:
  case 9:
    return addStart();
  default:
    return addCompute(drawCompute());
  }
}

RandomJob Maker::make() {
  job.ranks = 1 + draw(4);
  job.count = 12 * (1 + draw(isOnce(4) ? 400 : 8));
  job.groups.emplace_back();
  for (int rank = 0; rank < job.ranks; ++rank)
    job.groups[0].push_back(rank);
  for (int i = draw(4); i > 0; --i) {
    std::vector<int> members;
    for (int rank = 0; rank < job.ranks; ++rank)
      if (!isOnce(3))
        members.push_back(rank);
    if (!members.empty())
      job.groups.push_back(members);
  }
  const auto ranks = static_cast<size_t>(job.ranks);
  state.assign(ranks, {});
  for (std::vector<Array> &arrays : state)
    arrays.assign(RandomJob::arrayCount, Array(static_cast<size_t>(job.count)));
  inUse.assign(ranks, std::vector<bool>(RandomJob::arrayCount));
  writeAll();
  for (int i = 10 + draw(40); i > 0; --i)
    addStep();
  waitForAll();
  for (int i = 0; i < 3; ++i)
    addRead();
  return job;
}

RandomJob ddphook::test::makeRandomJob(uint64_t seed) {
  return Maker(seed).make();
}
