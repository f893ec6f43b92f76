// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The C ABI: null checks, the thread's last error, and a barrier for
// exceptions. Other files do the work.

#include "base/floating_point.h"
#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "job/context.h"
#include "job/settings.h"
#include "module/device_call.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

using namespace ddphook;

struct ddphook_context {
  std::unique_ptr<Context> impl;
};

/// A plain array, which needs neither memory nor a destructor. The C library
/// ends the process if it has no memory to register a destructor.
static thread_local char lastError[4096] = "";

/// Keeps a failure's message for ddphook_last_error(). Returns the code.
static ddphook_status_t publishStatus(const Status &status) {
  if (!status.isOk())
    std::snprintf(lastError, sizeof(lastError), "%s", status.message().c_str());
  return status.code();
}

/// Runs the body of a public function, which returns a Status.
template <typename Function>
static ddphook_status_t publish(Function &&function) {
  return publishStatus(withoutExceptions(std::forward<Function>(function)));
}

static Status nullArgument(const char *name) {
  return invalid("expected %s, but got a null pointer", name);
}

static Status notLoaded() {
  return failedPrecondition("the module is not loaded");
}

/// Runs the body of a public function with a context. All ranks call it: see
/// Context::failIfThrown().
template <typename Function>
static ddphook_status_t publish(ddphook_context_t *context,
                                Function &&function) {
  if (!context)
    return publishStatus(nullArgument("a context"));
  Context &impl = *context->impl;
  return publishStatus(impl.failIfThrown([&] { return function(impl); }));
}

/// Does the same for a function of a module; null means that it is not loaded.
template <typename Function>
static ddphook_status_t publish(ddphook_module_t *module, Function &&function) {
  if (!module)
    return publishStatus(notLoaded());
  return publishStatus(
      module->context.failIfThrown([&] { return function(*module); }));
}

/// Returns a compiled module's loaded module, or null.
static ddphook_module *moduleOf(const ddphook_compiled_module_t *module) {
  return module && module->handle ? *module->handle : nullptr;
}

template <typename Function>
static ddphook_status_t publish(const ddphook_compiled_module_t *compiled,
                                Function &&function) {
  return compiled ? publish(moduleOf(compiled), function)
                  : publishStatus(nullArgument("a module"));
}

/// Checks the size of a struct for results, which `name` names.
template <typename Struct>
static Status checkSize(const char *name, const Struct &result) {
  if (result.struct_size >= sizeof(size_t))
    return Status::ok();
  return invalid("expected %s.struct_size to be set, but got %zu", name,
                 result.struct_size);
}

/// Copies results to the caller's struct. A caller of another version has a
/// shorter or a longer one; fields that are unknown here are 0.
template <typename Struct>
static void copyResults(const Struct &from, Struct *to) {
  const size_t size = to->struct_size;
  std::memset(to, 0, size);
  std::memcpy(to, &from, std::min(size, sizeof(from)));
  to->struct_size = size;
}

const char *ddphook_last_error(void) { return lastError; }

uint32_t ddphook_abi_version(void) { return DDPHOOK_ABI_VERSION; }

ddphook_status_t ddphook_context_create(const ddphook_options_t *options,
                                        ddphook_context_t **context) {
  return publish([&] {
    if (!context)
      return nullArgument("an output pointer for the context");
    *context = nullptr;
    Bootstrap place;
    DDPHOOK_TRY(findPlace(options, processEnvironment(), &place));
    // All ranks of a machine usually have the same environment.
    if (place.localRank == 0)
      warnOfUnknownVariables();
    auto result = std::make_unique<ddphook_context>();
    DDPHOOK_TRY(Context::create(place, &result->impl));
    *context = result.release();
    return Status::ok();
  });
}

void ddphook_context_destroy(ddphook_context_t *context) {
  // A forked child has neither the context's threads nor its device.
  if (context && !context->impl->isForked())
    delete context;
}

int32_t ddphook_context_rank(const ddphook_context_t *context) {
  return context ? context->impl->rank() : 0;
}

int32_t ddphook_context_world_size(const ddphook_context_t *context) {
  return context ? context->impl->worldSize() : 0;
}

ddphook_status_t ddphook_draw_normal(uint32_t seed, int64_t number,
                                     const int64_t *draws, int64_t drawCount,
                                     void *out, int32_t dtype) {
  return publish([&] {
    const std::optional<Dtype> type = dtypeFromAbi(dtype);
    if (!type)
      return invalid("expected a floating-point type, but got %d", dtype);
    if (drawCount > 0 && (!draws || !out))
      return nullArgument("draws and an array");
    DefaultFloatingPoint environment;
    int32_t generator[generatorElements];
    seedGenerator(seed, generator);
    for (int64_t i = 0; i < number; ++i)
      DDPHOOK_TRY(drawNormal(generator, /*draws=*/nullptr,
                             /*drawCount=*/0, out, *type));
    return drawNormal(generator, draws, drawCount, out, *type);
  });
}

ddphook_status_t ddphook_barrier(ddphook_context_t *context) {
  return publish(context, [](Context &impl) { return impl.barrier(); });
}

ddphook_status_t ddphook_broadcast(ddphook_context_t *context, void *data,
                                   size_t bytes, int32_t root) {
  return publish(context, [&](Context &impl) {
    if (!data && bytes > 0)
      return nullArgument("data");
    return impl.broadcast(data, bytes, root);
  });
}

ddphook_status_t ddphook_module_load(ddphook_context_t *context,
                                     const ddphook_compiled_module_t *module) {
  return publish(context,
                 [&](Context &impl) { return loadModule(impl, module); });
}

ddphook_status_t
ddphook_module_unload(const ddphook_compiled_module_t *compiled) {
  return publish([&] {
    if (!compiled)
      return nullArgument("a module");
    ddphook_module *module = moduleOf(compiled);
    if (!module)
      return notLoaded();
    Context &context = module->context;
    if (context.isForked())
      return context.failure();
    // A capture in progress may have recorded steps that need the module.
    if (context.hasCallersStream() && !context.hasFailed())
      if (Status waited = context.call(&ddphook_backend_t::synchronize);
          waited.code() == DDPHOOK_FAILED_PRECONDITION)
        return withContext(waited, "ddphook_module_unload");
    auto &modules = context.modules;
    modules.erase(
        std::find_if(modules.begin(), modules.end(),
                     [&](const auto &entry) { return entry.get() == module; }));
    return Status::ok();
  });
}

ddphook_status_t ddphook_module_stats(const ddphook_compiled_module_t *compiled,
                                      ddphook_stats_t *stats) {
  return publish(compiled, [&](ddphook_module &module) {
    if (!stats)
      return nullArgument("an output pointer for the counters");
    DDPHOOK_TRY(checkSize("stats", *stats));
    copyResults(module.stats, stats);
    return Status::ok();
  });
}

/// The alignment of a program's device memory: enough for every kernel's loads.
static constexpr uint64_t alignment = 256;

ddphook_status_t ddphook_memory_alloc(ddphook_context_t *context, size_t bytes,
                                      void **memory) {
  return publish([&] {
    if (!context)
      return nullArgument("a context");
    if (!memory)
      return nullArgument("an output pointer for the address");
    *memory = nullptr;
    DDPHOOK_TRY(context->impl->failure());
    return context->impl->call(&ddphook_backend_t::memory_alloc, bytes,
                               alignment, memory);
  });
}

void ddphook_memory_free(ddphook_context_t *context, void *memory,
                         size_t bytes) {
  if (context && memory && !context->impl->isForked())
    context->impl->backend().memory_free(context->impl->device(), memory,
                                         bytes);
}

/// Copies between the host and the device after all earlier work.
template <typename FunctionT>
static ddphook_status_t copy(ddphook_context_t *context, FunctionT function,
                             void *to, const void *from, size_t bytes) {
  return publish([&] {
    if (!context)
      return nullArgument("a context");
    if (bytes == 0)
      return Status::ok();
    if (!to || !from)
      return nullArgument("two arrays");
    DDPHOOK_TRY(context->impl->synchronize());
    return context->impl->call(function, to, from, bytes);
  });
}

ddphook_status_t ddphook_memory_write(ddphook_context_t *context, void *memory,
                                      const void *host, size_t bytes) {
  return copy(context, &ddphook_backend_t::memory_write, memory, host, bytes);
}

ddphook_status_t ddphook_memory_read(ddphook_context_t *context, void *host,
                                     const void *memory, size_t bytes) {
  return copy(context, &ddphook_backend_t::memory_read, host, memory, bytes);
}

ddphook_status_t ddphook_context_set_stream(ddphook_context_t *context,
                                            void *stream) {
  return publish(context,
                 [&](Context &impl) { return impl.setStream(stream); });
}

ddphook_status_t ddphook_synchronize(ddphook_context_t *context) {
  return publish(context, [](Context &impl) { return impl.synchronize(); });
}

ddphook_status_t ddphook_state_save(const ddphook_compiled_module_t *compiled,
                                    const char *pattern, uint32_t flags) {
  return publish(compiled, [&](ddphook_module &module) {
    return pattern ? saveStates(module, pattern, flags)
                   : nullArgument("a pattern of file names");
  });
}

/// Runs `body`, which fills an info, and copies that to the caller's.
template <typename Body>
static Status withInfo(ddphook_state_info_t *info, Body &&body) {
  if (info)
    DDPHOOK_TRY(checkSize("info", *info));
  ddphook_state_info_t result = {};
  DDPHOOK_TRY(body(&result));
  if (info)
    copyResults(result, info);
  return Status::ok();
}

ddphook_status_t ddphook_state_load(const ddphook_compiled_module_t *compiled,
                                    const char *pattern, uint32_t flags,
                                    ddphook_state_info_t *info) {
  return publish(compiled, [&](ddphook_module &module) {
    if (!pattern)
      return nullArgument("a pattern of file names");
    return withInfo(info, [&](ddphook_state_info_t *result) {
      return loadStates(module, pattern, flags, result);
    });
  });
}

static Status findModules(const ddphook_compiled_module_t *const *list,
                          size_t count, std::vector<ddphook_module *> *result) {
  if (!list && count > 0)
    return nullArgument("a list of modules");
  for (size_t i = 0; i < count; ++i) {
    if (!list[i])
      return nullArgument("a module");
    result->push_back(moduleOf(list[i]));
    if (!result->back())
      return notLoaded();
  }
  return Status::ok();
}

ddphook_status_t
ddphook_state_copy(const ddphook_compiled_module_t *const *from,
                   size_t fromCount, const ddphook_compiled_module_t *const *to,
                   size_t toCount, uint32_t flags, ddphook_state_info_t *info) {
  return publish([&] {
    std::vector<ddphook_module *> sources, destinations;
    DDPHOOK_TRY(findModules(from, fromCount, &sources));
    DDPHOOK_TRY(findModules(to, toCount, &destinations));
    if (destinations.empty())
      return invalid("expected a module to copy to, but got none");
    return destinations.front()->context.failIfThrown([&] {
      return withInfo(info, [&](ddphook_state_info_t *result) {
        return copyStates(sources, destinations, flags, result);
      });
    });
  });
}

ddphook_status_t ddphook_rt_enter(ddphook_module_t *module, int32_t entry) {
  return publish(module,
                 [&](ddphook_module &loaded) { return loaded.enter(entry); });
}

ddphook_status_t ddphook_rt_leave(ddphook_module_t *module) {
  return publish(module, [](ddphook_module &loaded) { return loaded.leave(); });
}

/// Runs the body of a void function. An exception fails the step.
template <typename Function>
static void inStep(ddphook_module_t *module, Function &&function) {
  if (!module)
    return;
  Status status = withoutExceptions([&] {
    function();
    return Status::ok();
  });
  if (!status.isOk())
    module->failStep(std::move(status));
}

/// Does the same, and records the call under its name.
template <typename Function>
static void inStep(ddphook_module_t *module, trace::Function name,
                   Function &&function) {
  if (!module)
    return;
  trace::Scope scope(module->context.recorder(), name);
  inStep(module, std::forward<Function>(function));
}

void *ddphook_rt_arena(ddphook_module_t *module) {
  return module ? module->arena.get() : nullptr;
}

void *ddphook_rt_state(ddphook_module_t *module, int32_t state) {
  void *memory = nullptr;
  inStep(module, [&] { memory = module->stateMemory(state); });
  return memory;
}

void ddphook_rt_launch(ddphook_module_t *module, int32_t kernel,
                       const int64_t *grid, const int64_t *block,
                       int64_t shared_bytes, void **arguments) {
  inStep(module, trace::Function::launch,
         [&] { module->launch(kernel, grid, block, shared_bytes, arguments); });
}

void ddphook_rt_collective(ddphook_module_t *module, int32_t collective,
                           const void *in, void *out, int64_t step) {
  inStep(module, [&] {
    module->runCollective("ddphook_rt_collective", collective, in, out, step,
                          /*ticket=*/nullptr);
  });
}

int64_t ddphook_rt_collective_start(ddphook_module_t *module,
                                    int32_t collective, const void *in,
                                    void *out, int64_t step) {
  int64_t ticket = 0;
  inStep(module, [&] {
    module->runCollective("ddphook_rt_collective_start", collective, in, out,
                          step, &ticket);
  });
  return ticket;
}

void ddphook_rt_wait(ddphook_module_t *module, int64_t ticket) {
  inStep(module, [&] { module->wait(ticket); });
}

void ddphook_rt_reconstruct_others(ddphook_module_t *module, int32_t list,
                                   const void *p, const void *q,
                                   const void *rest, void *out) {
  inStep(module, trace::Function::reconstruct_others,
         [&] { module->reconstructOthers(list, p, q, rest, out); });
}

void ddphook_rt_random_normal(ddphook_module_t *module, void *generator,
                              const int64_t *draws, int64_t draw_count,
                              void *out, int32_t dtype) {
  inStep(module, trace::Function::random_normal, [&] {
    module->randomNormal(generator, draws, draw_count, out, dtype);
  });
}

int32_t ddphook_rt_is_finite(ddphook_module_t *module, const void *in,
                             int64_t count, int32_t dtype) {
  int32_t result = 0;
  inStep(module, trace::Function::is_finite,
         [&] { result = module->isFinite(in, count, dtype); });
  return result;
}

void ddphook_rt_count_compression(ddphook_module_t *module, int32_t bucket,
                                  int64_t before, int64_t after,
                                  int64_t iteration, int64_t frequency) {
  inStep(module, [&] {
    module->countCompression(bucket, before, after, iteration, frequency);
  });
}

void ddphook_rt_measure_product(ddphook_module_t *module, int32_t bucket,
                                int32_t list, const void *matrix, const void *p,
                                const void *q) {
  inStep(module, [&] { module->measureProduct(bucket, list, matrix, p, q); });
}

void ddphook_rt_measure_entries(ddphook_module_t *module, int32_t bucket,
                                int64_t keep, const void *entries,
                                const void *rest, int64_t count) {
  inStep(module,
         [&] { module->measureEntries(bucket, keep, entries, rest, count); });
}

// All functions that only pass their arguments to the device. One whose roles
// differ from compiled.h would be an overload in C, and does not compile.
#define DDPHOOK_PARAMETER(role_, name) role::role_::Type name
#define DDPHOOK_ARGUMENT(role_, name)                                          \
  role::role_ { name, #name }
#define DDPHOOK_DEVICE_FUNCTION(name, ...)                                     \
  extern "C" void ddphook_rt_##name(                                           \
      ddphook_module_t *module, DDPHOOK_MAP(DDPHOOK_PARAMETER, __VA_ARGS__)) { \
    inStep(module, trace::Function::name, [&] {                                \
      callDevice(*module, "ddphook_rt_" #name, &ddphook_backend_t::name,       \
                 DDPHOOK_MAP(DDPHOOK_ARGUMENT, __VA_ARGS__));                  \
    });                                                                        \
  }
#include "ddphook/runtime/functions.inc"
