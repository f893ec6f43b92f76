// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "trace/recorder.h"

#include <algorithm>
#include <utility>

using namespace ddphook;
using namespace ddphook::trace;

static thread_local CollectiveCall *callUnderWay = nullptr;
static thread_local Lane laneOfThread = Lane::Steps;

void Recorder::open(std::unique_ptr<RankRecording> newPart) {
  recording = std::move(newPart);
  ranges = Ranges::create();
  for (Lane lane : {Lane::Steps, Lane::Communication}) {
    ring(lane) = recording->ring(lane);
    ring(lane).setRanges(ranges.get());
  }
  // Add them in the order of their numbers.
  addName(Name(Category::Kernel, "other"));
  addName(Name(Category::Wait, "wait"));
#define DDPHOOK_FUNCTION(name) addName(Name(Category::Kernel, #name));
#include "ddphook/runtime/functions.inc"
  on.store(true, relaxed);
}

uint32_t Recorder::addName(const Name &name) {
  if (!recording)
    return otherName;
  const uint32_t number = recording->addName(name);
  // The number is that of another name if there is no space for more.
  if (ranges && number == rangeNames) {
    ranges->add(name.text);
    ++rangeNames;
  }
  return number;
}

void Recorder::setPlace(uint32_t name, CollectivePlace place) {
  std::lock_guard<std::mutex> lock(placesMutex);
  places[name] = std::move(place);
}

CollectivePlace Recorder::placeOf(uint32_t name) const {
  std::lock_guard<std::mutex> lock(placesMutex);
  auto found = places.find(name);
  return found == places.end() ? CollectivePlace() : found->second;
}

void Recorder::beginStep(uint32_t entry) {
  ++stepNumber;
  isStepOpen = isOn();
  if (!isStepOpen)
    return;
  progress().step.store(stepNumber, relaxed);
  Ring &steps = ring(Lane::Steps);
  steps.setStep(static_cast<uint32_t>(stepNumber));
  steps.begin(entry);
}

int64_t Recorder::endStep() {
  return std::exchange(isStepOpen, false) ? ring(Lane::Steps).end() : 0;
}

uint64_t Recorder::nextCollective() {
  progress().called.store(++callNumber, relaxed);
  return callNumber;
}

CollectiveCall::CollectiveCall(Recorder &recorder, CollectiveNames &names)
    : recorder(recorder), names(names), number(0), begin(0) {
  if (!recorder.isOn())
    return;
  number = recorder.nextCollective();
  begin = now();
  callUnderWay = this;
  recorder.ring(Lane::Steps).pushRange(names.of(names.kind));
}

CollectiveCall::~CollectiveCall() {
  if (callUnderWay != this)
    return;
  callUnderWay = nullptr;
  recorder.ring(Lane::Steps).popRange();
  if (isTaken)
    return;
  Progress &progress = recorder.progress();
  progress.begun.store(number, relaxed);
  progress.ended.store(number, relaxed);
  Ring &steps = recorder.ring(Lane::Steps);
  steps.beginEvent(names.of(names.kind), begin);
  const int64_t time = steps.endEvent();
  names.times.count.fetch_add(1, relaxed);
  names.times.total.fetch_add(time, relaxed);
}

CollectiveTag CollectiveCall::take(CollectiveKind kind) {
  CollectiveCall *call = callUnderWay;
  if (!call)
    return {};
  call->isTaken = true;
  return {&call->recorder,      &call->names.times,
          call->names.of(kind), static_cast<uint32_t>(call->recorder.steps()),
          call->number,         kind == call->names.last};
}

CommunicationThread::CommunicationThread() {
  laneOfThread = Lane::Communication;
}
CommunicationThread::~CommunicationThread() { laneOfThread = Lane::Steps; }

CollectiveScope::CollectiveScope(const CollectiveTag &tag) : tag(tag) {
  if (!tag.recorder || !tag.recorder->isOn())
    return;
  Progress &progress = tag.recorder->progress();
  progress.begunName.store(tag.name, relaxed);
  progress.begun.store(tag.number, std::memory_order_release);
  ring = &tag.recorder->ring(laneOfThread);
  outer = std::exchange(collectiveRing, ring);
  waitedBefore = ring->totalWaited();
  // The thread of steps already has that step.
  if (laneOfThread == Lane::Communication)
    ring->setStep(tag.step);
  // On the thread of steps, the call or a wait is a range already.
  hasRange = laneOfThread == Lane::Communication;
  if (hasRange)
    ring->pushRange(tag.name);
  ring->beginEvent(tag.name);
}

CollectiveScope::~CollectiveScope() {
  if (!ring)
    return;
  collectiveRing = outer;
  const int64_t waited =
      std::max(ring->totalWaited() - waitedBefore, waitedElsewhere);
  if (hasRange)
    ring->popRange();
  const int64_t time = ring->endEvent(waited);
  tag.times->count.fetch_add(1, relaxed);
  tag.times->total.fetch_add(time, relaxed);
  tag.times->waited.fetch_add(waited, relaxed);
}

void CollectiveScope::succeed() {
  if (ring && tag.isLast)
    tag.recorder->progress().ended.store(tag.number, relaxed);
}
