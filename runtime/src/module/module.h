// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory, process groups and counters of a compiled module, and the
// functions that its code calls in a step.

#pragma once

#include "ddphook/runtime/backend.h"
#include "ddphook/runtime/runtime.h"
#include "module/compression_error.h"
#include "module/module_groups.h"
#include "module/module_memory.h"
#include "plan/plan.h"
#include "trace/metrics.h"
#include "trace/recorder.h"

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace ddphook {
class Context;

/// The elements of one bucket that a step has reduced.
struct BucketCounts {
  int64_t sent = 0; ///< By collectives of the bucket.
  /// True if an all-gather sent other data that represents the whole bucket.
  bool isGathered = false;
  /// The arguments of ddphook_rt_count_compression(): elements of the bucket
  /// that were compressed, and elements that were sent for them.
  int64_t before = 0, after = 0;
};

} // namespace ddphook

/// The target of a compiled module's handle. Only one thread at a time uses it.
struct ddphook_module {
  ddphook_module(ddphook::Context &context,
                 const ddphook_compiled_module_t *compiled)
      : context(context), compiled(compiled), compressionError(context, plan) {}
  ~ddphook_module();

  ddphook::Status enter(int32_t entry);
  ddphook::Status leave();
  bool isRunning() const { return currentEntry >= 0; }

  // The functions that a step calls. The first failure is kept for leave(), and
  // later calls do nothing. device_call.h has the calls that a device executes.
  void *stateMemory(int32_t state);
  void launch(int32_t kernel, const int64_t *grid, const int64_t *block,
              int64_t sharedBytes, void **arguments);
  /// Runs a collective or, if `ticket` is not null, starts it.
  void runCollective(const char *call, int32_t collective, const void *in,
                     void *out, int64_t step, int64_t *ticket);
  void wait(int64_t ticket);
  void randomNormal(void *generator, const int64_t *draws, int64_t drawCount,
                    void *out, int32_t dtype);

  bool isFinite(const void *in, int64_t count, int32_t dtype);
  void measureProduct(int32_t bucket, int32_t list, const void *matrix,
                      const void *p, const void *q);
  void measureEntries(int32_t bucket, int64_t keep, const void *entries,
                      const void *rest, int64_t count);
  void countCompression(int32_t bucket, int64_t before, int64_t after,
                        int64_t iteration, int64_t frequency);
  void reconstructOthers(int32_t list, const void *p, const void *q,
                         const void *rest, void *out);

  /// Prepares matrix lists on the device and loads kernels; for loading.
  ddphook::Status createMatrices();
  /// Prepares the assigned parts of matrix lists, once ranks know their nodes.
  ddphook::Status assignMatrices();
  ddphook::Status loadKernels();

  /// Prepares the counters; for loading.
  void prepareCounts();

  /// Names the events to record; for loading, once the groups are connected.
  void nameEvents();

  /// True if `call` may run: a step is running, and nothing in it has failed.
  bool canRun(const char *call);

  /// Keeps `status` as the step's failure. This fails the whole job, because
  /// this rank will not join the step's other collectives.
  void failStep(ddphook::Status status);

  ddphook::Context &context;
  const ddphook_compiled_module_t *const compiled;
  ddphook::Plan plan;
  /// A deque, because their addresses must not change.
  std::deque<ddphook::ModuleGroup> groups;
  ddphook::DeviceMemory arena;
  ddphook::StateMemory states;
  /// The module's number in the job.
  int64_t moduleNumber = 0;
  /// One for each matrix list of the plan, once created.
  std::vector<ddphook_matrices_t *> matrices;
  /// For a list that is assigned to several ranks: this rank's part, and the
  /// parts before and after it. Null if empty.
  struct AssignedMatrices {
    ddphook_matrices_t *own, *before, *after;
  };
  std::map<int32_t, AssignedMatrices> assignedMatrices;
  /// Returns the matrices of a list that a call uses: all for the product M,
  /// otherwise this rank's. Null if there are none.
  ddphook_matrices_t *matricesOf(int32_t list, int32_t product) const;
  ddphook_stats_t stats = {};
  /// The generations of the checkpoints that it saved last, by their manifests.
  std::map<std::string, uint64_t> checkpoints;
  /// The report of the last load of states.
  std::string stateReport;
  /// True if the compiled module's handle points here.
  bool isPublished = false;

private:
  void destroyMatrices();
  ddphook::trace::MetricsSample sampleMetrics() const;
  /// True if metrics request errors, and the device can measure them.
  bool measuresErrors() const {
    return context.observed().measuresErrors() && context.backend().sum_squares;
  }
  void sampleErrors(std::vector<ddphook::trace::ErrorSample> *errors) const;
  void inspectOperand(int32_t number, const void *in, int64_t step);
  void testOperand(int32_t number, const void *in);
  void countCollective(int32_t number);
  void countBuckets();
  /// Returns a bucket of the plan; fails the step and returns null if function
  /// `call` passed no number of one, or may not run.
  const ddphook::PlanBucket *findBucket(const char *call, int32_t bucket);
  const ddphook::PlanCollective *beginCollective(const char *call,
                                                 int32_t number, const void *in,
                                                 const void *out);
  /// Describes a collective in training step `step` as backends take it.
  ddphook_collective_t describe(const ddphook::PlanCollective &collective,
                                int64_t step) const;

  int32_t currentEntry = -1;
  /// Counts of each bucket since the step began; and for each collective its
  /// bucket's number or -1.
  std::vector<ddphook::BucketCounts> bucketCounts;
  std::vector<int32_t> collectiveBuckets;
  bool hasReduced = false;
  /// The first compressed iteration of each bucket that had one.
  std::map<int32_t, int64_t> firstCompressed;
  /// Names of events: of the steps of each entry, and of collectives, whose
  /// addresses must not change.
  std::vector<uint32_t> stepNames;
  std::deque<ddphook::trace::CollectiveNames> collectiveNames;
  /// Names of waits for collectives, and the collectives started in this step,
  /// by their tickets.
  std::vector<uint32_t> waitNames;
  std::vector<std::pair<int64_t, int32_t>> startedCollectives;
  uint32_t nameOfWait(int64_t ticket) const;
  /// Nanoseconds spent in the steps of `stats`.
  int64_t stepTime = 0;
  /// The number of tests that found non-finite numbers.
  uint64_t nonFinite = 0;
  /// The same for the operands of each collective.
  std::vector<uint64_t> nonFiniteOperands;
  /// The compression loss in the last step whose errors metrics request, and
  /// whether that step is the running one.
  ddphook::CompressionError compressionError;
  bool isErrorMeasured = false;
  int64_t lastTicket = 0;
  ddphook::Status stepFailure;
  ddphook_kernels_t *kernels = nullptr; // null if the plan has none
  /// A buffer for random numbers, kept between steps.
  std::vector<char> randomNumbers;
};

namespace ddphook {

/// Checks `compiled`, compares its plan with all ranks, and sets its handle to
/// a module that can run steps; collective. If any rank fails, all do:
/// PLAN_MISMATCH if plans differ, ABORTED if only another rank failed.
Status loadModule(Context &context, const ddphook_compiled_module_t *compiled);

/// Calls `set` with the number and the initial value of every state that has
/// elements and does not start as zeros, in no particular order.
Status drawFirstValues(const Plan &plan,
                       const std::function<Status(size_t, const void *)> &set);

/// Sets the initial values of all states; the state arena must be zeroed.
Status initialiseStates(ddphook_module &module);

/// Copy a part of a state; `data` may be null if `bytes` is 0.
Status readState(const ddphook_module &module, size_t state, int64_t offset,
                 void *data, int64_t bytes);
Status writeState(ddphook_module &module, size_t state, int64_t offset,
                  const void *data, int64_t bytes);

} // namespace ddphook
