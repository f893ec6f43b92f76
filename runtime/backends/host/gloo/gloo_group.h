// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The transport for ranks on several machines: Gloo's ring all-reduce with our
// element-wise kernels. It defines the order of additions that all other
// transports, and other collectives, follow (docs/parity.md).

#pragma once

#include "../collective_desc.h"
#include "../group_place.h"
#include "../piece_flow.h"
#include "base/status.h"
#include "store/socket.h"
#include "store/store.h"

#include <memory>
#include <string>

namespace ddphook::host {

/// The network address at which a process's groups meet their peers.
class GlooDevice {
public:
  /// `address` is the numeric address at which others reach this machine. The
  /// environment variable DDPHOOK_SOCKET_IFNAME overrides it with an interface.
  static Status create(const std::string &address,
                       std::unique_ptr<GlooDevice> *device);

  /// Makes running calls of its groups, including their creation, fail soon,
  /// and all later calls that have to wait. Any thread may call it.
  void abort() { interrupt.raise(); }

private:
  friend class GlooGroup;
  GlooDevice() = default;

  /// The address at which groups listen.
  sockaddr_storage address = {};
  socklen_t addressSize = 0;
  Interrupt interrupt;
};

class GlooGroup {
public:
  /// Connects the ranks that use the same `key` of the same store, and admits
  /// only ranks with the same `proofKey`. Collective; ends within
  /// `timeoutSeconds`, which also bounds every later call. `key` must not have
  /// been used before in this store. The device must outlive the group.
  static Status create(GlooDevice &device, Store &store, const std::string &key,
                       const std::string &proofKey, const GroupPlace &place,
                       double timeoutSeconds,
                       std::unique_ptr<GlooGroup> *group);
  virtual ~GlooGroup() = default;

  /// Reserves memory for all-reduces of at most `wireBytes` bytes on the wire,
  /// so that the first step need not.
  virtual void reserve(int64_t wireBytes) = 0;

  /// Collective. All ranks must pass the same description; the comparison of
  /// plans ensures this, since not every difference is visible on the wire.
  /// `in` may equal `out` where the kind of collective allows it; otherwise
  /// they must not overlap. After a failure every later call fails at once.
  virtual Status run(const CollectiveDesc &desc, const void *in, void *out) = 0;

  /// All-reduces an array in place, with the same bits as run(), in pieces that
  /// `flow` reports ready and that this finishes; not for affine codes. `error`
  /// is null or the error feedback residual (encoded_chunks.h).
  virtual Status runInPieces(const CollectiveDesc &desc, void *array,
                             void *error, PieceFlow &flow) = 0;
  /// The number of elements of such a piece.
  virtual int64_t pieceElements(const CollectiveDesc &desc) const = 0;

  /// See GlooDevice::abort().
  virtual void abort() = 0;

  /// Closes all connections: waiting peers fail. Not during another call.
  virtual void close() = 0;
};

} // namespace ddphook::host
