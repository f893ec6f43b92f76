// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions that compiled code calls in a step. They return nothing:
// failures are kept until the step ends.

#include "module/module.h"

#include "job/context.h"
#include "module/device_call.h"

using namespace ddphook;

ddphook_module::~ddphook_module() {
  if (isPublished && context.observed().hasMetrics() &&
      !context.observed().isSampled(stats.steps))
    context.observed().write([this] { return sampleMetrics(); });
  // A step that never ended may have left collectives running, which end by
  // their deadlines and use memory that is freed below.
  if (lastTicket > 0)
    context.call(&ddphook_backend_t::wait, lastTicket).ignore();
  // Work of steps on a caller's stream may still use this memory.
  context.call(&ddphook_backend_t::synchronize).ignore();
  destroyMatrices();
  if (kernels)
    context.backend().kernels_unload(context.device(), kernels);
  groups.clear();
  if (isPublished)
    *compiled->handle = nullptr;
}

void ddphook_module::failStep(Status status) {
  if (stepFailure.isOk() && !status.isOk())
    stepFailure = context.failInStep(std::move(status));
}

Status ddphook_module::enter(int32_t entry) {
  if (context.hasFailed())
    return context.failure();
  if (currentEntry >= 0)
    return failedPrecondition("entry point '%s' is running already",
                              plan.entries[currentEntry].name.c_str());
  if (entry < 0 || static_cast<size_t>(entry) >= plan.entries.size())
    return invalid("expected an entry point from 0 to %zu, but got %d",
                   plan.entries.size() - 1, entry);
  currentEntry = entry;
  stepFailure = Status::ok();
  isErrorMeasured =
      measuresErrors() && context.observed().isSampled(stats.steps + 1);
  if (isErrorMeasured)
    compressionError.begin();
  context.recorder().beginStep(stepNames[entry]);
  return Status::ok();
}

Status ddphook_module::leave() {
  if (currentEntry < 0)
    return failedPrecondition("no entry point is running");
  if (lastTicket > 0)
    wait(lastTicket);
  lastTicket = 0;
  if (!context.hasCallersStream() && stepFailure.isOk())
    failStep(context.call(&ddphook_backend_t::synchronize));
  currentEntry = -1;
  const int64_t time = context.recorder().endStep();
  countBuckets();
  if (stepFailure.isOk() && context.hasFailed())
    stepFailure = context.failure();
  startedCollectives.clear();
  if (!stepFailure.isOk())
    return stepFailure;
  stepTime += time;
  if (context.observed().isSampled(++stats.steps))
    context.observed().write([this] { return sampleMetrics(); });
  return stepFailure;
}

bool ddphook_module::canRun(const char *call) {
  if (!stepFailure.isOk())
    return false;
  if (context.hasFailed())
    stepFailure = context.failure();
  else if (currentEntry < 0)
    failStep(
        failedPrecondition("%s was called outside of an entry point", call));
  return stepFailure.isOk();
}

void *ddphook_module::stateMemory(int32_t state) {
  if (state >= 0 && static_cast<size_t>(state) < plan.states.size())
    return states.get(static_cast<size_t>(state));
  failStep(invalid("ddphook_rt_state: expected one of %zu states, but got %d",
                   plan.states.size(), state));
  return nullptr;
}

static bool overlap(const void *a, int64_t aBytes, const void *b,
                    int64_t bBytes) {
  auto first = reinterpret_cast<uintptr_t>(a);
  auto second = reinterpret_cast<uintptr_t>(b);
  return aBytes > 0 && bBytes > 0 &&
         first < second + static_cast<uintptr_t>(bBytes) &&
         second < first + static_cast<uintptr_t>(aBytes);
}

const PlanCollective *ddphook_module::beginCollective(const char *call,
                                                      int32_t number,
                                                      const void *in,
                                                      const void *out) {
  if (!canRun(call))
    return nullptr;
  if (number < 0 || static_cast<size_t>(number) >= plan.collectives.size()) {
    failStep(invalid("%s: expected one of %zu collectives, but got %d", call,
                     plan.collectives.size(), number));
    return nullptr;
  }
  const PlanCollective &collective = plan.collectives[number];
  if (!checkCall(*this, call, role::Count{collective.count, "count"},
                 role::In{in, "in"}, role::In{out, "out"}))
    return nullptr;
  const int64_t ranks = groups[collective.group].size();
  const CollectiveKind kind = collective.collectiveKind();
  const bool isInPlace = mayBeInPlace(kind);
  if (!(in == out && isInPlace) &&
      overlap(
          in, collective.memoryBytes(ranks), out,
          collective.bytesOf(outputElements(kind, collective.count, ranks)))) {
    failStep(invalid(
        isInPlace ? "%s: expected 'out' to be the same array as 'in' or "
                    "not to overlap it, but they overlap in part"
                  : "%s: expected 'out' not to overlap 'in', but it does",
        call));
    return nullptr;
  }
  return &collective;
}

ddphook_collective_t ddphook_module::describe(const PlanCollective &collective,
                                              int64_t step) const {
  ddphook_collective_t operation = collective;
  if (collective.errorState)
    operation.error = states.get(*collective.errorState);
  if (collective.stream >= 0)
    operation.rounding = {1, 0, collective.stream, step};
  return operation;
}

void ddphook_module::runCollective(const char *call, int32_t number,
                                   const void *in, void *out, int64_t step,
                                   int64_t *ticket) {
  const PlanCollective *collective = beginCollective(call, number, in, out);
  if (!collective)
    return;
  if (ticket && collective->assignment)
    return failStep(
        invalid("%s: expected a collective of whole arrays, but the parts of "
                "collective %d are assigned to the ranks of a node",
                call, number));
  inspectOperand(number, in, step);
  int64_t started = 0;
  {
    trace::CollectiveCall recorded(context.recorder(), collectiveNames[number]);
    const ddphook_collective_t operation = describe(*collective, step);
    const ModuleGroup &group = groups[collective->group];
    failStep(collective->assignment
                 ? group.runAssigned(context, number, operation, in, out)
                 : group.run(context, operation, in, out,
                             ticket ? &started : nullptr));
  }
  // Even if only a part was started: it uses the arrays.
  lastTicket = std::max(lastTicket, started);
  if (!stepFailure.isOk())
    return;
  countCollective(number);
  if (!ticket)
    return;
  *ticket = started;
  // A step must not allocate.
  if (startedCollectives.size() < startedCollectives.capacity())
    startedCollectives.emplace_back(started, number);
}

void ddphook_module::wait(int64_t ticket) {
  // Even after a failure: buffers are in use until the collective has ended.
  if (lastTicket == 0) {
    if (canRun("ddphook_rt_wait"))
      failStep(
          invalid("ddphook_rt_wait: expected a collective that was started, "
                  "but there is none"));
    return;
  }
  trace::Scope recorded(context.recorder(), nameOfWait(ticket),
                        trace::leastWait);
  failStep(context.call(&ddphook_backend_t::wait,
                        stepFailure.isOk() ? ticket : lastTicket));
}

Status ddphook_module::loadKernels() {
  if (plan.kernels.empty())
    return Status::ok();
  const ddphook_backend_t &backend = context.backend();
  if (!backend.kernels_load || !backend.kernels_unload || !backend.launch)
    return unsupported(
        "the module has kernels of a device, which the backend '%s' "
        "cannot run",
        backend.name);
  std::vector<const char *> names;
  for (const std::string &name : plan.kernels)
    names.push_back(name.c_str());
  return context.call(&ddphook_backend_t::kernels_load, compiled->device_code,
                      compiled->device_code_size, names.data(),
                      static_cast<int64_t>(names.size()), &kernels);
}

void ddphook_module::launch(int32_t kernel, const int64_t *grid,
                            const int64_t *block, int64_t sharedBytes,
                            void **arguments) {
  const char *call = "ddphook_rt_launch";
  if (!canRun(call))
    return;
  if (kernel < 0 || static_cast<size_t>(kernel) >= plan.kernels.size())
    return failStep(invalid("%s: expected one of %zu kernels, but got %d", call,
                            plan.kernels.size(), kernel));
  callDevice(*this, call, &ddphook_backend_t::launch, kernels, int64_t{kernel},
             grid, block, sharedBytes, arguments);
}
