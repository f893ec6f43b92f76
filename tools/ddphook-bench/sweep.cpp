// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduces of growing buffers, through a backend, with the store,
// connections and transport of a compiled step. Starts ranks on this machine,
// or is one of the ranks that a launcher has started on any machines. Options
// and bandwidths are those of nccl-tests (its PERFORMANCE.md).

#include "bench.h"

#include "files/atomic_file.h"
#include "local_job.h"
#include "sweep_values.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

using namespace ddphook;
using namespace ddphook::bench;

namespace {

constexpr int64_t kMostSizes = 100000;
/// Fills a result before it is computed; not a sum of any sweep.
constexpr char kPoison = char(0xa5);

struct SweepOptions {
  int64_t minBytes = 8, maxBytes = 64 << 20;
  /// The next size: times `factor`, or plus `stepBytes` unless that is 0.
  int factor = 2;
  int64_t stepBytes = 0;
  std::vector<Dtype> dtypes = {Dtype::F32};
  std::vector<HookKind> hooks = {hookKinds().front()};
  /// Divide by the number of ranks before adding, as DDP does.
  bool isMean = false;
  /// A measurement times `iterations` runs after `warmup`, `rounds` times.
  int iterations = 20, warmup = 5, rounds = 3;
  bool checks = true;
  /// Ranks to start on this machine; 0: 2, unless a launcher has started some.
  int ranks = 0;
  std::string csv, json;
  bool wantsHelp = false;

  std::vector<Flag> flags();
  Status parse(const Arguments &arguments);
  /// Returns a text of the options that all ranks must agree on.
  std::string fingerprint() const;
};

Setter toDtypes(std::vector<Dtype> *dtypes) {
  return toList(dtypes, [=](const std::string &flag, const std::string &item) {
    const std::string known = item == "float"      ? "f32"
                              : item == "double"   ? "f64"
                              : item == "half"     ? "f16"
                              : item == "bfloat16" ? "bf16"
                                                   : item;
    const std::optional<Dtype> dtype = parseDtype(known);
    if (dtype)
      dtypes->push_back(*dtype);
    else if (item == "all")
      dtypes->assign(std::begin(allDtypes), std::end(allDtypes));
    else
      return mismatch(flag, "a list of f32, f64, f16 and bf16, or all", item);
    return Status::ok();
  });
}

Setter toHooks(std::vector<HookKind> *hooks) {
  return toList(hooks, [=](const std::string &flag, const std::string &item) {
    const size_t before = hooks->size();
    // The others change what a sum is.
    for (const HookKind &kind : hookKinds())
      if (kind.encoding == DDPHOOK_ENCODING_NONE &&
          (item == "all" || item == kind.name))
        hooks->push_back(kind);
    return hooks->size() > before
               ? Status::ok()
               : mismatch(flag, "a list of allreduce, fp16 and bf16, or all",
                          item);
  });
}

/// One of two words, or another name of the second one.
Setter toChoice(bool *isSecond, const char *wanted, std::string first,
                std::string second, std::string other) {
  return [=](const std::string &flag, const std::string &value) {
    *isSecond = value == second || value == other;
    return *isSecond || value == first ? Status::ok()
                                       : mismatch(flag, wanted, value);
  };
}

std::vector<Flag> SweepOptions::flags() {
  constexpr int most = 1000000;
  return {{'b', "min-bytes", "SIZE",
           "smallest buffer (default 8); K, M and G count in 1024s",
           toSize(&minBytes)},
          {'e', "max-bytes", "SIZE", "largest buffer (default 64M)",
           toSize(&maxBytes)},
          {'f', "step-factor", "N", "from one size to the next (default 2)",
           toInt(&factor, 2, 1 << 20)},
          {'i', "step-bytes", "SIZE",
           "the same by addition, in place of a factor", toSize(&stepBytes)},
          {'d', "datatype", "LIST",
           "f32, f64, f16, bf16, or all; also float, double, half, bfloat16 "
           "(default f32)",
           toDtypes(&dtypes)},
          {0, "hook", "LIST",
           "allreduce, fp16, bf16, or all: the type on the wire (default "
           "allreduce: the buffer's own)",
           toHooks(&hooks)},
          {'o', "op", "OP",
           "sum, or mean: divided first, as DDP does (default sum)",
           toChoice(&isMean, "sum or mean", "sum", "mean", "avg")},
          {'n', "iters", "N", "runs in a measurement (default 20)",
           toInt(&iterations, 1, most)},
          {'w', "warmup-iters", "N", "runs before the first one (default 5)",
           toInt(&warmup, 0, most)},
          {'r', "rounds", "N", "measurements; their median counts (default 3)",
           toInt(&rounds, 1, most)},
          {'c', "check", "0|1", "check results (default 1)",
           toChoice(&checks, "0 or 1", "0", "1", "1")},
          {0, "ranks", "N", "ranks to start on this machine (default 2)",
           toInt(&ranks, 1, 4096)},
          {0, "csv", "FILE", "also write the results there, on rank 0",
           toText(&csv)},
          {0, "json", "FILE", "the same; ddphook-report draws this file",
           toText(&json)},
          {'h', "help", "", "print this", toTrue(&wantsHelp)}};
}

Status SweepOptions::parse(const Arguments &arguments) {
  DDPHOOK_TRY(parseFlags(arguments, flags(), [](const std::string &word) {
    return invalid("expected an option of sweep, but got '%s'", word.c_str());
  }));
  if (minBytes > maxBytes)
    return invalid(
        concat("expected --min-bytes to be at most --max-bytes, but got ",
               minBytes, " and ", maxBytes));
  if (stepBytes > 0 && (maxBytes - minBytes) / stepBytes >= kMostSizes)
    return invalid(concat("expected at most ", kMostSizes,
                          " sizes, but got --step-bytes=", stepBytes));
  return Status::ok();
}

std::string SweepOptions::fingerprint() const {
  Json all = {{"min_bytes", minBytes},  {"max_bytes", maxBytes},
              {"factor", factor},       {"step_bytes", stepBytes},
              {"mean", isMean},         {"iters", iterations},
              {"warmup_iters", warmup}, {"rounds", rounds},
              {"check", checks},        {"datatypes", Json::array()},
              {"hooks", Json::array()}};
  for (Dtype dtype : dtypes)
    all["datatypes"].push_back(dtypeName(dtype));
  for (const HookKind &hook : hooks)
    all["hooks"].push_back(hook.name);
  return all.dump();
}

constexpr const char *kPlaces[] = {"out_of_place", "in_place"};

std::string header(const Json &result) {
  std::string text = formatText(
      "# all-reduce, %s; ranks: %d, machines: %d, backend: %s, transport: %s\n"
      "# time of the slowest rank; algbw = size / time, busbw = bytes on the "
      "wire * 2(n-1)/n / time\n#\n",
      result["op"].get<std::string>().c_str(), result["ranks"].get<int>(),
      result["machines"].get<int>(),
      result["backend"].get<std::string>().c_str(),
      result["transport"].get<std::string>().c_str());
  text += formatText("# %-40s %-33s  %s\n", "", "out-of-place", "in-place");
  text += formatText("# %10s %12s %9s %5s", "size", "count", "hook", "type");
  for (int i = 0; i < 2; ++i)
    text += formatText(" %9s %7s %7s %7s", "time", "algbw", "busbw", "#wrong");
  text += formatText("\n# %10s %12s %15s", "(B)", "(elements)", "");
  for (int i = 0; i < 2; ++i)
    text += formatText(" %9s %7s %7s%s", "(us)", "(GB/s)", "(GB/s)",
                       i == 0 ? "        " : "\n");
  return text;
}

/// Formats a time with as many digits as fit.
std::string microseconds(double value) {
  return formatText(value < 100     ? "%.2f"
                    : value < 10000 ? "%.1f"
                                    : "%.0f",
                    value);
}

/// Formats GB/s; three digits are enough, on slow links too.
std::string bandwidth(double value) {
  return formatText(value < 10 ? "%.3f" : value < 100 ? "%.2f" : "%.1f", value);
}

std::string wrongText(const Json &wrong) {
  return wrong.is_null() ? "N/A" : wrong.dump();
}

std::string line(const Json &row) {
  std::string text = formatText(
      "  %10lld %12lld %9s %5s", row["size_bytes"].get<long long>(),
      row["count"].get<long long>(), row["hook"].get<std::string>().c_str(),
      row["datatype"].get<std::string>().c_str());
  for (const char *place : kPlaces)
    text += formatText(" %9s %7s %7s %7s",
                       microseconds(row[place]["time_us"]).c_str(),
                       bandwidth(row[place]["algbw_gbs"]).c_str(),
                       bandwidth(row[place]["busbw_gbs"]).c_str(),
                       wrongText(row[place]["wrong"]).c_str());
  return text + "\n";
}

/// Adds what follows from all rows.
void summarize(Json *result) {
  double sum = 0;
  Json wrong = nullptr;
  for (const Json &row : (*result)["results"])
    for (const char *place : kPlaces) {
      sum += row[place]["busbw_gbs"].get<double>();
      if (const Json &here = row[place]["wrong"]; !here.is_null())
        wrong =
            (wrong.is_null() ? 0 : wrong.get<int64_t>()) + here.get<int64_t>();
    }
  const auto rows = static_cast<double>((*result)["results"].size());
  (*result)["average_busbw_gbs"] = rows > 0 ? sum / (2 * rows) : 0;
  (*result)["wrong"] = wrong;
}

/// The same as lines of equal fields.
std::string toCsv(const Json &result) {
  std::string text;
  for (const Json &row : result["results"])
    for (const char *place : kPlaces) {
      Json fields = Json::object();
      for (const char *name :
           {"ranks", "machines", "backend", "transport", "op"})
        fields[name] = result[name];
      fields.update(row);
      // The fields of this place are in the line itself.
      fields.erase(kPlaces[0]);
      fields[kPlaces[1]] = place == kPlaces[1] ? 1 : 0;
      fields.update(row[place]);
      std::string names, values;
      for (const auto &item : fields.items()) {
        const Json &value = item.value();
        names += (names.empty() ? "" : ",") + item.key();
        values += (values.empty() ? "" : ",") +
                  (value.is_string() ? value.get<std::string>()
                   : value.is_null() ? std::string()
                                     : value.dump());
      }
      text += (text.empty() ? names + "\n" : "") + values + "\n";
    }
  return text;
}

Status save(AtomicFile &file, const std::string &text) {
  DDPHOOK_TRY(file.write(text.data(), text.size()));
  return file.commit();
}

void show(const std::string &text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

class SweepRank {
public:
  SweepRank(const SweepOptions &options, Context &context)
      : options(options), context(context), group(context), in(context),
        out(context) {}

  /// Prints and writes on rank 0; all ranks get its numbers and call `onRow`.
  Status run(const Bootstrap &place, const std::function<void(int64_t)> &onRow);

private:
  Status compareOptions();
  Status time(const ddphook_collective_t &operation, const void *from,
              Samples *seconds);
  Status check(const ddphook_collective_t &operation, const SweepValues &values,
               int64_t bytes, bool isInPlace, double *wrong);
  Status measure(const HookKind &hook, Dtype dtype, int64_t count, Json *row);

  const SweepOptions &options;
  Context &context;
  Group group;
  Array in, out;
};

} // namespace

Status SweepRank::compareOptions() {
  std::vector<std::string> all;
  DDPHOOK_TRY(
      context.allGather("options of a sweep", options.fingerprint(), &all));
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      return invalid("expected the same options on all ranks, but rank 0 got "
                     "'%s' and rank %zu got '%s'",
                     all[0].c_str(), rank, all[rank].c_str());
  return Status::ok();
}

Status SweepRank::time(const ddphook_collective_t &operation, const void *from,
                       Samples *seconds) {
  for (int i = 0; i < options.warmup; ++i)
    DDPHOOK_TRY(group.run(operation, from, out.as<>()));
  for (int round = 0; round < options.rounds; ++round) {
    DDPHOOK_TRY(group.barrier());
    const double begin = now();
    for (int i = 0; i < options.iterations; ++i)
      DDPHOOK_TRY(group.run(operation, from, out.as<>()));
    DDPHOOK_TRY(context.synchronize());
    seconds->push_back((now() - begin) / options.iterations);
  }
  return Status::ok();
}

Status SweepRank::check(const ddphook_collective_t &operation,
                        const SweepValues &values, int64_t bytes,
                        bool isInPlace, double *wrong) {
  const std::vector<char> input = values.input(context.rank(), operation.count);
  std::vector<char> result(input.size(), kPoison);
  DDPHOOK_TRY(in.write(input.data(), bytes));
  DDPHOOK_TRY(out.write((isInPlace ? input : result).data(), bytes));
  DDPHOOK_TRY(
      group.run(operation, isInPlace ? out.as<>() : in.as<>(), out.as<>()));
  DDPHOOK_TRY(context.synchronize());
  DDPHOOK_TRY(out.read(result.data(), bytes));
  int64_t count = values.countWrong(result.data(), operation.count);
  // A reduction out of place must not write to its input.
  DDPHOOK_TRY(in.read(result.data(), bytes));
  if (result != input)
    count = operation.count;
  *wrong = static_cast<double>(count);
  return Status::ok();
}

Status SweepRank::measure(const HookKind &hook, Dtype dtype, int64_t count,
                          Json *row) {
  const Dtype wire = hook.wire.value_or(dtype);
  const int64_t bytes = count * dtypeSize(dtype);
  const int64_t wireBytes = count * dtypeSize(wire);
  const int ranks = context.worldSize();
  const ddphook_collective_t operation =
      allReduceOf(count, dtype, wire, options.isMean);
  const std::optional<SweepValues> values =
      SweepValues::create(dtype, wire, options.isMean, ranks);
  *row = {{"hook", hook.name},
          {"datatype", dtypeName(dtype)},
          {"wire_datatype", dtypeName(wire)},
          {"size_bytes", bytes},
          {"count", count},
          {"wire_bytes", wireBytes}};
  for (bool isInPlace : {false, true}) {
    Samples seconds;
    std::vector<double> wrong = {0};
    const bool isChecked = options.checks && values;
    if (isChecked)
      DDPHOOK_TRY(check(operation, *values, bytes, isInPlace, &wrong[0]));
    DDPHOOK_TRY(time(operation, isInPlace ? out.as<>() : in.as<>(), &seconds));
    DDPHOOK_TRY(combine(context, &seconds));
    DDPHOOK_TRY(combine(context, &wrong, /*isSum=*/true));
    const double once = median(seconds);
    const auto [least, most] =
        std::minmax_element(seconds.begin(), seconds.end());
    auto perSecond = [&](int64_t size) {
      return once > 0 ? static_cast<double>(size) / once * 1e-9 : 0;
    };
    (*row)[kPlaces[isInPlace]] = {
        {"time_us", once * 1e6},
        {"min_us", *least * 1e6},
        {"max_us", *most * 1e6},
        {"algbw_gbs", perSecond(bytes)},
        // Bytes that each rank's link carries each way, whatever the algorithm.
        {"busbw_gbs", perSecond(wireBytes) * 2 * (ranks - 1) / ranks},
        {"wrong", isChecked ? Json(std::llround(wrong[0])) : Json(nullptr)}};
  }
  return Status::ok();
}

Status SweepRank::run(const Bootstrap &place,
                      const std::function<void(int64_t)> &onRow) {
  const bool isFirst = context.rank() == 0;
  AtomicFile csv(options.csv), json(options.json);
  DDPHOOK_TRY(compareOptions());
  for (Array *array : {&in, &out})
    DDPHOOK_TRY(array->allocate(options.maxBytes));
  std::set<std::string> machines, memories;
  for (const NodeIdentity &node : context.allNodes()) {
    machines.insert(node.node);
    memories.insert(node.memoryDomain);
  }
  DDPHOOK_TRY(group.join("sweep", memories.size() == 1, options.maxBytes));
  // Before measuring: an invalid name must not cost an hour.
  if (isFirst && !options.csv.empty())
    DDPHOOK_TRY(csv.open());
  if (isFirst && !options.json.empty())
    DDPHOOK_TRY(json.open());
  Json result = {{"ranks", context.worldSize()},
                 {"machines", machines.size()},
                 {"backend", place.backend},
                 {"transport", place.transport},
                 {"op", options.isMean ? "mean" : "sum"},
                 {"average_busbw_gbs", 0},
                 {"wrong", nullptr},
                 {"results", Json::array()}};
  if (isFirst)
    show(header(result));
  for (const HookKind &hook : options.hooks)
    for (Dtype dtype : options.dtypes)
      for (int64_t size = options.minBytes; size <= options.maxBytes;
           size = options.stepBytes > 0 ? size + options.stepBytes
                                        : size * options.factor) {
        const int64_t count = size / dtypeSize(dtype);
        if (count == 0)
          continue;
        Json row;
        DDPHOOK_TRY(measure(hook, dtype, count, &row));
        if (isFirst)
          show(line(row));
        result["results"].push_back(std::move(row));
        onRow(static_cast<int64_t>(result["results"].size()));
      }
  DDPHOOK_TRY(context.barrier());
  if (!isFirst)
    return Status::ok();
  summarize(&result);
  show(formatText("# wrong elements: %s\n# average bus bandwidth: %.3f GB/s\n",
                  wrongText(result["wrong"]).c_str(),
                  result["average_busbw_gbs"].get<double>()));
  if (!options.csv.empty())
    DDPHOOK_TRY(save(csv, toCsv(result)));
  if (!options.json.empty())
    DDPHOOK_TRY(save(json, result.dump(2) + "\n"));
  if (!result["wrong"].is_null() && result["wrong"] != 0)
    return dataLoss("expected no wrong elements, but got %s",
                    wrongText(result["wrong"]).c_str());
  return Status::ok();
}

static Status runRank(const SweepOptions &options, const Bootstrap &place,
                      const std::function<void(int64_t)> &onRow) {
  std::unique_ptr<Context> context;
  DDPHOOK_TRY(Context::create(place, &context));
  SweepRank rank(options, *context);
  Status status = rank.run(place, onRow);
  // A rank that fails must not keep the others waiting.
  return status.isOk() ? status : context->fail(std::move(status));
}

static RankGroupResult startRanks(const SweepOptions &options,
                                  double timeoutSeconds) {
  RankGroupOptions group;
  group.ranks = options.ranks > 0 ? options.ranks : 2;
  // A large buffer on a slow link may take many deadlines of one collective.
  group.stallSeconds = timeoutSeconds * 1.1 + 5;
  group.stallSeconds *=
      options.warmup + static_cast<double>(options.iterations) * options.rounds;
  LocalJob job;
  RankGroupResult result;
  result.status = LocalJob::prepare(group.ranks, &job);
  if (!result.status.isOk())
    return result;
  group.body = [&](int32_t rank, RankReport &report) {
    job.enter(rank);
    Bootstrap place;
    DDPHOOK_TRY(findPlace(nullptr, processEnvironment(), &place));
    return runRank(options, place, [&](int64_t row) { report.progress(row); });
  };
  return runRankGroup(group);
}

int bench::benchSweep(const Arguments &arguments) {
  constexpr const char *help = "ddphook-bench sweep --help";
  SweepOptions options;
  Status status = options.parse(arguments);
  if (!status.isOk())
    return fail(status, help);
  if (options.wantsHelp) {
    show("usage: ddphook-bench sweep [OPTIONS]\n"
         "\n"
         "Times all-reduces of buffers of growing size, checks every element, "
         "and prints\n"
         "algorithm and bus bandwidth as nccl-tests define them. Run it alone, "
         "and it starts\n"
         "its ranks on this machine; run it with torchrun, mpirun, srun or by "
         "hand with RANK,\n"
         "WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and each process is a "
         "rank.\n\n" +
         helpOf(options.flags()) +
         "\nThe runtime's variables apply, DDPHOOK_TRANSPORT and "
         "DDPHOOK_BACKEND for example.\n");
    return 0;
  }
  Bootstrap place;
  status = findPlace(nullptr, processEnvironment(), &place);
  if (!status.isOk())
    return fail(status);
  if (!place.isLaunched) {
    const RankGroupResult result = startRanks(options, place.timeoutSeconds);
    if (result.status.isOk())
      return 0;
    fail(result.status);
    return result.signal != 0 ? 128 + result.signal : 1;
  }
  if (options.ranks > 0 && options.ranks != place.worldSize)
    return fail(invalid("expected --ranks to be the world size of the launched "
                        "job, %d, but got %d",
                        place.worldSize, options.ranks),
                help);
  status = withContext(runRank(options, place, [](int64_t) {}),
                       "rank " + std::to_string(place.rank));
  return status.isOk() ? 0 : fail(status);
}
