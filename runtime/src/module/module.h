//===- module.h - a loaded compiled module ----------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory, process groups and counters of a compiled module, and what its
// code calls in a step. Loading is in module_loader.h.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_MODULE_MODULE_H
#define DDPHOOK_RUNTIME_SRC_MODULE_MODULE_H

#include "ddphook/runtime/backend.h"
#include "ddphook/runtime/runtime.h"
#include "job/process_groups.h"
#include "module/module_memory.h"
#include "plan/plan.h"

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace ddphook {
class Context;

/// A process group of a module on this rank.
struct ModuleGroup {
  GroupMembers members;
  /// Null when no collective uses the group.
  ddphook_communicator_t *communicator = nullptr;

  int64_t size() const { return static_cast<int64_t>(members.ranks.size()); }
};

/// Whether reports are wanted: DDPHOOK_LOG=info.
bool isLogging();

} // namespace ddphook

/// What a compiled module's handle points to. Only one thread at a time uses
/// it.
struct ddphook_module {
  ddphook_module(ddphook::Context &context,
                 const ddphook_compiled_module_t *compiled)
      : context(context), compiled(compiled) {}
  ~ddphook_module();

  ddphook::Status enter(int32_t entry);
  ddphook::Status leave();
  bool isRunning() const { return currentEntry >= 0; }

  // The rest keeps the first failure of the step for leave(), and does nothing
  // after it.
  void *stateMemory(int32_t state);
  void copy(const void *in, void *out, int64_t bytes);
  void launch(int32_t kernel, const int64_t *grid, const int64_t *block,
              int64_t sharedBytes, void **arguments);
  void allReduce(int32_t collective, const void *in, void *out);
  int64_t startAllReduce(int32_t collective, const void *in, void *out);
  void wait(int64_t ticket);
  void cast(const void *in, int32_t inDtype, void *out, int32_t outDtype,
            int64_t count);
  void divideByWorld(int32_t group, const void *in, void *out, int64_t count,
                     int32_t dtype);
  void scale(double factor, const void *in, void *out, int64_t count,
             int32_t dtype);
  void add(const void *a, const void *b, void *out, int64_t count,
           int32_t dtype);
  void subtract(const void *a, const void *b, void *out, int64_t count,
                int32_t dtype);
  void matmul(int32_t list, int32_t kind, void *matrix, void *p, void *q);
  void orthogonalize(int32_t list, int32_t factor, const void *in, void *out,
                     double epsilon);
  void project(int32_t list, const void *g, const void *e, const void *q,
               void *m, void *p, void *rest);
  void reconstruct(int32_t list, const void *p, const void *q, const void *rest,
                   const void *m, void *out, void *err, int32_t group);
  void randomNormal(void *generator, const int64_t *draws, int64_t drawCount,
                    void *out, int32_t dtype);

  bool isFinite(const void *in, int64_t count, int32_t dtype);
  void countCompression(int32_t bucket, int64_t before, int64_t after,
                        int64_t iteration, int64_t frequency);

  /// Prepares the plan's matrix lists on the device, and loads the module's
  /// kernels; for loading.
  ddphook::Status createMatrices();
  ddphook::Status loadKernels();

  /// Keeps `status` as the step's failure; with that the whole job fails: this
  /// rank will not take part in the step's other collectives.
  void failStep(ddphook::Status status);

  ddphook::Context &context;
  const ddphook_compiled_module_t *const compiled;
  ddphook::Plan plan;
  std::vector<ddphook::ModuleGroup> groups;
  ddphook::DeviceMemory arena;
  ddphook::StateMemory states;
  ddphook_stats_t stats = {};
  /// Manifests of the checkpoints that it saved.
  std::set<std::string> checkpoints;
  /// The compiled module's handle points here.
  bool isPublished = false;

private:
  bool canRun(const char *call);
  bool checkArrays(const char *call, const void *in, const void *out,
                   int64_t count);
  bool checkDtype(const char *call, int32_t dtype);
  bool checkGroup(const char *call, int32_t group);
  bool checkOperands(const char *call, const void *a, const void *b,
                     const void *out, int64_t count, int32_t dtype);
  ddphook_matrices_t *beginLowRank(const char *call, int32_t list,
                                   std::initializer_list<const void *> arrays);
  bool checkRest(const char *call, int32_t list, const void *rest);
  bool checkPair(const char *call, const void *first, const void *second);
  void destroyMatrices();
  const ddphook::PlanCollective *
  beginCollective(int32_t number, const void *in, const void *out,
                  ddphook_all_reduce_t *operation,
                  ddphook_communicator_t **group);
  void finishCall(ddphook_status_t code, const ddphook_backend_error_t &error);

  int32_t currentEntry = -1;
  /// Each bucket's first compressed iteration, as far as there was one.
  std::map<int32_t, int64_t> firstCompressed;
  int64_t lastTicket = 0;
  ddphook::Status stepFailure;
  /// One for each matrix list of the plan, once they are created.
  std::vector<ddphook_matrices_t *> matrices;
  ddphook_kernels_t *kernels = nullptr; // null when the plan has none
  /// Where random numbers are drawn; kept from step to step.
  std::vector<char> randomNumbers;
};

#endif // DDPHOOK_RUNTIME_SRC_MODULE_MODULE_H
