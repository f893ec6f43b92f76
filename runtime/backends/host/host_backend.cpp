// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Implements backend.h, which states the contracts, for CPUs.

#include "host_backend.h"

#include "array_ranges.h"
#include "backend/backend_store.h"
#include "base/collective.h"
#include "base/floating_point.h"
#include "comm_thread.h"
#include "encode.h"
#include "encoded_chunks.h"
#include "host_communicator.h"
#include "host_memory.h"
#include "host_options.h"
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

using namespace ddphook;
using namespace ddphook::host;

struct ddphook_communicator {
  std::unique_ptr<HostCommunicator> impl;
  int32_t size = 1;
  int32_t rank = 0;
  /// Where started collectives run.
  CommThread::RunsOn place = CommThread::RunsOn::Thread;
};

struct ddphook_matrices {
  std::unique_ptr<MatrixList> impl;
};

struct ddphook_device {
  Transport transport = Transport::Auto;
  HostOptions options;
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

  void closeAll() {
    std::lock_guard<std::mutex> lock(mutex);
    for (ddphook_communicator *communicator : communicators) {
      communicator->impl->abort();
      communicator->impl->close();
    }
  }
};

static Status createDeviceImpl(const ddphook_device_config_t &config,
                               ddphook_device_t **device) {
  if (const char *set = missingInstructionSet())
    return error(DDPHOOK_UNSUPPORTED,
                 "the host backend was built for processors with %s, which "
                 "this one lacks; with -DDDPHOOK_INSTRUCTION_SETS=ALL it needs "
                 "no more than SSE4 on x86-64",
                 set);
  if (config.allocator)
    return error(DDPHOOK_UNSUPPORTED,
                 "the host backend cannot use options.allocator, which is for "
                 "memory of a device; leave it null");
  auto result = std::make_unique<ddphook_device>();
  DDPHOOK_TRY(parseTransport(config.transport, &result->transport));
  DDPHOOK_TRY(HostOptions::parse(config.options ? config.options : "",
                                 &result->options));
  if (config.threads < 1)
    return invalid("expected at least 1 thread, but got %d", config.threads);
  result->timeoutSeconds = config.timeout_s;
  result->localAddress = config.local_address;
  result->pool = std::make_unique<ThreadPool>(config.threads);
  *device = result.release();
  return Status::ok();
}

static ddphook_status_t createDevice(const ddphook_device_config_t *config,
                                     ddphook_device_t **device,
                                     ddphook_backend_error_t *error) {
  return reportTo(error, [&] { return createDeviceImpl(*config, device); });
}

static void destroyDevice(ddphook_device_t *device) { delete device; }

static ddphook_status_t allocate(ddphook_device_t *, uint64_t bytes,
                                 uint64_t alignment, void **memory,
                                 ddphook_backend_error_t *error) {
  return toBackendError(allocateMemory(bytes, alignment, memory), error);
}

static void release(ddphook_device_t *, void *memory, uint64_t bytes) {
  freeMemory(memory, bytes);
}

static ddphook_status_t writeMemory(ddphook_device_t *, void *memory,
                                    const void *host, uint64_t bytes,
                                    ddphook_backend_error_t *) {
  copyBytes(memory, host, static_cast<int64_t>(bytes));
  return DDPHOOK_OK;
}

static ddphook_status_t readMemory(ddphook_device_t *, void *host,
                                   const void *memory, uint64_t bytes,
                                   ddphook_backend_error_t *) {
  copyBytes(host, memory, static_cast<int64_t>(bytes));
  return DDPHOOK_OK;
}

static ddphook_status_t setStream(ddphook_device_t *, void *stream,
                                  ddphook_backend_error_t *message) {
  return toBackendError(
      stream ? error(DDPHOOK_UNSUPPORTED, "the host backend has no streams")
             : Status::ok(),
      message);
}

/// Within a machine communication is not slower than the processors that
/// reduce, and these also run the program: a thread would only compete with it.
/// All ranks of a group decide alike here, but need not: see comm_thread.h.
static CommThread::RunsOn placeOf(const HostOptions &options,
                                  const ddphook_communicator_config_t &config) {
  const bool isBeside = options.asyncProgress == AsyncProgress::Auto
                            ? !config.one_machine
                            : options.asyncProgress == AsyncProgress::Always;
  return isBeside ? CommThread::RunsOn::Thread : CommThread::RunsOn::Caller;
}

static Status
createCommunicatorImpl(ddphook_device_t *device,
                       const ddphook_communicator_config_t &config,
                       ddphook_communicator_t **communicator) {
  auto result = std::make_unique<ddphook_communicator>();
  auto makeDevice = [device](GlooDevice **gloo) {
    // Only this thread sets the pointer.
    if (!device->gloo) {
      std::unique_ptr<GlooDevice> made;
      DDPHOOK_TRY(GlooDevice::create(device->localAddress, &made));
      std::lock_guard<std::mutex> lock(device->mutex);
      if (device->isAborted)
        made->abort();
      device->gloo = std::move(made);
    }
    *gloo = device->gloo.get();
    return Status::ok();
  };
  DDPHOOK_TRY(HostCommunicator::create(config, device->transport,
                                       device->timeoutSeconds, makeDevice,
                                       device->isAborted, &result->impl));
  result->size = config.size;
  result->rank = config.rank;
  result->place = placeOf(device->options, config);
  std::lock_guard<std::mutex> lock(device->mutex);
  if (device->isAborted)
    return error(DDPHOOK_ABORTED, "the group was aborted on this rank");
  device->communicators.insert(result.get());
  *communicator = result.release();
  return Status::ok();
}

static ddphook_status_t createCommunicator(
    ddphook_device_t *device, const ddphook_communicator_config_t *config,
    ddphook_communicator_t **communicator, ddphook_backend_error_t *error) {
  return reportTo(error, [&] {
    return createCommunicatorImpl(device, *config, communicator);
  });
}

static void destroyCommunicator(ddphook_device_t *device,
                                ddphook_communicator_t *communicator) {
  {
    std::lock_guard<std::mutex> lock(device->mutex);
    device->communicators.erase(communicator);
  }
  delete communicator;
}

/// Converts a type number, which callers have checked.
static Dtype toDtype(int32_t value) { return static_cast<Dtype>(value); }

// The functions of functions.inc, under the same names.

static ddphook_status_t copy(ddphook_device_t *device, const void *in,
                             void *out, int64_t bytes,
                             ddphook_backend_error_t *) {
  forRanges(*device->pool, bytes, 2, [&](int64_t begin, int64_t n) {
    copyBytes(static_cast<char *>(out) + begin,
              static_cast<const char *>(in) + begin, n);
  });
  return DDPHOOK_OK;
}

static ddphook_status_t zero(ddphook_device_t *device, void *out, int64_t bytes,
                             ddphook_backend_error_t *) {
  forRanges(*device->pool, bytes, 1, [&](int64_t begin, int64_t n) {
    if (n > 0) // memset() forbids null pointers even for 0 bytes
      std::memset(static_cast<char *>(out) + begin, 0, static_cast<size_t>(n));
  });
  return DDPHOOK_OK;
}

static ddphook_status_t cast(ddphook_device_t *device, const void *in,
                             int32_t inDtype, void *out, int32_t outDtype,
                             int64_t count, ddphook_backend_error_t *) {
  const auto from = static_cast<CastDtype>(inDtype);
  const auto to = static_cast<CastDtype>(outDtype);
  forRanges(*device->pool, count, dtypeSize(from) + dtypeSize(to),
            [&](int64_t begin, int64_t n) {
              castArray(elementAt(in, from, begin), from,
                        elementAt(out, to, begin), to, n);
            });
  return DDPHOOK_OK;
}

static ddphook_status_t divide_by_group_size(ddphook_device_t *device,
                                             int64_t size, const void *in,
                                             void *out, int64_t count,
                                             int32_t dtype,
                                             ddphook_backend_error_t *) {
  const Dtype type = toDtype(dtype);
  forRanges(*device->pool, count, 2 * dtypeSize(type),
            [&](int64_t begin, int64_t n) {
              divideArray(elementAt(in, type, begin),
                          elementAt(out, type, begin), type, n, size);
            });
  return DDPHOOK_OK;
}

static ddphook_status_t scale(ddphook_device_t *device, double factor,
                              const void *in, void *out, int64_t count,
                              int32_t dtype, ddphook_backend_error_t *) {
  const Dtype type = toDtype(dtype);
  forRanges(*device->pool, count, 2 * dtypeSize(type),
            [&](int64_t begin, int64_t n) {
              scaleArray(elementAt(in, type, begin),
                         elementAt(out, type, begin), type, n, factor);
            });
  return DDPHOOK_OK;
}

/// Combines two arrays with `function`, addArrays() or subtractArrays().
template <auto function>
static ddphook_status_t combine(ddphook_device_t *device, const void *a,
                                const void *b, void *out, int64_t count,
                                int32_t dtype, ddphook_backend_error_t *) {
  const Dtype type = toDtype(dtype);
  forRanges(*device->pool, count, 3 * dtypeSize(type),
            [&](int64_t begin, int64_t n) {
              function(elementAt(out, type, begin), elementAt(a, type, begin),
                       elementAt(b, type, begin), type, n);
            });
  return DDPHOOK_OK;
}
static constexpr auto add = combine<addArrays>;
static constexpr auto subtract = combine<subtractArrays>;

/// Uses several threads.
static ddphook_status_t encoding_error(ddphook_device_t *device, const void *in,
                                       void *out, int64_t count, int32_t dtype,
                                       int32_t encoding, int64_t block,
                                       int32_t rank, int64_t stream,
                                       int64_t step,
                                       ddphook_backend_error_t *) {
  const Dtype type = toDtype(dtype);
  const Encoding codes = *encodingFromAbi(encoding, block);
  std::optional<Rounding> rounding;
  if (rank >= 0)
    rounding = Rounding::ofSum(stream, step).ofRank(rank);
  // Ranges start at block boundaries; a single block may be the whole array.
  const bool isOneBlock = codes.isAffine() && codes.block == 0;
  const int64_t unit = std::max<int64_t>(isOneBlock ? count : codes.block, 1);
  forRanges(*device->pool, (count + unit - 1) / unit,
            2 * dtypeSize(type) * unit, [&](int64_t begin, int64_t n) {
              const int64_t first = begin * unit;
              encodingError(elementAt(in, type, first),
                            elementAt(out, type, first), type,
                            std::min(n * unit, count - first), codes,
                            from(rounding, first));
            });
  return DDPHOOK_OK;
}

static ddphook_status_t sparsify(ddphook_device_t *, int64_t keep,
                                 const void *in, int64_t count, void *entries,
                                 void *rest, ddphook_backend_error_t *error) {
  return reportTo(error, [&] {
    DDPHOOK_TRY(checkKept(keep, count));
    takeLargest(static_cast<const float *>(in), count, keep, entries,
                static_cast<float *>(rest));
    return Status::ok();
  });
}

static ddphook_status_t densify(ddphook_device_t *, const void *entries,
                                int64_t parts, int64_t keep, void *out,
                                int64_t count, ddphook_backend_error_t *error) {
  if (addEntries(entries, parts, keep, static_cast<float *>(out), count))
    return DDPHOOK_OK;
  return toBackendError(
      ddphook::error(DDPHOOK_DATA_LOSS,
                     "expected indices below %lld for a rank's largest "
                     "elements, but got larger ones",
                     static_cast<long long>(count)),
      error);
}

static ddphook_status_t isFinite(ddphook_device_t *device, const void *in,
                                 int64_t count, int32_t dtype, int32_t *result,
                                 ddphook_backend_error_t *) {
  const Dtype type = toDtype(dtype);
  std::atomic<bool> allFinite{true};
  forRanges(
      *device->pool, count, dtypeSize(type), [&](int64_t begin, int64_t n) {
        if (allFinite && !isFiniteArray(elementAt(in, type, begin), type, n))
          allFinite = false;
      });
  *result = allFinite;
  return DDPHOOK_OK;
}

static ddphook_status_t sumSquares(ddphook_device_t *, const void *in,
                                   int64_t count, int32_t dtype, double *result,
                                   ddphook_backend_error_t *) {
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
  return DDPHOOK_OK;
}

static ddphook_status_t createMatrices(ddphook_device_t *device,
                                       const ddphook_matrix_list_t *list,
                                       int32_t dtype,
                                       ddphook_matrices_t **matrices,
                                       ddphook_backend_error_t *error) {
  return reportTo(error, [&] {
    auto result = std::make_unique<ddphook_matrices>();
    DDPHOOK_TRY(MatrixList::create(*list, toDtype(dtype), *device->pool,
                                   &result->impl));
    *matrices = result.release();
    return Status::ok();
  });
}

static void destroyMatrices(ddphook_device_t *, ddphook_matrices_t *matrices) {
  delete matrices;
}

static ddphook_status_t matmul(ddphook_device_t *, ddphook_matrices_t *matrices,
                               int32_t kind, void *matrix, void *p, void *q,
                               ddphook_backend_error_t *) {
  matrices->impl->matmul(static_cast<ddphook_matmul_kind_t>(kind), matrix, p,
                         q);
  return DDPHOOK_OK;
}

static ddphook_status_t orthogonalize(ddphook_device_t *,
                                      ddphook_matrices_t *matrices,
                                      int32_t factor, const void *in, void *out,
                                      double epsilon,
                                      ddphook_backend_error_t *) {
  matrices->impl->orthogonalize(factor, in, out, epsilon);
  return DDPHOOK_OK;
}

static ddphook_status_t project(ddphook_device_t *,
                                ddphook_matrices_t *matrices, const void *g,
                                const void *e, const void *q, void *m, void *p,
                                void *rest, ddphook_backend_error_t *) {
  matrices->impl->project(g, e, q, m, p, rest);
  return DDPHOOK_OK;
}

static ddphook_status_t
reconstruct(ddphook_device_t *, ddphook_matrices_t *matrices, const void *p,
            const void *q, const void *rest, const void *m, void *out,
            void *err, int64_t divisor, ddphook_backend_error_t *) {
  matrices->impl->reconstruct(p, q, rest, m, out, err, divisor);
  return DDPHOOK_OK;
}

/// Runs a job or, if `ticket` is not null, starts it.
static Status runOrStart(ddphook_device_t *device, CommThread::Job job,
                         CommThread::RunsOn place, int64_t *ticket) {
  return ticket ? device->commThread.start(std::move(job), place, ticket)
                : device->commThread.run(std::move(job));
}

static Status makeJob(ddphook_communicator_t *communicator,
                      const ddphook_collective_t &operation, const void *in,
                      void *out, CommThread::Job *job) {
  DDPHOOK_TRY(checkCollective(operation, communicator->size));
  const CollectiveDesc desc(operation, communicator->size);
  void *const kept = operation.error;
  const trace::CollectiveTag tag =
      trace::CollectiveCall::take(desc.collectiveKind());
  *job = [communicator, desc, in, out, kept, tag] {
    trace::CollectiveScope scope(tag);
    if (kept)
      feedBackError(desc, communicator->rank, in, kept, out);
    Status status = communicator->impl->run(desc, kept ? out : in, out);
    if (status.isOk())
      scope.succeed();
    return status;
  };
  return Status::ok();
}

static ddphook_status_t
runCollective(ddphook_device_t *device, ddphook_communicator_t *communicator,
              const ddphook_collective_t *operation, const void *in, void *out,
              int64_t *ticket, ddphook_backend_error_t *error) {
  return reportTo(error, [&] {
    CommThread::Job job;
    DDPHOOK_TRY(makeJob(communicator, *operation, in, out, &job));
    return runOrStart(device, std::move(job), communicator->place, ticket);
  });
}

static Status runStaged(ddphook_device_t *device, ddphook_communicator_t *node,
                        ddphook_communicator_t *across,
                        ddphook_collective_t operation, const void *in,
                        void *out, void *share, int64_t *ticket) {
  DDPHOOK_TRY(checkCollective(operation, node->size));
  StagedReduction stages = {};
  stages.node = node->impl.get();
  stages.across = across->impl.get();
  stages.nodeRanks = node->size;
  stages.in = in;
  stages.out = out;
  stages.share = share;
  const int64_t count = operation.count;
  const ElementRange part = partOf(count, node->size, node->rank);
  if (operation.error)
    stages.error =
        elementAt(operation.error, toDtype(operation.dtype), part.begin);
  operation.count = part.size();
  operation.rounding.share = node->rank;
  stages.setStages(count, CollectiveDesc(operation, across->size));
  return runOrStart(
      device, [device, stages] { return device->pipeline.run(stages); },
      across->place, ticket);
}

static ddphook_status_t stagedCollective(ddphook_device_t *device,
                                         ddphook_communicator_t *node,
                                         ddphook_communicator_t *across,
                                         const ddphook_collective_t *operation,
                                         const void *in, void *out, void *share,
                                         int64_t *ticket,
                                         ddphook_backend_error_t *error) {
  return reportTo(error, [&] {
    return runStaged(device, node, across, *operation, in, out, share, ticket);
  });
}

static ddphook_status_t wait(ddphook_device_t *device, int64_t ticket,
                             ddphook_backend_error_t *error) {
  return reportTo(error, [&] { return device->commThread.wait(ticket); });
}

static ddphook_status_t synchronize(ddphook_device_t *device,
                                    ddphook_backend_error_t *error) {
  return reportTo(error, [&] { return device->commThread.waitForAll(); });
}

static void abortDevice(ddphook_device_t *device, ddphook_status_t status,
                        const char *message) {
  ignoreExceptions([&] {
    // Set the reason first: a call that ends now must not seem the cause.
    device->commThread.abort(Status(status, message));
    device->pipeline.abort(Status(status, message));
    std::lock_guard<std::mutex> lock(device->mutex);
    device->isAborted = true;
    if (device->gloo)
      device->gloo->abort();
    for (ddphook_communicator *communicator : device->communicators)
      communicator->impl->abort();
  });
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
    table.device_destroy = destroyDevice;
    table.memory_alloc = allocate;
    table.memory_free = release;
    table.memory_write = writeMemory;
    table.memory_read = readMemory;
    table.stream_set = setStream;
    table.synchronize = synchronize;
    table.communicator_create = createCommunicator;
    table.communicator_destroy = destroyCommunicator;
    table.is_finite = isFinite;
    table.sum_squares = sumSquares;
    table.matrices_create = createMatrices;
    table.matrices_destroy = destroyMatrices;
#define DDPHOOK_DEVICE_FUNCTION(name, ...) table.name = name;
#include "ddphook/runtime/functions.inc"
    table.collective = runCollective;
    table.collective_staged = stagedCollective;
    table.wait = wait;
    table.abort = abortDevice;
    return table;
  }();
  return backend;
}
