// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a host program waits for besides its hooks, through the C API: joining
// and leaving a job, steps, and checkpoints. The module is made by hand, as a
// compiler would make it for one bucket.

#include "bench.h"

#include "ddphook/runtime/runtime.h"
#include "plan/plan.h"

#include <algorithm>
#include <filesystem>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::bench;

namespace {

constexpr int kRepetitions = 5;

Status check(ddphook_status_t code) {
  return code == DDPHOOK_OK ? Status::ok() : Status(code, ddphook_last_error());
}

ddphook_status_t invokeNothing(void *const *) { return DDPHOOK_UNSUPPORTED; }

/// The plan of a module with one bucket, except for numbers.
constexpr const char *kPlan = R"({
  "memory": "host", "kernels": [], "matrix_lists": [],
  "process_groups": [{"name": "dp", "size": 0, "ranks": [], "placement": "",
                      "parent": "", "topology": "flat"}],
  "buckets": [{"name": "b0", "group": "dp", "reduction": "mean",
               "dtype": "f32", "gradients": [], "hook": "#ddp.allreduce",
               "wire_dtype": "", "encoding": "", "block": 0}],
  "states": [{"name": "b0.error", "dtype": "f32", "role": "powersgd.error",
              "gradients": [["w"]], "method": "mean #ddp.powersgd",
              "placement": "per_rank", "init": "zero", "seed": 0,
              "generator": "", "draws": [], "offset": 0}],
  "collectives": [{"kind": "all_reduce", "bucket": "b0", "group": 0,
                   "dtype": "f32", "wire_dtype": "", "encoding": "",
                   "block": 0, "divide": true, "root": 0, "error": "",
                   "stream": -1}],
  "arena": {"bytes": 0, "alignment": 64},
  "state_arena": {"alignment": 64},
  "entries": [{"name": "step", "arguments": [], "results": []}]
})";

/// A job with a module that reduces `n` elements, and has as many in the state
/// of each rank.
class Job {
public:
  explicit Job(int64_t n) : n(n), values(inputOf(n, 0)) {
    Json described = Json::parse(kPlan);
    const Json shapes = Json::array({Json::array({n})});
    described["abi"] = DDPHOOK_ABI_VERSION;
    described["buckets"][0].update(
        {{"shapes", shapes}, {"wire_bytes", 4 * n}, {"state_bytes", 4 * n}});
    described["states"][0].update({{"shapes", shapes}, {"bytes", 4 * n}});
    described["collectives"][0]["count"] = n;
    described["state_arena"]["bytes"] = 4 * n;
    plan = described.dump();
    module.struct_size = sizeof(module);
    module.abi_version = DDPHOOK_ABI_VERSION;
    module.plan = plan.data();
    module.plan_size = plan.size();
    module.plan_hash = hashPlan(plan);
    module.handle = &handle;
    module.entry_count = 1;
    module.entries = &entry;
  }
  ~Job() { leave(); }
  Job(const Job &) = delete;
  Job &operator=(const Job &) = delete;

  Status join() { return check(ddphook_context_create(nullptr, &context)); }
  Status barrier() { return check(ddphook_barrier(context)); }
  Status load() { return check(ddphook_module_load(context, &module)); }
  void leave() {
    // This also unloads the module.
    ddphook_context_destroy(context);
    context = nullptr;
  }
  Status step() {
    DDPHOOK_TRY(check(ddphook_rt_enter(handle, 0)));
    ddphook_rt_collective(handle, 0, values.data(), values.data(), /*step=*/0);
    return check(ddphook_rt_leave(handle));
  }
  Status save(const std::string &pattern) {
    return check(
        ddphook_state_save(&module, pattern.c_str(), DDPHOOK_STATE_REPLACE));
  }
  Status restore(const std::string &pattern) {
    return check(ddphook_state_load(&module, pattern.c_str(), 0, nullptr));
  }
  /// The state, which a step may use.
  Status forState(const std::function<void(float *)> &use) {
    DDPHOOK_TRY(check(ddphook_rt_enter(handle, 0)));
    use(static_cast<float *>(ddphook_rt_state(handle, 0)));
    return check(ddphook_rt_leave(handle));
  }

  const int64_t n;
  std::vector<float> values;

private:
  std::string plan;
  ddphook_context_t *context = nullptr;
  ddphook_module_t *handle = nullptr;
  ddphook_compiled_entry_t entry = {"step", invokeNothing};
  ddphook_compiled_module_t module = {};
};

/// Adds the time of each of `count` calls, which all ranks begin together.
Status time(Rank &rank, Job &job, int count, Samples *samples,
            const Body &body) {
  for (int i = 0; i < count; ++i) {
    rank.alive.progress(i);
    DDPHOOK_TRY(job.barrier());
    const double begin = now();
    DDPHOOK_TRY(body());
    samples->push_back(now() - begin);
  }
  return Status::ok();
}

std::string titleOf(const Rank &rank, const std::string &what) {
  return concat(what, ", ", rank.size, " ranks on one machine");
}

} // namespace

Status bench::benchJoin(Rank &rank) {
  Result join{"join", "", 0, {}}, load{"load a module", "", 0, {}},
      leave{"leave", "", 0, {}};
  // The runner's own membership would use the store's port.
  rank.leave();
  for (int i = 0; i < kRepetitions * rank.options.rounds; ++i) {
    rank.alive.progress(i);
    Job job(1024);
    double begin = now();
    DDPHOOK_TRY(job.join());
    join.samples.push_back(now() - begin);
    DDPHOOK_TRY(time(rank, job, 1, &load.samples, [&] { return job.load(); }));
    DDPHOOK_TRY(job.barrier());
    begin = now();
    job.leave();
    leave.samples.push_back(now() - begin);
  }
  DDPHOOK_TRY(rank.join());
  return rank.add(titleOf(rank, "joining a job"), {join, load, leave});
}

Status bench::benchSteps(Rank &rank) {
  std::vector<Result> results;
  rank.leave();
  for (int64_t n : {int64_t(1024), rank.options.elements()}) {
    Job job(n);
    DDPHOOK_TRY(job.join());
    DDPHOOK_TRY(job.load());
    Result result{"step of " + sizeName(n), "", 4 * n, {}};
    DDPHOOK_TRY(time(rank, job, 20 * rank.options.rounds, &result.samples,
                     [&] { return job.step(); }));
    results.push_back(std::move(result));
  }
  DDPHOOK_TRY(rank.join());
  return rank.add(titleOf(rank, "steps of one all-reduce"), results);
}

Status bench::benchSave(Rank &rank) {
  namespace fs = std::filesystem;
  rank.leave();
  bool isRestored = false;
  Result save{"save", "", 4 * rank.options.elements(), {}}, load = save;
  load.name = "load";
  {
    Job job(rank.options.elements());
    DDPHOOK_TRY(job.join());
    DDPHOOK_TRY(job.load());
    DDPHOOK_TRY(job.forState([&](float *state) {
      std::copy(job.values.begin(), job.values.end(), state);
    }));
    // All ranks have one parent.
    const fs::path directory = fs::path(rank.options.directory) /
                               ("ddphook-bench-" + std::to_string(::getppid()));
    std::error_code failed;
    fs::create_directories(directory, failed);
    const std::string pattern = directory / "state-{rank}.safetensors";
    const int count = kRepetitions * rank.options.rounds;
    Status status = time(rank, job, count, &save.samples,
                         [&] { return job.save(pattern); });
    if (status.isOk())
      status = time(rank, job, count, &load.samples,
                    [&] { return job.restore(pattern); });
    if (status.isOk())
      status = job.barrier();
    if (rank.isFirst())
      fs::remove_all(directory, failed);
    DDPHOOK_TRY(status);
    DDPHOOK_TRY(job.forState([&](float *state) {
      isRestored = std::equal(job.values.begin(), job.values.end(), state);
    }));
  }
  DDPHOOK_TRY(rank.join());
  DDPHOOK_TRY(rank.verify("a checkpoint's states", isRestored));
  return rank.add(titleOf(rank, "checkpoints in " + rank.options.directory +
                                    ", GB/s of a rank's states"),
                  {save, load});
}
