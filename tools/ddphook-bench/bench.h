// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A benchmark is a function that runs on every rank of a job, in processes of
// its own. It lists works; measure() verifies them, alternates between them and
// PyTorch, and reports medians and ratios.

#pragma once

#include "device_stream.h"
#include "job/context.h"
#include "module/module_groups.h"
#include "module/module_memory.h"
#include "options.h"
#include "rank_group.h"
#include "report.h"
#include "torch_process.h"

#include "base/dtype.h"

#include <functional>
#include <memory>
#include <optional>

namespace ddphook::bench {

struct Options {
  /// Size of the f32 bucket.
  double mib = 25;
  /// Alternations between the works of a section.
  int rounds = 3;
  /// Threads that a rank computes with.
  int threads = 1;
  /// Numbers of ranks, unless a benchmark's own.
  std::vector<int> ranks;
  std::string device = "host";
  /// An interpreter that has PyTorch; empty for no baseline.
  std::string python;
  std::string directory = "/tmp"; ///< For checkpoints.
  std::string json;

  int64_t elements() const { return static_cast<int64_t>(mib * (1 << 18)); }
};

double now(); ///< Seconds of a steady clock.

/// Memory of a job's device.
class Array {
public:
  explicit Array(Context &context) : context(context) {}

  Status allocate(int64_t bytes) {
    return memory.allocate(context, {bytes, /*alignment=*/256});
  }
  template <class T = void>
  T *as() const {
    return reinterpret_cast<T *>(memory.get());
  }
  Status write(const void *host, int64_t size) const;
  Status read(void *host, int64_t size) const;

private:
  Context &context;
  DeviceMemory memory;
};

/// The process group of all ranks of a job.
class Group {
public:
  explicit Group(Context &context) : context(context), word(context) {}

  /// Collective. No collective of the group may send more than `maxBytes`, or
  /// as many encoded ones.
  Status join(const std::string &key, bool isOneMachine, int64_t maxBytes);
  Status run(const ddphook_collective_t &operation, const void *in, void *out);
  /// Waits for all ranks and the device, about as long as a small collective.
  Status barrier();
  ddphook_communicator_t *get() const { return communicator.get(); }

private:
  Context &context;
  Array word;
  Communicator communicator;
};

ddphook_collective_t allReduceOf(int64_t count, Dtype dtype,
                                 std::optional<Dtype> wire, bool isMean);

/// Returns element `i` of a rank's gradient: well mixed, in (-1, 1).
float inputElement(int64_t i, int rank);
std::vector<float> inputOf(int64_t n, int rank);

/// Rounds `x` to `type` in scalar code that is independent of the kernels. For
/// values below the overflow of f16.
float roundScalar(float x, Dtype type);

/// Combines the numbers of all ranks, in place: the largest ones, which are not
/// negative, or the sums. Collective.
Status combine(Context &context, std::vector<double> *numbers,
               bool isSum = false);

struct Work {
  std::string name;
  int64_t bytes; ///< That have to move.
  std::function<Status()> run;
  /// Runs it and compares the result; may be empty.
  std::function<Status(bool *right)> check = {};
  /// Names of other works of the section, and the names of the ratios to them.
  std::vector<std::pair<std::string, std::string>> baselines = {};
  /// The same for torch_hooks.py; null if PyTorch has no equivalent.
  Json torch = nullptr;
};

class Rank {
public:
  Rank(const Options &options, int size, Report &report, RankReport &alive)
      : options(options), report(report), alive(alive), size(size) {}
  ~Rank();

  /// Joins the job, with options of the backend. Collective.
  Status join(const std::string &backendOptions = "");
  void leave();
  /// Ends the job with a failure, and returns its cause.
  Status fail(Status status);
  Context &job() { return *context; }
  bool isFirst() const { return number == 0; }
  bool isOnHost() const { return context->backend().memory_is_host; }

  /// Verifies the works, and measures them with caches that are cold and then
  /// with warm ones, or as they are on a device of its own. Collective; works
  /// that communicate use `group`.
  Status measure(const std::string &title, const std::vector<Work> &works,
                 Group *group = nullptr);
  /// Reports samples of all ranks that were taken without measure().
  Status add(const std::string &title, std::vector<Result> results);
  /// Reports whether a result is right on all ranks.
  Status verify(const std::string &what, bool right);

  /// Adds, before the works, the best copies of as many bytes, as baselines,
  /// between arrays of `arrayBytes`.
  std::vector<Work> withCopies(std::vector<Work> works, int64_t arrayBytes);

  const Options &options;
  Report &report;
  RankReport &alive; ///< Must hear of progress.
  const int size;
  int number = 0;

private:
  Status sample(const Work &work, bool isCold, Group *group, Samples *seconds,
                Samples *host);
  Status askTorch(const Json &job, bool isCold, Samples *seconds);
  Status copy(int64_t bytes);

  std::unique_ptr<Context> context;
  std::unique_ptr<DeviceStream> stream;
  std::unique_ptr<Array> from, to; ///< Of copies.
  int64_t copied = 0;
  std::vector<char> flushed;
  std::unique_ptr<TorchProcess> torch;
};

/// A hook that is one all-reduce.
struct HookKind {
  std::string name;
  std::optional<Dtype> wire; ///< The type on the wire, unless the gradient's.
  int32_t encoding = DDPHOOK_ENCODING_NONE;
  int64_t block = 0;

  ddphook_collective_t collective(int64_t count, void *error = nullptr) const;
  /// Bytes that have to move, on each rank.
  int64_t bytes(int64_t count) const;
};
const std::vector<HookKind> &hookKinds();

/// "25 MiB" for that many f32.
std::string sizeName(int64_t elements);

/// The benchmarks, each in the file that is named after it or its kind.
Status benchCast(Rank &rank);
Status benchEncode(Rank &rank);
Status benchTopK(Rank &rank);
Status benchPowerSgd(Rank &rank);
Status benchAllReduce(Rank &rank);
Status benchHooks(Rank &rank);
Status benchStart(Rank &rank);
Status benchJoin(Rank &rank);
Status benchSteps(Rank &rank);
Status benchSave(Rank &rank);

/// `sweep` has a command line of its own.
int benchSweep(const Arguments &arguments);

} // namespace ddphook::bench
