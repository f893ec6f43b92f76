// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Implements backend.h, which states the contracts, for CPUs.

#include "host_backend.h"

#include "backend/backend_store.h"
#include "base/collective.h"
#include "comm_thread.h"
#include "encode.h"
#include "encoded_chunks.h"
#include "host_communicator.h"
#include "host_memory.h"
#include "kernels.h"
#include "matrix_list.h"
#include "node_pipeline.h"
#include "thread_pool.h"
#include "trace/recorder.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <numeric>
#include <set>
#include <type_traits>

using namespace ddphook;
using namespace ddphook::host;

struct ddphook_communicator : HostCommunicator {
  /// Where started collectives run.
  CommThread::RunsOn runsOn = CommThread::RunsOn::Thread;
};

struct ddphook_matrices {
  std::unique_ptr<MatrixList> impl;
};

namespace ddphook::host {

/// Which started collectives run on a thread of their own: those of groups that
/// span machines, all, or none.
enum class AsyncProgress { Auto, Always, Never };

/// The functions of the table, which pass failures and exceptions to HostCall.
/// Those of functions.inc have the same names there.
class HostDevice {
public:
  Status open(const ddphook_device_config_t &config);
  Status createCommunicator(const ddphook_communicator_config_t *config,
                            ddphook_communicator_t **communicator);
  void destroyCommunicator(ddphook_communicator_t *communicator);
  Status runCollective(ddphook_communicator_t *communicator,
                       const ddphook_collective_t *operation, const void *in,
                       void *out, int64_t *ticket);
  Status runStaged(ddphook_communicator_t *node, ddphook_communicator_t *across,
                   const ddphook_collective_t *operation, const void *in,
                   void *out, void *share, int64_t *ticket);
  Status waitFor(int64_t ticket) { return commThread.wait(ticket); }
  Status synchronize() { return commThread.waitForAll(); }
  void abort(const Status &reason);

  Status allocate(uint64_t bytes, uint64_t alignment, void **memory) {
    return allocateMemory(bytes, alignment, memory);
  }
  void write(void *memory, const void *host, uint64_t bytes) {
    copyBytes(memory, host, static_cast<int64_t>(bytes));
  }
  void read(void *host, const void *memory, uint64_t bytes) {
    copyBytes(host, memory, static_cast<int64_t>(bytes));
  }
  Status setStream(void *stream) {
    return stream ? unsupported("the host backend has no streams")
                  : Status::ok();
  }

  void copy(const void *in, void *out, int64_t bytes) {
    forRanges(bytes, 2, [&](int64_t begin, int64_t n) {
      copyBytes(static_cast<char *>(out) + begin,
                static_cast<const char *>(in) + begin, n);
    });
  }
  void zero(void *out, int64_t bytes) {
    forRanges(bytes, 1, [&](int64_t begin, int64_t n) {
      if (n > 0) // memset() forbids null pointers even for 0 bytes
        std::memset(static_cast<char *>(out) + begin, 0, n);
    });
  }
  void cast(const void *in, int32_t inDtype, void *out, int32_t outDtype,
            int64_t count) {
    const auto from = static_cast<CastDtype>(inDtype);
    const auto to = static_cast<CastDtype>(outDtype);
    forRanges(count, dtypeSize(from) + dtypeSize(to),
              [&](int64_t begin, int64_t n) {
                castArray(elementAt(in, from, begin), from,
                          elementAt(out, to, begin), to, n);
              });
  }
  void divide_by_group_size(int64_t size, const void *in, void *out,
                            int64_t count, int32_t dtype) {
    map(divideArray, in, out, count, dtype, size);
  }
  void scale(double factor, const void *in, void *out, int64_t count,
             int32_t dtype) {
    map(scaleArray, in, out, count, dtype, factor);
  }
  void add(const void *a, const void *b, void *out, int64_t count,
           int32_t dtype) {
    combine(addArrays, a, b, out, count, dtype);
  }
  void subtract(const void *a, const void *b, void *out, int64_t count,
                int32_t dtype) {
    combine(subtractArrays, a, b, out, count, dtype);
  }
  void encoding_error(const void *in, void *out, int64_t count, int32_t dtype,
                      int32_t encoding, int64_t block, int32_t rank,
                      int64_t stream, int64_t step);
  Status sparsify(int64_t keep, const void *in, int64_t count, void *entries,
                  void *rest) {
    DDPHOOK_TRY(checkKept(keep, count));
    takeLargest(static_cast<const float *>(in), count, keep, entries,
                static_cast<float *>(rest), candidates);
    return Status::ok();
  }
  Status densify(const void *entries, int64_t parts, int64_t keep, void *out,
                 int64_t count) {
    if (addEntries(entries, parts, keep, static_cast<float *>(out), count))
      return Status::ok();
    return dataLoss(concat("expected ascending indices below ", count,
                           " for a rank's largest elements, but got others"));
  }
  void isFinite(const void *in, int64_t count, int32_t dtype, int32_t *result);
  void sumSquares(const void *in, int64_t count, int32_t dtype, double *result);

  Status createMatrices(const ddphook_matrix_list_t *list, int32_t dtype,
                        ddphook_matrices_t **matrices) {
    auto result = std::make_unique<ddphook_matrices>();
    DDPHOOK_TRY(
        MatrixList::create(*list, toDtype(dtype), *pool, &result->impl));
    *matrices = result.release();
    return Status::ok();
  }
  void matmul(ddphook_matrices_t *matrices, int32_t kind, void *matrix, void *p,
              void *q) {
    matrices->impl->matmul(static_cast<ddphook_matmul_kind_t>(kind), matrix, p,
                           q);
  }
  void orthogonalize(ddphook_matrices_t *matrices, int32_t factor,
                     const void *in, void *out, double epsilon) {
    matrices->impl->orthogonalize(factor, in, out, epsilon);
  }
  void project(ddphook_matrices_t *matrices, const void *g, const void *e,
               const void *q, void *m, void *p, void *rest) {
    matrices->impl->project(g, e, q, m, p, rest);
  }
  void reconstruct(ddphook_matrices_t *matrices, const void *p, const void *q,
                   const void *rest, const void *m, void *out, void *err,
                   int64_t divisor) {
    matrices->impl->reconstruct(p, q, rest, m, out, err, divisor);
  }

private:
  /// Converts a type number, which callers have checked.
  static Dtype toDtype(int32_t value) { return static_cast<Dtype>(value); }

  /// Calls fn(first element, count) for ranges that cover an array, on several
  /// threads if it is large. `bytes` are read and written per element.
  template <class Fn>
  void forRanges(int64_t count, int64_t bytes, const Fn &fn) {
    // For fewer bytes, waking a thread takes longer than it saves.
    constexpr int64_t leastBytes = 256 << 10;
    constexpr int64_t partsPerThread = 4, unit = 1024;
    const int threads = pool->threads();
    const int64_t parts =
        std::min(threads * partsPerThread, count * bytes / leastBytes);
    if (threads == 1 || parts < 2)
      return fn(0, count);
    const int64_t step = (count / parts + unit) / unit * unit;
    pool->run((count + step - 1) / step, [&](int64_t part, int) {
      const int64_t begin = part * step;
      fn(begin, std::min(step, count - begin));
    });
  }
  template <class Function, class Operand>
  void map(const Function &function, const void *in, void *out, int64_t count,
           int32_t dtype, Operand operand) {
    const Dtype type = toDtype(dtype);
    forRanges(count, 2 * dtypeSize(type), [&](int64_t begin, int64_t n) {
      function(elementAt(in, type, begin), elementAt(out, type, begin), type, n,
               operand);
    });
  }
  template <class Function>
  void combine(const Function &function, const void *a, const void *b,
               void *out, int64_t count, int32_t dtype) {
    const Dtype type = toDtype(dtype);
    forRanges(count, 3 * dtypeSize(type), [&](int64_t begin, int64_t n) {
      function(elementAt(out, type, begin), elementAt(a, type, begin),
               elementAt(b, type, begin), type, n);
    });
  }

  Status makeGloo(GlooDevice **result);
  CommThread::RunsOn placeOf(const ddphook_communicator_config_t &config) const;
  Status runOrStart(CommThread::Job job, CommThread::RunsOn place,
                    int64_t *ticket);
  void closeAll();

  Transport transport = Transport::Auto;
  AsyncProgress asyncProgress = AsyncProgress::Auto;
  double timeoutSeconds = 300;
  std::string localAddress;

  /// Protects the members below from abort(), which other threads call.
  std::mutex mutex;
  std::set<ddphook_communicator *> communicators;
  std::unique_ptr<GlooDevice> gloo;
  /// Groups that are still being joined are not in `communicators`.
  std::atomic<bool> isAborted{false};

  /// Jobs of `commThread` use it, so `commThread` is destroyed first.
  NodePipeline pipeline;
  CommThread commThread{[this] { closeAll(); }};

  /// For kernels only; collectives run on one thread.
  std::unique_ptr<ThreadPool> pool;
  Candidates candidates;
};

} // namespace ddphook::host

struct ddphook_device : HostDevice {};

namespace ddphook::host {

/// The function of the table that calls a function of the device.
template <auto function>
struct HostCall;
template <typename Result, typename... Arguments,
          Result (HostDevice::*function)(Arguments...)>
struct HostCall<function> {
  static ddphook_status_t run(ddphook_device_t *device, Arguments... arguments,
                              ddphook_backend_error_t *error) {
    return reportTo(error, [&] {
      if constexpr (std::is_void_v<Result>) {
        (device->*function)(arguments...);
        return Status::ok();
      } else {
        return (device->*function)(arguments...);
      }
    });
  }
};

} // namespace ddphook::host

/// Parses "name=value,name=value" of DDPHOOK_BACKEND_OPTIONS.
static Status parseOptions(const std::string &text, AsyncProgress *progress) {
  bool isGiven = false;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string entry = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = entry.find('=');
    if (equals == std::string::npos)
      return invalid("expected an option name=value, but got '%s'",
                     entry.c_str());
    const std::string name = entry.substr(0, equals);
    if (name != "async_progress")
      return invalid(
          "expected the host backend's option async_progress, but got "
          "'%s'",
          name.c_str());
    if (isGiven)
      return invalid("option %s is given twice", name.c_str());
    isGiven = true;
    const std::string value = entry.substr(equals + 1);
    if (value == "auto")
      *progress = AsyncProgress::Auto;
    else if (value == "always")
      *progress = AsyncProgress::Always;
    else if (value == "never")
      *progress = AsyncProgress::Never;
    else
      return invalid(
          "option async_progress: expected 'auto', 'always' or 'never', "
          "but got '%s'",
          value.c_str());
  }
  return Status::ok();
}

Status HostDevice::open(const ddphook_device_config_t &config) {
  if (const char *set = missingInstructionSet())
    return unsupported(
        "the host backend was built for processors with %s, which "
        "this one lacks; with -DDDPHOOK_INSTRUCTION_SETS=ALL it needs "
        "no more than SSE4 on x86-64",
        set);
  if (config.allocator)
    return unsupported(
        "the host backend cannot use options.allocator, which is for "
        "memory of a device; leave it null");
  DDPHOOK_TRY(parseTransport(config.transport, &transport));
  DDPHOOK_TRY(
      parseOptions(config.options ? config.options : "", &asyncProgress));
  if (config.threads < 1)
    return invalid("expected at least 1 thread, but got %d", config.threads);
  timeoutSeconds = config.timeout_s;
  localAddress = config.local_address;
  pool = std::make_unique<ThreadPool>(config.threads);
  return Status::ok();
}

static ddphook_status_t createDevice(const ddphook_device_config_t *config,
                                     ddphook_device_t **device,
                                     ddphook_backend_error_t *error) {
  return reportTo(error, [&] {
    auto result = std::make_unique<ddphook_device>();
    DDPHOOK_TRY(result->open(*config));
    *device = result.release();
    return Status::ok();
  });
}

/// Within a machine communication is not slower than the processors that
/// reduce, and these also run the program: a thread would only compete with it.
/// All ranks of a group decide alike here, but need not: see comm_thread.h.
CommThread::RunsOn
HostDevice::placeOf(const ddphook_communicator_config_t &config) const {
  const bool isBeside = asyncProgress == AsyncProgress::Auto
                            ? !config.one_machine
                            : asyncProgress == AsyncProgress::Always;
  return isBeside ? CommThread::RunsOn::Thread : CommThread::RunsOn::Caller;
}

/// Only one thread calls this and sets the pointer.
Status HostDevice::makeGloo(GlooDevice **result) {
  if (!gloo) {
    std::unique_ptr<GlooDevice> made;
    DDPHOOK_TRY(GlooDevice::create(localAddress, &made));
    std::lock_guard<std::mutex> lock(mutex);
    if (isAborted)
      made->abort();
    gloo = std::move(made);
  }
  *result = gloo.get();
  return Status::ok();
}

Status
HostDevice::createCommunicator(const ddphook_communicator_config_t *config,
                               ddphook_communicator_t **communicator) {
  auto result = std::make_unique<ddphook_communicator>();
  DDPHOOK_TRY(result->join(
      *config, transport, timeoutSeconds,
      [this](GlooDevice **device) { return makeGloo(device); }, isAborted));
  result->runsOn = placeOf(*config);
  std::lock_guard<std::mutex> lock(mutex);
  if (isAborted)
    return error(DDPHOOK_ABORTED, "the group was aborted on this rank");
  communicators.insert(result.get());
  *communicator = result.release();
  return Status::ok();
}

void HostDevice::destroyCommunicator(ddphook_communicator_t *communicator) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    communicators.erase(communicator);
  }
  delete communicator;
}

void HostDevice::closeAll() {
  std::lock_guard<std::mutex> lock(mutex);
  for (ddphook_communicator *communicator : communicators) {
    communicator->abort();
    communicator->close();
  }
}

void HostDevice::abort(const Status &reason) {
  // Set the reason first: a call that ends now must not seem the cause.
  commThread.abort(reason);
  pipeline.abort(reason);
  std::lock_guard<std::mutex> lock(mutex);
  isAborted = true;
  if (gloo)
    gloo->abort();
  for (ddphook_communicator *communicator : communicators)
    communicator->abort();
}

/// Uses several threads.
void HostDevice::encoding_error(const void *in, void *out, int64_t count,
                                int32_t dtype, int32_t encoding, int64_t block,
                                int32_t rank, int64_t stream, int64_t step) {
  const Dtype type = toDtype(dtype);
  const Encoding codes = *encodingFromAbi(encoding, block);
  std::optional<Rounding> rounding;
  if (rank >= 0)
    rounding = Rounding::ofSum(stream, step).ofRank(rank);
  // Ranges start at block boundaries; a single block may be the whole array.
  const bool isOneBlock = codes.isAffine() && codes.block == 0;
  const int64_t unit = std::max<int64_t>(isOneBlock ? count : codes.block, 1);
  forRanges((count + unit - 1) / unit, 2 * dtypeSize(type) * unit,
            [&](int64_t begin, int64_t n) {
              const int64_t first = begin * unit;
              encodingError(elementAt(in, type, first),
                            elementAt(out, type, first), type,
                            std::min(n * unit, count - first), codes,
                            from(rounding, first));
            });
}

void HostDevice::isFinite(const void *in, int64_t count, int32_t dtype,
                          int32_t *result) {
  const Dtype type = toDtype(dtype);
  std::atomic<bool> allFinite{true};
  forRanges(count, dtypeSize(type), [&](int64_t begin, int64_t n) {
    if (allFinite && !isFiniteArray(elementAt(in, type, begin), type, n))
      allFinite = false;
  });
  *result = allFinite;
}

void HostDevice::sumSquares(const void *in, int64_t count, int32_t dtype,
                            double *result) {
  // In the caches, and in one order whatever the number of threads.
  std::array<double, 2048> values;
  constexpr auto most = static_cast<int64_t>(values.size());
  const Dtype type = toDtype(dtype);
  *result = 0;
  for (int64_t begin = 0; begin < count; begin += most) {
    const int64_t n = std::min(most, count - begin);
    castArray(elementAt(in, type, begin), type, values.data(), Dtype::F64, n);
    *result = std::inner_product(values.data(), values.data() + n,
                                 values.data(), *result);
  }
}

/// Runs a job or, if `ticket` is not null, starts it.
Status HostDevice::runOrStart(CommThread::Job job, CommThread::RunsOn place,
                              int64_t *ticket) {
  return ticket ? commThread.start(std::move(job), place, ticket)
                : commThread.run(std::move(job));
}

Status HostDevice::runCollective(ddphook_communicator_t *communicator,
                                 const ddphook_collective_t *operation,
                                 const void *in, void *out, int64_t *ticket) {
  DDPHOOK_TRY(checkCollective(*operation, communicator->size()));
  const CollectiveDesc desc(*operation, communicator->size());
  void *const kept = operation->error;
  const trace::CollectiveTag tag =
      trace::CollectiveCall::take(desc.collectiveKind());
  auto job = [communicator, desc, in, out, kept, tag] {
    trace::CollectiveScope scope(tag);
    if (kept)
      feedBackError(desc, communicator->rank(), in, kept, out);
    Status status = communicator->run(desc, kept ? out : in, out);
    if (status.isOk())
      scope.succeed();
    return status;
  };
  return runOrStart(job, communicator->runsOn, ticket);
}

Status HostDevice::runStaged(ddphook_communicator_t *node,
                             ddphook_communicator_t *across,
                             const ddphook_collective_t *operation,
                             const void *in, void *out, void *share,
                             int64_t *ticket) {
  DDPHOOK_TRY(checkCollective(*operation, node->size()));
  StagedReduction stages = {};
  stages.node = node;
  stages.across = across;
  stages.nodeRanks = node->size();
  stages.in = in;
  stages.out = out;
  stages.share = share;
  const ElementRange part =
      partOf(operation->count, node->size(), node->rank());
  ddphook_collective_t ofPart = *operation;
  if (ofPart.error)
    stages.error = elementAt(ofPart.error, toDtype(ofPart.dtype), part.begin);
  ofPart.count = part.size();
  ofPart.rounding.share = node->rank();
  stages.setStages(operation->count, CollectiveDesc(ofPart, across->size()));
  return runOrStart([this, stages] { return pipeline.run(stages); },
                    across->runsOn, ticket);
}

const ddphook_backend_t &host::hostBackend() {
  static const ddphook_backend_t backend = [] {
    ddphook_backend_t table = {};
    table.struct_size = sizeof(table);
    table.collective_size = sizeof(ddphook_collective_t);
    table.abi_version = DDPHOOK_BACKEND_ABI_VERSION;
    table.name = "host";
    table.memory_is_host = 1;
#define DDPHOOK_ENCODING(NAME, name, bits, KIND, value)                        \
  table.encodings |= 1u << value;
#include "ddphook/runtime/encodings.inc"
    table.device_create = createDevice;
    table.device_destroy = [](ddphook_device_t *device) { delete device; };
    table.memory_alloc = HostCall<&HostDevice::allocate>::run;
    table.memory_free = [](ddphook_device_t *, void *memory, uint64_t bytes) {
      freeMemory(memory, bytes);
    };
    table.memory_write = HostCall<&HostDevice::write>::run;
    table.memory_read = HostCall<&HostDevice::read>::run;
    table.stream_set = HostCall<&HostDevice::setStream>::run;
    table.synchronize = HostCall<&HostDevice::synchronize>::run;
    table.communicator_create = HostCall<&HostDevice::createCommunicator>::run;
    table.communicator_destroy = [](ddphook_device_t *device,
                                    ddphook_communicator_t *communicator) {
      device->destroyCommunicator(communicator);
    };
    table.is_finite = HostCall<&HostDevice::isFinite>::run;
    table.sum_squares = HostCall<&HostDevice::sumSquares>::run;
    table.matrices_create = HostCall<&HostDevice::createMatrices>::run;
    table.matrices_destroy = [](ddphook_device_t *,
                                ddphook_matrices_t *matrices) {
      delete matrices;
    };
#define DDPHOOK_DEVICE_FUNCTION(name, ...)                                     \
  table.name = HostCall<&HostDevice::name>::run;
#include "ddphook/runtime/functions.inc"
    table.collective = HostCall<&HostDevice::runCollective>::run;
    table.collective_staged = HostCall<&HostDevice::runStaged>::run;
    table.wait = HostCall<&HostDevice::waitFor>::run;
    table.abort = [](ddphook_device_t *device, ddphook_status_t status,
                     const char *message) {
      ignoreExceptions([&] { device->abort(Status(status, message)); });
    };
    return table;
  }();
  return backend;
}
