// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The communication stream runs collectives one after another, each with its
// casts, so one staging buffer is enough.

#include "cuda_communicator.h"

#include "base/collective.h"
#include "cuda_error.h"
#include "group_bootstrap.h"
#include "kernels/affine.h"
#include "kernels/encode.h"
#include "kernels/kernels.h"

#include <algorithm>
#include <cinttypes>
#include <optional>

using namespace ddphook;
using namespace ddphook::cuda;

/// The alignment that NCCL's windows and our loads require.
static constexpr uint64_t stagingAlignment = 4096;

static Status check(cudaError_t error) {
  return toStatus(error, "a collective");
}

/// Returns the bytes for the codes of any collective of a group.
static uint64_t encodedRoom(const ddphook_communicator_config_t &config) {
  int64_t room = 0;
  if (config.max_encoded_bytes > 0)
    room = 2 * EncodedParts::mostBytes(
                   static_cast<int64_t>(config.max_encoded_bytes), config.size);
  if (config.max_gathered_bytes > 0)
    room =
        std::max(room, kAffineScratchBytes +
                           AffineCodes::mostBytes(
                               static_cast<int64_t>(config.max_gathered_bytes),
                               config.size));
  return static_cast<uint64_t>(room);
}

Status CudaCommunicator::create(CudaDevice &device,
                                const ddphook_communicator_config_t &config,
                                std::unique_ptr<CudaCommunicator> *result) {
  DDPHOOK_TRY(device.refuseCapture("joining a process group"));
  // NCCL makes calls that a capture elsewhere in the process would forbid.
  RelaxedCapture relaxed;
  std::unique_ptr<CudaCommunicator> created(
      new CudaCommunicator(device, config));
  created->stagingBytes = config.max_wire_bytes;
  Status allocated = device.allocate(config.max_wire_bytes, stagingAlignment,
                                     &created->staging);
  created->encodedBytes = encodedRoom(config);
  if (created->encodedBytes > 0 && allocated.isOk())
    allocated = device.allocate(created->encodedBytes, stagingAlignment,
                                &created->encoded);
  if (config.size > 1 && allocated.isOk()) {
    Deadline deadline = Deadline::after(innerSeconds(device.timeoutSeconds()));
    std::vector<ncclUniqueId> ids;
    DDPHOOK_TRY(
        agreeOnIds(config, device.options(), device.choice(), deadline, &ids));
    std::unique_ptr<NcclCommunicator> joined;
    Status status = NcclCommunicator::create(
        ids, config.size, config.rank, *created->name, device.options(),
        device.failureLatch(), deadline, &joined);
    // Fail before the abort, because ranks that notice the abort report it.
    if (!status.isOk())
      return device.fail(status);
    created->nccl = std::move(joined);
    device.addCommunicator(created->nccl.get());
    // After a failure the watchdog aborts, once, the communicators it knows.
    DDPHOOK_TRY(device.failure());
    DDPHOOK_TRY(device.registerAll(created->nccl.get()));
  }
  DDPHOOK_TRY(allocated);
  *result = std::move(created);
  return Status::ok();
}

CudaCommunicator::~CudaCommunicator() {
  if (nccl) {
    // After a failure the watchdog aborts the communicator.
    ignoreExceptions([&] {
      if (device.synchronize().isOk())
        device.leave(nccl.get());
    });
    device.removeCommunicator(nccl.get());
    nccl.reset();
  }
  for (void *memory : {staging, encoded})
    if (memory)
      ignoreExceptions([&] { device.release(memory); });
}

static Status checkRoom(uint64_t bytes, uint64_t room) {
  if (bytes <= room)
    return Status::ok();
  return invalid("expected at most %" PRIu64 " bytes on the wire, but got "
                 "%" PRIu64,
                 room, bytes);
}

/// Returns the parts of a reduction that sums codes where they arrive.
static EncodedParts partsOf(const CollectiveOperation &operation,
                            const Encoding &encoding, int64_t ranks) {
  return operation.is(CollectiveKind::ReduceScatter)
             ? EncodedParts::ofScatter(encoding, operation.count, ranks)
             : EncodedParts::ofWholeBlocks(encoding, operation.count, ranks);
}

Status CudaCommunicator::checkOperation(const CollectiveOperation &operation,
                                        const void *in, const void *out) const {
  DDPHOOK_TRY(device.checkAddress(in, "in"));
  // An empty part may be at the end of an array, past its memory.
  const bool isEmpty =
      operation.part_ends && partOf(operation.part_ends, rank).size() == 0;
  if (!isEmpty)
    DDPHOOK_TRY(device.checkAddress(out, "out"));
  if (auto encoding = operation.codes()) {
    DDPHOOK_TRY(device.checkAddress(operation.error, "error"));
    const int64_t bytes =
        encoding->isAffine()
            ? size * AffineCodes::of(*encoding, operation.count).bytes +
                  kAffineScratchBytes
            : 2 * size * partsOf(operation, *encoding, size).bytes;
    return checkRoom(static_cast<uint64_t>(bytes), encodedBytes);
  }
  const bool isWhole = mayBeInPlace(operation.collectiveKind());
  if (isWhole ? !operation.wire() : !isStaged(operation))
    return Status::ok();
  const int64_t elements =
      isWhole ? operation.count : partOfEach(operation) * size;
  return checkRoom(static_cast<uint64_t>(operation.wireBytesOf(elements)),
                   stagingBytes);
}

/// Returns a collective's events; waits for one to end if all are in use.
Status CudaCommunicator::take(bool isCapturing, Collective **collective) {
  InFlight &inFlight = device.inFlight();
  Backoff backoff;
  while (!(*collective = inFlight.take(isCapturing))) {
    if (isCapturing)
      return error(DDPHOOK_FAILED_PRECONDITION,
                   "too many collectives are started in a graph without "
                   "waiting for them");
    DDPHOOK_TRY(device.failure());
    Status polled = inFlight.poll(device.timeoutSeconds());
    if (!polled.isOk())
      return device.fail(polled);
    backoff.pause();
  }
  return Status::ok();
}

Status CudaCommunicator::start(const CollectiveOperation &operation,
                               const void *in, void *out, int64_t *ticket) {
  InFlight &inFlight = device.inFlight();
  DDPHOOK_TRY(checkCollective(operation, size));
  if (operation.count == 0) {
    *ticket = inFlight.publishEnded();
    return Status::ok();
  }
  DDPHOOK_TRY(checkOperation(operation, in, out));
  if (!nccl) {
    // A group of one rank has no communication to overlap with.
    DDPHOOK_TRY(enqueue({operation, in, out, device.computeStream(), nullptr}));
    *ticket = inFlight.publishEnded();
    return Status::ok();
  }
  bool isCapturing = false;
  DDPHOOK_TRY(device.isCapturing(&isCapturing));
  Collective *collective = nullptr;
  DDPHOOK_TRY(take(isCapturing, &collective));
  if (isCapturing)
    nccl->noteCapture();
  // Nothing else would end a call that waits for a peer.
  std::optional<Watchdog::Watch> watch;
  if (nccl->isBlocking())
    watch.emplace(device.ownWatchdog());
  collective->operation = operation;
  collective->group = name;
  cudaStream_t comm = device.commStream();
  Status status =
      check(cudaEventRecord(collective->begin, device.computeStream()));
  if (status.isOk())
    status = check(cudaStreamWaitEvent(comm, collective->begin, 0));
  if (status.isOk())
    status = enqueue({operation, in, out, comm, collective->begin});
  if (status.isOk())
    status = check(cudaEventRecord(collective->end, comm));
  if (!status.isOk()) {
    inFlight.putBack(collective);
    return device.fail(status);
  }
  *ticket = inFlight.publish(collective, isCapturing);
  if (!isCapturing)
    device.wakeWatchdog();
  return Status::ok();
}

/// Enqueues NCCL's part of a collective, and records `begin` again before it:
/// the deadline for waiting on peers starts there.
Status CudaCommunicator::communicate(const Call &call, CollectiveKind kind,
                                     const void *in, void *out, int64_t count,
                                     Dtype dtype) {
  DDPHOOK_TRY(check(cudaEventRecord(call.begin, call.stream)));
  return nccl->enqueue(kind, in, out, count, dtype, call.stream, deadline(),
                       call.operation.root);
}

Status CudaCommunicator::enqueueAllReduce(const Call &call) {
  const auto &[operation, in, out, stream, begin] = call;
  const Dtype dtype = operation.type();
  const Dtype wire = operation.wireType();
  const int64_t count = operation.count;
  const Divisor divisor = divisorOf(operation);
  auto sum = [&](const void *from, void *to, Dtype type) {
    return nccl ? communicate(call, CollectiveKind::AllReduce, from, to, count,
                              type)
                : check(castArray(call.stream, from, type, to, type, count));
  };
  if (wire != dtype) {
    DDPHOOK_TRY(
        check(compressArray(stream, in, dtype, staging, wire, count, divisor)));
    DDPHOOK_TRY(sum(staging, staging, wire));
    return check(castArray(stream, staging, wire, out, dtype, count));
  }
  if (divisor.number == 1)
    return sum(in, out, dtype);
  DDPHOOK_TRY(
      check(compressArray(stream, in, dtype, out, dtype, count, divisor)));
  return sum(out, out, dtype);
}

/// Returns the elements of each rank's part; short parts count as full.
int64_t
CudaCommunicator::partOfEach(const CollectiveOperation &operation) const {
  return operation.part_ends ? longestPart(operation.part_ends, size)
                             : partElements(operation.count, size);
}

bool CudaCommunicator::isStaged(const CollectiveOperation &operation) const {
  if (!operation.is(CollectiveKind::ReduceScatter) &&
      !operation.is(CollectiveKind::AllGather))
    return false;
  return operation.wire() || operation.divide || operation.count % size != 0 ||
         operation.part_ends;
}

/// Uses the staging buffer, in place. Zeros follow the array if parts are
/// equal; other parts are copied one by one, with arbitrary data after each.
Status CudaCommunicator::enqueueReduceScatter(const Call &call) {
  const auto &[operation, in, out, stream, begin] = call;
  const Dtype dtype = operation.type();
  const Dtype wire = operation.wireType();
  const int64_t part = partOfEach(operation);
  const int64_t bytes = dtypeSize(wire);
  const Divisor divisor = divisorOf(operation);
  const void *from = in;
  void *to = out;
  char *const staged = static_cast<char *>(staging);
  int64_t wanted = part;
  if (isStaged(operation)) {
    from = staged;
    to = staged + rank * part * bytes;
  }
  if (operation.part_ends) {
    for (int peer = 0; peer < size; ++peer) {
      const ElementRange range = partOf(operation.part_ends, peer);
      DDPHOOK_TRY(check(compressArray(
          stream,
          static_cast<const char *>(in) + range.begin * dtypeSize(dtype), dtype,
          staged + peer * part * bytes, wire, range.size(), divisor)));
    }
    wanted = partOf(operation.part_ends, rank).size();
  } else if (isStaged(operation)) {
    DDPHOOK_TRY(check(compressArray(stream, in, dtype, staged, wire,
                                    operation.count, divisor)));
    const int64_t padding = part * size - operation.count;
    if (padding > 0)
      DDPHOOK_TRY(
          check(cudaMemsetAsync(staged + operation.count * bytes, 0,
                                static_cast<size_t>(padding * bytes), stream)));
  }
  DDPHOOK_TRY(
      communicate(call, CollectiveKind::ReduceScatter, from, to, part, wire));
  return check(castArray(stream, to, wire, out, dtype, wanted));
}

Status CudaCommunicator::enqueueAllGather(const Call &call) {
  const auto &[operation, in, out, stream, begin] = call;
  const Dtype dtype = operation.type();
  const Dtype wire = operation.wireType();
  const int64_t part = partElements(operation.count, size);
  const void *from = in;
  void *to = out;
  if (isStaged(operation)) {
    char *own = static_cast<char *>(staging) + rank * part * dtypeSize(wire);
    // The data after a short part ends up after the array.
    DDPHOOK_TRY(check(castArray(stream, in, dtype, own, wire, part)));
    from = own;
    to = staging;
  }
  DDPHOOK_TRY(
      communicate(call, CollectiveKind::AllGather, from, to, part, wire));
  return check(castArray(stream, to, wire, out, dtype, operation.count));
}

/// Each rank encodes all parts and adds one; an all-reduce gathers the sums.
Status CudaCommunicator::enqueueEncoded(const Call &call,
                                        const Encoding &encoding) {
  const auto &[operation, in, out, stream, begin] = call;
  const Dtype dtype = operation.type();
  const EncodedParts parts = partsOf(operation, encoding, size);
  std::optional<Rounding> ofSum, own;
  if (const ddphook_rounding_t &rounding = operation.rounding;
      rounding.is_stochastic) {
    ofSum =
        Rounding::ofSum(rounding.stream, rounding.step, rounding.share, size);
    own = ofSum->ofRank(rank);
  }
  char *const ours = static_cast<char *>(encoded);
  char *const theirs = ours + size * parts.bytes;
  char *const sum = (nccl ? ours : theirs) + rank * parts.bytes;
  if (operation.error) {
    DDPHOOK_TRY(check(
        addArrays(stream, out, in, operation.error, dtype, operation.count)));
    DDPHOOK_TRY(check(encodingError(stream, out, operation.error, dtype,
                                    operation.count, encoding, own)));
  }
  DDPHOOK_TRY(check(encodeParts(stream, operation.error ? out : in, dtype,
                                parts, size, ours, own)));
  // NCCL sees codes as four-byte numbers.
  const int64_t words = parts.bytes / dtypeSize(Dtype::F32);
  if (nccl)
    DDPHOOK_TRY(communicate(call, CollectiveKind::AllToAll, ours, theirs, words,
                            Dtype::F32));
  DDPHOOK_TRY(check(sumPart(stream, nccl ? theirs : ours, size, parts, rank,
                            operation.divide ? size : 1, sum, ofSum)));
  if (operation.is(CollectiveKind::ReduceScatter)) {
    // Zeros follow a short part.
    const int64_t elements = partOf(operation.count, size, rank).size();
    const int64_t bytes = dtypeSize(dtype);
    DDPHOOK_TRY(check(cudaMemsetAsync(
        static_cast<char *>(out) + elements * bytes, 0,
        static_cast<size_t>((parts.part - elements) * bytes), stream)));
    return check(
        decodeParts(stream, sum, parts, rank, /*number=*/1, out, dtype));
  }
  if (nccl)
    DDPHOOK_TRY(nccl->enqueue(CollectiveKind::AllGather, sum, ours, words,
                              Dtype::F32, stream, deadline()));
  return check(decodeParts(stream, nccl ? ours : sum, parts, /*first=*/0, size,
                           out, dtype));
}

/// Each rank encodes its part, and decodes those of all ranks.
Status CudaCommunicator::enqueueEncodedGather(const Call &call,
                                              const Encoding &encoding) {
  const auto &[operation, in, out, stream, begin] = call;
  const Dtype dtype = operation.type();
  // Every part is laid out as an array of its own.
  EncodedParts part = partsOf(operation, encoding, size);
  char *const all = static_cast<char *>(encoded);
  char *const own = all + rank * part.bytes;
  part.count = partOf(operation.count, size, rank).size();
  DDPHOOK_TRY(check(encodeParts(stream, in, dtype, part, /*ranks=*/1, own,
                                /*rounding=*/std::nullopt)));
  // NCCL sees codes as four-byte numbers.
  if (nccl)
    DDPHOOK_TRY(communicate(call, CollectiveKind::AllGather, own, all,
                            part.bytes / dtypeSize(Dtype::F32), Dtype::F32));
  for (int peer = 0; peer < size; ++peer) {
    const ElementRange range = partOf(operation.count, size, peer);
    part.count = range.size();
    DDPHOOK_TRY(check(decodeParts(
        stream, all + peer * part.bytes, part, /*first=*/0,
        /*number=*/1, static_cast<char *>(out) + range.begin * dtypeSize(dtype),
        dtype)));
  }
  return Status::ok();
}

/// Every rank encodes its array and adds the gathered codes of all ranks.
Status CudaCommunicator::enqueueAffine(const Call &call,
                                       const Encoding &encoding) {
  const auto &[operation, in, out, stream, begin] = call;
  const Dtype dtype = operation.type();
  const AffineCodes codes = AffineCodes::of(encoding, operation.count,
                                            device.options().dividesExactly());
  char *const all = static_cast<char *>(encoded);
  char *const own = all + rank * codes.bytes;
  DDPHOOK_TRY(check(encodeAffine(stream, in, dtype, codes, own,
                                 /*scratch=*/all + size * codes.bytes)));
  // NCCL sees codes as four-byte numbers.
  if (nccl)
    DDPHOOK_TRY(communicate(call, CollectiveKind::AllGather, own, all,
                            codes.bytes / dtypeSize(Dtype::F32), Dtype::F32));
  return check(averageAffine(stream, all, size, codes,
                             operation.divide ? size : 1, out, dtype));
}

Status CudaCommunicator::enqueue(const Call &call) {
  const CollectiveOperation &operation = call.operation;
  const auto kind = operation.collectiveKind();
  if (auto encoding = operation.codes()) {
    const auto function = encoding->isAffine()
                              ? &CudaCommunicator::enqueueAffine
                          : kind == CollectiveKind::AllGather
                              ? &CudaCommunicator::enqueueEncodedGather
                              : &CudaCommunicator::enqueueEncoded;
    return (this->*function)(call, *encoding);
  }
  // With one rank all kinds of collectives are the same.
  if (!nccl || kind == CollectiveKind::AllReduce)
    return enqueueAllReduce(call);
  if (kind == CollectiveKind::ReduceScatter)
    return enqueueReduceScatter(call);
  if (kind == CollectiveKind::AllGather)
    return enqueueAllGather(call);
  const bool isCut = kind == CollectiveKind::AllToAll;
  return communicate(call, kind, call.in, call.out,
                     isCut ? operation.count / size : operation.count,
                     operation.type());
}
