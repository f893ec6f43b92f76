// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The only file that runs Gloo's algorithms. Converts exceptions to statuses.

#include "gloo_group.h"

#include "../encoded_chunks.h"
#include "chunked_collectives.h"
#include "gloo_transport.h"
#include "kernels.h"
#include "peer_mesh.h"

#include <gloo/allreduce.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <netinet/in.h>

using namespace ddphook;
using namespace ddphook::host;

/// Two ranks exchange whole arrays up to this size: this sends no more bytes
/// than a ring, which sends halves and then their sums, and takes one trip
/// instead of two. A longer array would need as much memory again.
static constexpr int64_t kMostSwapped = 256 << 10;

namespace {

class MeshGroup final : public GlooGroup {
public:
  void reserve(int64_t wireBytes) override {
    if (wireBytes <= wireCapacity)
      return;
    // Zeroed, and therefore resident.
    wire = std::make_unique<char[]>(static_cast<size_t>(wireBytes));
    wireCapacity = wireBytes;
  }
  Status run(const CollectiveDesc &desc, const void *in, void *out) override;
  Status runInPieces(const CollectiveDesc &desc, void *array, void *error,
                     PieceFlow &flow) override;
  int64_t pieceElements(const CollectiveDesc &desc) const override {
    return host::pieceElements(desc, size);
  }
  void abort() override { device->abort(); }
  void close() override {
    if (failure.isOk())
      failure = error(DDPHOOK_ABORTED, "the group was closed");
    transport->close();
  }

  Status sum(const CollectiveDesc &desc, const void *in, void *out);
  Status swap(const CollectiveDesc &desc, const void *in, void *out);
  Status ring(const CollectiveDesc &desc, const void *in, void *out);
  Status exchange(const CollectiveDesc &desc, const void *in, void *out);
  Status allReduce(const CollectiveDesc &desc, const void *in, void *out);
  Status allReduceInPieces(const CollectiveDesc &desc, void *array, void *kept,
                           PieceFlow &flow);

  GlooDevice *device = nullptr;
  std::shared_ptr<GlooTransport> transport;
  std::shared_ptr<GlooContext> context;
  int size = 0;
  double timeoutSeconds = 0;
  /// The number of collectives so far.
  uint32_t operations = 0;
  /// The bucket in its wire type.
  std::unique_ptr<char[]> wire;
  int64_t wireCapacity = 0;
  /// The array that the other of two ranks sends in a short message.
  std::unique_ptr<char[]> theirs;
  ChunkBuffers reductionRooms{kReductionRooms};
  ChunkBuffers exchangeRooms{kExchangeRooms};
  Status failure;
};

} // namespace

static std::chrono::milliseconds toMilliseconds(double seconds) {
  double ms = std::min(std::max(seconds * 1e3, 1.0), 1e12);
  return std::chrono::milliseconds(static_cast<int64_t>(ms));
}

/// Runs `function`, which calls Gloo, and converts its exceptions.
template <typename Function>
static Status translateExceptions(const char *what, Function &&function) {
  try {
    function();
    return Status::ok();
  } catch (const TransportFailure &failure) {
    return withContext(failure.status, what);
  } catch (const std::bad_alloc &) {
    return error(DDPHOOK_RESOURCE_EXHAUSTED, "%s: out of memory", what);
  } catch (const std::exception &exception) {
    return internalError("%s: %s", what, exception.what());
  }
}

/// Finds the first address of a network interface; *size is 0 if it has none.
static Status findInterface(const char *name, sockaddr_storage *address,
                            socklen_t *size) {
  const InterfaceList list = listInterfaces();
  if (!list)
    return systemError(errno, "cannot list network interfaces");
  for (ifaddrs *entry = list.get(); entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || std::strcmp(entry->ifa_name, name) != 0)
      continue;
    int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6)
      continue;
    *size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(address, entry->ifa_addr, *size);
    return Status::ok();
  }
  return badEnvironment(
      "expected DDPHOOK_SOCKET_IFNAME to name a network interface "
      "with an address, but got '%s'",
      name);
}

static Status parseAddress(const std::string &text, sockaddr_storage *address,
                           socklen_t *size) {
  AddressList list;
  const Status found = resolve(text, /*port=*/0, &list, AI_NUMERICHOST);
  if (found.code() == DDPHOOK_RESOURCE_EXHAUSTED)
    return found;
  if (!found.isOk())
    return invalid("expected a numeric address of this machine, but got '%s'",
                   text.c_str());
  *size = list->ai_addrlen;
  std::memcpy(address, list->ai_addr, *size);
  return Status::ok();
}

Status GlooDevice::create(const std::string &address,
                          std::unique_ptr<GlooDevice> *result) {
  std::unique_ptr<GlooDevice> device(new GlooDevice());
  const char *interface = std::getenv("DDPHOOK_SOCKET_IFNAME");
  if (interface && *interface)
    DDPHOOK_TRY(
        findInterface(interface, &device->address, &device->addressSize));
  else
    DDPHOOK_TRY(parseAddress(address, &device->address, &device->addressSize));
  DDPHOOK_TRY(Interrupt::create(&device->interrupt));
  *result = std::move(device);
  return Status::ok();
}

Status GlooGroup::create(GlooDevice &device, Store &store,
                         const std::string &key, const std::string &proofKey,
                         const GroupPlace &place, double timeoutSeconds,
                         std::unique_ptr<GlooGroup> *group) {
  const char *what = "connecting the ranks over TCP";
  const PeerMeshOptions mesh = {
      place,    device.address, device.addressSize, key,
      proofKey, timeoutSeconds, &device.interrupt};
  std::vector<FileDescriptor> sockets;
  DDPHOOK_TRY(withContext(connectPeers(mesh, store, &sockets), what));
  auto result = std::make_unique<MeshGroup>();
  result->device = &device;
  result->size = place.size;
  result->timeoutSeconds = timeoutSeconds;
  if (place.size == 2)
    result->theirs = std::make_unique<char[]>(kMostSwapped);
  DDPHOOK_TRY(translateExceptions(what, [&] {
    result->transport = std::make_shared<GlooTransport>(
        place, std::move(sockets), device.interrupt, timeoutSeconds);
    result->context = std::make_shared<GlooContext>(result->transport);
  }));
  *group = std::move(result);
  return Status::ok();
}

/// Adds arrays of the wire type.
Status MeshGroup::sum(const CollectiveDesc &desc, const void *in, void *out) {
  return size == 2 && desc.count * dtypeSize(desc.wireType()) <= kMostSwapped
             ? swap(desc, in, out)
             : ring(desc, in, out);
}

/// Both ranks add in one order, because the sum of two NaNs is one of them.
Status MeshGroup::swap(const CollectiveDesc &desc, const void *in, void *out) {
  return translateExceptions("all-reduce over TCP", [&] {
    const int rank = transport->rank, peer = 1 - rank;
    // A peer that gave up waiting for this rank may have sent its array before.
    transport->checkConnected(peer);
    const Dtype type = desc.wireType();
    const auto bytes = static_cast<size_t>(desc.count * dtypeSize(type));
    const auto mine =
        transport->createUnboundBuffer(const_cast<void *>(in), bytes);
    const auto other = transport->createUnboundBuffer(theirs.get(), bytes);
    const uint32_t operation = operations++;
    other->recv(peer, operation, 0, bytes);
    mine->send(peer, operation, 0, bytes);
    other->waitRecv();
    mine->waitSend();
    const void *sources[2];
    sources[rank] = in;
    sources[peer] = theirs.get();
    sumRanks(sources, 2, out, type, desc.count);
  });
}

/// Runs one Gloo operation over the whole array: the segments, and with them
/// the order of additions, depend on the array's size.
Status MeshGroup::ring(const CollectiveDesc &desc, const void *in, void *out) {
  return translateExceptions("all-reduce over TCP", [&] {
    ::gloo::AllreduceOptions options(context);
    size_t count = static_cast<size_t>(desc.count);
    // Gloo only needs the size of the elements.
    auto bind = [&](auto element) {
      using Element = decltype(element);
      if (in != out)
        options.setInput(
            const_cast<Element *>(static_cast<const Element *>(in)), count);
      options.setOutput(static_cast<Element *>(out), count);
    };
    Dtype type = desc.wireType();
    switch (dtypeSize(type)) {
    case 2:
      bind(uint16_t());
      break;
    case 4:
      bind(float());
      break;
    default:
      bind(double());
      break;
    }
    options.setAlgorithm(::gloo::AllreduceOptions::Algorithm::RING);
    options.setTimeout(toMilliseconds(timeoutSeconds));
    options.setTag(operations++);
    options.setReduceFunction(
        [type](void *sum, const void *a, const void *b, size_t n) {
          addArrays(sum, a, b, type, static_cast<int64_t>(n));
        });
    ::gloo::allreduce(options);
  });
}

Status MeshGroup::exchange(const CollectiveDesc &desc, const void *in,
                           void *out) {
  const std::string what =
      describeCollective(desc.collectiveKind()) + " over TCP";
  return translateExceptions(what.c_str(), [&] {
    if (desc.is(CollectiveKind::AllReduce))
      reduceInChunks(reductionRooms, *transport, operations++, desc, in, out);
    else
      exchangeInChunks(exchangeRooms, *transport, operations++, desc, in, out);
  });
}

/// Runs an all-reduce without an encoding.
Status MeshGroup::allReduce(const CollectiveDesc &desc, const void *in,
                            void *out) {
  if (desc.wireType() != desc.type()) {
    reserve(desc.wireBytes());
    compressArray(in, desc.type(), wire.get(), desc.wireType(), desc.count,
                  desc.divide ? size : 1);
    DDPHOOK_TRY(sum(desc, wire.get(), wire.get()));
    castArray(wire.get(), desc.wireType(), out, desc.type(), desc.count);
    return Status::ok();
  }
  if (!desc.divide)
    return sum(desc, in, out);
  divideArray(in, out, desc.type(), desc.count, size);
  return sum(desc, out, out);
}

Status MeshGroup::allReduceInPieces(const CollectiveDesc &desc, void *array,
                                    void *kept, PieceFlow &flow) {
  int64_t piece = 0;
  PieceCalls calls;
  calls.before = [&](int64_t begin, int64_t count) {
    transport->moveUntil(
        [&] { return flow.isReady(piece) || flow.isGivenUp(); }, flow.event());
    if (!flow.isReady(piece++))
      throw TransportFailure(
          error(DDPHOOK_ABORTED, "the ranks of this node gave up"));
    if (!kept)
      return;
    CollectiveDesc part = desc;
    part.count = count;
    part.sumRounding = from(desc.sumRounding, begin);
    char *const own = elementAt(array, desc.type(), begin);
    feedBackError(part, transport->rank, own,
                  elementAt(kept, desc.type(), begin), own);
  };
  calls.after = [&](int64_t, int64_t) { flow.finish(); };
  return translateExceptions("all-reduce over TCP", [&] {
    reduceInPieces(reductionRooms, *transport, operations++, desc, array,
                   calls);
  });
}

Status MeshGroup::runInPieces(const CollectiveDesc &desc, void *array,
                              void *error, PieceFlow &flow) {
  if (!failure.isOk())
    return failure;
  if (desc.count == 0)
    return Status::ok();
  return failure = allReduceInPieces(desc, array, error, flow);
}

Status MeshGroup::run(const CollectiveDesc &desc, const void *in, void *out) {
  if (!failure.isOk())
    return failure;
  if (desc.count == 0)
    return Status::ok();
  const bool isRing = desc.is(CollectiveKind::AllReduce) && !desc.encoding;
  return failure = isRing ? allReduce(desc, in, out) : exchange(desc, in, out);
}
