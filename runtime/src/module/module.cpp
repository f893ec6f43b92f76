//===- module.cpp - a loaded compiled module ------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What compiled code calls in a step. Its calls return nothing: failures are
// kept until the step ends.
//
//===----------------------------------------------------------------------===//
#include "module/module.h"

#include "base/floating_point.h"
#include "job/context.h"

using namespace ddphook;

ddphook_module::~ddphook_module() {
  // A step that never ended may have left collectives running; they end by
  // their deadlines, and use memory that is freed below.
  if (lastTicket > 0) {
    ddphook_backend_error_t message = {};
    (void)context.backend().wait(context.device(), lastTicket, &message);
  }
  // What steps on a caller's stream began uses that memory too.
  ddphook_backend_error_t message = {};
  (void)context.backend().synchronize(context.device(), &message);
  destroyMatrices();
  if (kernels)
    context.backend().kernels_unload(context.device(), kernels);
  for (ModuleGroup &group : groups)
    if (group.communicator)
      context.backend().communicator_destroy(context.device(),
                                             group.communicator);
  if (isPublished)
    *compiled->handle = nullptr;
}

void ddphook_module::failStep(Status status) {
  if (stepFailure.isOk() && !status.isOk())
    stepFailure = context.fail(std::move(status));
}

Status ddphook_module::enter(int32_t entry) {
  if (context.hasFailed())
    return context.failure();
  if (currentEntry >= 0)
    return error(DDPHOOK_FAILED_PRECONDITION,
                 "entry point '%s' is running already",
                 plan.entries[static_cast<size_t>(currentEntry)].name.c_str());
  if (entry < 0 || static_cast<size_t>(entry) >= plan.entries.size())
    return error(DDPHOOK_INVALID_ARGUMENT,
                 "expected an entry point from 0 to %zu, but got %d",
                 plan.entries.size() - 1, entry);
  currentEntry = entry;
  stepFailure = Status::ok();
  return Status::ok();
}

Status ddphook_module::leave() {
  if (currentEntry < 0)
    return error(DDPHOOK_FAILED_PRECONDITION, "no entry point is running");
  if (lastTicket > 0)
    wait(lastTicket);
  lastTicket = 0;
  if (!context.hasCallersStream() && stepFailure.isOk()) {
    ddphook_backend_error_t message = {};
    finishCall(context.backend().synchronize(context.device(), &message),
               message);
  }
  currentEntry = -1;
  if (stepFailure.isOk() && context.hasFailed())
    stepFailure = context.failure();
  if (stepFailure.isOk())
    ++stats.steps;
  return stepFailure;
}

bool ddphook_module::canRun(const char *call) {
  if (!stepFailure.isOk())
    return false;
  if (context.hasFailed())
    stepFailure = context.failure();
  else if (currentEntry < 0)
    failStep(error(DDPHOOK_FAILED_PRECONDITION,
                   "%s was called outside of an entry point", call));
  return stepFailure.isOk();
}

bool ddphook_module::checkArrays(const char *call, const void *in,
                                 const void *out, int64_t count) {
  if (count < 0)
    failStep(error(DDPHOOK_INVALID_ARGUMENT,
                   "%s: expected a count of at least 0, but got %lld", call,
                   static_cast<long long>(count)));
  else if (count > 0 && (!in || !out))
    failStep(error(DDPHOOK_INVALID_ARGUMENT,
                   "%s: expected two arrays, but got a null pointer", call));
  return stepFailure.isOk();
}

bool ddphook_module::checkDtype(const char *call, int32_t dtype) {
  if (!dtypeFromAbi(dtype))
    failStep(error(DDPHOOK_INVALID_ARGUMENT,
                   "%s: expected an element type from 0 to 3, but got %d", call,
                   dtype));
  return stepFailure.isOk();
}

bool ddphook_module::checkGroup(const char *call, int32_t group) {
  if (group < 0 || static_cast<size_t>(group) >= groups.size())
    failStep(error(DDPHOOK_INVALID_ARGUMENT,
                   "%s: expected one of %zu process groups, but got %d", call,
                   groups.size(), group));
  return stepFailure.isOk();
}

bool ddphook_module::checkOperands(const char *call, const void *a,
                                   const void *b, const void *out,
                                   int64_t count, int32_t dtype) {
  return canRun(call) && checkArrays(call, a, out, count) &&
         checkArrays(call, b, out, count) && checkDtype(call, dtype);
}

void ddphook_module::finishCall(ddphook_status_t code,
                                const ddphook_backend_error_t &error) {
  if (code != DDPHOOK_OK)
    failStep(fromBackendError(code, error));
}

void *ddphook_module::stateMemory(int32_t state) {
  if (state >= 0 && static_cast<size_t>(state) < plan.states.size())
    return states.get(static_cast<size_t>(state));
  failStep(error(DDPHOOK_INVALID_ARGUMENT,
                 "ddphook_rt_state: expected one of %zu states, but got %d",
                 plan.states.size(), state));
  return nullptr;
}

const PlanCollective *
ddphook_module::beginCollective(int32_t number, const void *in, const void *out,
                                ddphook_all_reduce_t *operation,
                                ddphook_communicator_t **group) {
  const char *call = "ddphook_rt_all_reduce";
  if (!canRun(call))
    return nullptr;
  if (number < 0 || static_cast<size_t>(number) >= plan.collectives.size()) {
    failStep(error(DDPHOOK_INVALID_ARGUMENT,
                   "%s: expected one of %zu collectives, but got %d", call,
                   plan.collectives.size(), number));
    return nullptr;
  }
  const PlanCollective &collective =
      plan.collectives[static_cast<size_t>(number)];
  if (!checkArrays(call, in, out, collective.count))
    return nullptr;
  operation->count = collective.count;
  operation->dtype = static_cast<int32_t>(collective.dtype);
  operation->wire_dtype =
      collective.wireDtype ? static_cast<int32_t>(*collective.wireDtype) : -1;
  operation->divide = collective.divide;
  *group = groups[collective.group].communicator;
  return &collective;
}

static void count(ddphook_stats_t &stats, const PlanCollective &collective) {
  ++stats.collectives;
  stats.wire_bytes += static_cast<uint64_t>(collective.wireBytes());
  stats.gradient_bytes += static_cast<uint64_t>(collective.memoryBytes());
}

void ddphook_module::allReduce(int32_t number, const void *in, void *out) {
  ddphook_all_reduce_t operation = {};
  ddphook_communicator_t *group = nullptr;
  const PlanCollective *collective =
      beginCollective(number, in, out, &operation, &group);
  if (!collective)
    return;
  DefaultFloatingPoint environment;
  ddphook_backend_error_t message = {};
  finishCall(context.backend().all_reduce(context.device(), group, &operation,
                                          in, out, &message),
             message);
  if (stepFailure.isOk())
    count(stats, *collective);
}

int64_t ddphook_module::startAllReduce(int32_t number, const void *in,
                                       void *out) {
  ddphook_all_reduce_t operation = {};
  ddphook_communicator_t *group = nullptr;
  const PlanCollective *collective =
      beginCollective(number, in, out, &operation, &group);
  if (!collective)
    return 0;
  DefaultFloatingPoint environment;
  ddphook_backend_error_t message = {};
  int64_t ticket = 0;
  finishCall(context.backend().all_reduce_start(context.device(), group,
                                                &operation, in, out, &ticket,
                                                &message),
             message);
  if (!stepFailure.isOk())
    return 0;
  lastTicket = ticket;
  count(stats, *collective);
  return ticket;
}

void ddphook_module::wait(int64_t ticket) {
  // Also after a failure: the buffers are in use until the collective ended.
  if (lastTicket == 0) {
    if (canRun("ddphook_rt_wait"))
      failStep(error(DDPHOOK_INVALID_ARGUMENT,
                     "ddphook_rt_wait: nothing was started"));
    return;
  }
  ddphook_backend_error_t message = {};
  finishCall(context.backend().wait(context.device(),
                                    stepFailure.isOk() ? ticket : lastTicket,
                                    &message),
             message);
}

void ddphook_module::copy(const void *in, void *out, int64_t bytes) {
  if (!canRun("ddphook_rt_copy") ||
      !checkArrays("ddphook_rt_copy", in, out, bytes) || bytes == 0)
    return;
  ddphook_backend_error_t message = {};
  finishCall(context.backend().memory_copy(context.device(), out, in,
                                           static_cast<uint64_t>(bytes),
                                           &message),
             message);
}

Status ddphook_module::loadKernels() {
  if (plan.kernels.empty())
    return Status::ok();
  const ddphook_backend_t &backend = context.backend();
  if (!backend.kernels_load || !backend.kernels_unload || !backend.launch)
    return error(DDPHOOK_UNSUPPORTED,
                 "the module has kernels of a device, which the backend '%s' "
                 "cannot run",
                 backend.name);
  std::vector<const char *> names;
  for (const std::string &name : plan.kernels)
    names.push_back(name.c_str());
  ddphook_backend_error_t message = {};
  return fromBackendError(
      backend.kernels_load(
          context.device(), compiled->device_code, compiled->device_code_size,
          names.data(), static_cast<int64_t>(names.size()), &kernels, &message),
      message);
}

void ddphook_module::launch(int32_t kernel, const int64_t *grid,
                            const int64_t *block, int64_t sharedBytes,
                            void **arguments) {
  const char *call = "ddphook_rt_launch";
  if (!canRun(call))
    return;
  if (kernel < 0 || static_cast<size_t>(kernel) >= plan.kernels.size())
    return failStep(error(DDPHOOK_INVALID_ARGUMENT,
                          "%s: expected one of %zu kernels, but got %d", call,
                          plan.kernels.size(), kernel));
  ddphook_backend_error_t message = {};
  finishCall(context.backend().launch(context.device(), kernels, kernel, grid,
                                      block, sharedBytes, arguments, &message),
             message);
}

void ddphook_module::cast(const void *in, int32_t inDtype, void *out,
                          int32_t outDtype, int64_t count) {
  const char *call = "ddphook_rt_cast";
  if (!canRun(call) || !checkArrays(call, in, out, count) ||
      !checkDtype(call, inDtype) || !checkDtype(call, outDtype))
    return;
  DefaultFloatingPoint environment;
  ddphook_backend_error_t message = {};
  finishCall(context.backend().cast(context.device(), in, inDtype, out,
                                    outDtype, count, &message),
             message);
}

void ddphook_module::divideByWorld(int32_t group, const void *in, void *out,
                                   int64_t count, int32_t dtype) {
  const char *call = "ddphook_rt_divide_by_world";
  if (!canRun(call) || !checkArrays(call, in, out, count) ||
      !checkDtype(call, dtype))
    return;
  if (!checkGroup(call, group))
    return;
  DefaultFloatingPoint environment;
  ddphook_backend_error_t message = {};
  finishCall(context.backend().divide(context.device(), in, out, dtype, count,
                                      groups[static_cast<size_t>(group)].size(),
                                      &message),
             message);
}

void ddphook_module::scale(double factor, const void *in, void *out,
                           int64_t count, int32_t dtype) {
  const char *call = "ddphook_rt_scale";
  if (!canRun(call) || !checkArrays(call, in, out, count) ||
      !checkDtype(call, dtype))
    return;
  DefaultFloatingPoint environment;
  ddphook_backend_error_t message = {};
  finishCall(context.backend().scale(context.device(), factor, in, out, dtype,
                                     count, &message),
             message);
}

void ddphook_module::add(const void *a, const void *b, void *out, int64_t count,
                         int32_t dtype) {
  if (!checkOperands("ddphook_rt_add", a, b, out, count, dtype))
    return;
  DefaultFloatingPoint environment;
  ddphook_backend_error_t message = {};
  finishCall(context.backend().add(context.device(), a, b, out, dtype, count,
                                   &message),
             message);
}

void ddphook_module::subtract(const void *a, const void *b, void *out,
                              int64_t count, int32_t dtype) {
  if (!checkOperands("ddphook_rt_subtract", a, b, out, count, dtype))
    return;
  DefaultFloatingPoint environment;
  ddphook_backend_error_t message = {};
  finishCall(context.backend().subtract(context.device(), a, b, out, dtype,
                                        count, &message),
             message);
}
