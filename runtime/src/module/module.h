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
#include "module/compression_error.h"
#include "module/module_groups.h"
#include "module/module_memory.h"
#include "plan/plan.h"
#include "trace/metrics.h"
#include "trace/recorder.h"

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace ddphook {
class Context;

/// What a step has reduced of one bucket, in elements.
struct BucketCounts {
  int64_t sent = 0; ///< By collectives of the bucket.
  /// Whether an all-gather sent something else that stands for all of it.
  bool isGathered = false;
  /// What ddphook_rt_count_compression() was told: a part of the bucket that
  /// was compressed, and what was sent for it.
  int64_t before = 0, after = 0;
};

} // namespace ddphook

/// What a compiled module's handle points to. Only one thread at a time uses
/// it.
struct ddphook_module {
  ddphook_module(ddphook::Context &context,
                 const ddphook_compiled_module_t *compiled)
      : context(context), compiled(compiled), compressionError(context, plan) {}
  ~ddphook_module();

  ddphook::Status enter(int32_t entry);
  ddphook::Status leave();
  bool isRunning() const { return currentEntry >= 0; }

  // What a step calls. The first failure is kept for leave(), and nothing is
  // done after it. Calls that a device answers are in device_call.h.
  void *stateMemory(int32_t state);
  void launch(int32_t kernel, const int64_t *grid, const int64_t *block,
              int64_t sharedBytes, void **arguments);
  /// How codes of a collective are rounded, if not to nearest.
  struct StochasticRounding {
    int64_t stream, step;
  };
  /// Function `call`, which may want one kind of collective only.
  void runCollective(const char *call,
                     std::optional<ddphook::CollectiveKind> kind,
                     int32_t collective, const void *in, void *out,
                     std::optional<StochasticRounding> rounding = {});
  int64_t startCollective(const char *call,
                          std::optional<ddphook::CollectiveKind> kind,
                          int32_t collective, const void *in, void *out,
                          std::optional<StochasticRounding> rounding = {});
  void wait(int64_t ticket);
  void randomNormal(void *generator, const int64_t *draws, int64_t drawCount,
                    void *out, int32_t dtype);

  bool isFinite(const void *in, int64_t count, int32_t dtype);
  /// After a product of matrix list `list`, for metrics.
  void inspectProduct(int32_t list, int32_t kind, const void *matrix,
                      const void *p, const void *q);
  /// After the largest elements of an array were taken, for metrics.
  void inspectEntries(int64_t keep, const void *entries, const void *rest,
                      int64_t count);
  void countCompression(int32_t bucket, int64_t before, int64_t after,
                        int64_t iteration, int64_t frequency);

  /// Prepares the plan's matrix lists on the device, and loads the module's
  /// kernels; for loading.
  ddphook::Status createMatrices();
  /// And the parts of those that are dealt, once ranks know their nodes.
  ddphook::Status dealMatrices();
  ddphook::Status loadKernels();

  /// Prepares the counters; for loading.
  void prepareCounts();

  /// Gives what will be recorded of it names; for loading, when the groups are
  /// connected.
  void nameEvents();

  /// Whether function `call` may do its work: a step is running, and nothing of
  /// it has failed.
  bool canRun(const char *call);

  /// Keeps `status` as the step's failure; with that the whole job fails: this
  /// rank will not take part in the step's other collectives.
  void failStep(ddphook::Status status);

  ddphook::Context &context;
  const ddphook_compiled_module_t *const compiled;
  ddphook::Plan plan;
  /// Their addresses stay.
  std::deque<ddphook::ModuleGroup> groups;
  ddphook::DeviceMemory arena;
  ddphook::StateMemory states;
  /// Its number in the job.
  int64_t moduleNumber = 0;
  /// One for each matrix list of the plan, once they are created.
  std::vector<ddphook_matrices_t *> matrices;
  /// Of a list that is dealt to several ranks: what this rank has been dealt of
  /// it, and what lies before and behind. Null: nothing.
  struct DealtMatrices {
    ddphook_matrices_t *own, *before, *behind;
  };
  std::map<int32_t, DealtMatrices> dealtMatrices;
  /// The matrices of a list that a call works on: of a product P or Q, and of
  /// other calls, this rank's. Null: none.
  ddphook_matrices_t *matricesOf(int32_t list, int32_t product) const;
  /// What other ranks have been dealt of a list, without their errors.
  void reconstructOthers(int32_t list, const void *p, const void *q,
                         const void *rest, void *out);
  ddphook_stats_t stats = {};
  /// The generations of the checkpoints that it saved last, by their manifests.
  std::map<std::string, uint64_t> checkpoints;
  /// What the last load of states reported.
  std::string stateReport;
  /// The compiled module's handle points here.
  bool isPublished = false;

private:
  void destroyMatrices();
  ddphook::trace::MetricsSample sampleMetrics() const;
  void sampleErrors(std::vector<ddphook::trace::ErrorSample> *errors) const;
  void inspectOperand(int32_t number, const void *in,
                      const std::optional<StochasticRounding> &rounding);
  void testOperand(int32_t number, const void *in);
  void countCollective(int32_t number);
  void countBuckets();
  const ddphook::PlanCollective *
  beginCollective(const char *call, std::optional<ddphook::CollectiveKind> kind,
                  int32_t number, const void *in, const void *out,
                  const std::optional<StochasticRounding> &rounding);
  /// As backends take it.
  ddphook_collective_t
  describe(const ddphook::PlanCollective &collective,
           const std::optional<StochasticRounding> &rounding) const;

  int32_t currentEntry = -1;
  /// For each bucket, since the step began; and for each collective, its
  /// bucket's number or -1.
  std::vector<ddphook::BucketCounts> bucketCounts;
  std::vector<int32_t> collectiveBuckets;
  bool hasReduced = false;
  /// Each bucket's first compressed iteration, as far as there was one.
  std::map<int32_t, int64_t> firstCompressed;
  /// Names of events: of the steps of each entry, and of collectives. Their
  /// addresses stay.
  std::vector<uint32_t> stepNames;
  std::deque<ddphook::trace::CollectiveNames> collectiveNames;
  /// And of waiting for collectives, and which have been started in this step,
  /// by their tickets.
  std::vector<uint32_t> waitNames;
  std::vector<std::pair<int64_t, int32_t>> startedCollectives;
  uint32_t nameOfWait(int64_t ticket) const;
  /// Nanoseconds in the steps of `stats`.
  int64_t stepTime = 0;
  /// Tests for non-finite numbers that found some.
  uint64_t nonFinite = 0;
  /// And of the operands of collectives, those of each.
  std::vector<uint64_t> nonFiniteOperands;
  /// What compression has lost in the last step of which metrics are asked to
  /// tell that, and whether that is the one that is running.
  ddphook::CompressionError compressionError;
  bool isErrorMeasured = false;
  int64_t lastTicket = 0;
  ddphook::Status stepFailure;
  ddphook_kernels_t *kernels = nullptr; // null when the plan has none
  /// Buffer in which random numbers are drawn; kept from step to step.
  std::vector<char> randomNumbers;
};

#endif // DDPHOOK_RUNTIME_SRC_MODULE_MODULE_H
