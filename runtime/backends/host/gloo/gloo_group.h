//===- gloo_group.h - collectives over TCP ----------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The transport for ranks of several machines: Gloo's ring all-reduce with our
// element-wise kernels. It defines the order of additions that all other
// transports, and other collectives, follow (docs/parity.md).
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_GLOO_GROUP_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_GLOO_GROUP_H

#include "../collective_desc.h"
#include "../group_place.h"
#include "../piece_flow.h"
#include "base/status.h"
#include "store/store.h"

#include <memory>
#include <string>

namespace ddphook::host {

/// The network address at which a process's groups meet others.
class GlooDevice {
public:
  /// `address` is the numeric address by which others reach this machine. An
  /// environment variable DDPHOOK_SOCKET_IFNAME names an interface instead.
  static Status create(const std::string &address,
                       std::unique_ptr<GlooDevice> *device);
  ~GlooDevice();

  /// Makes calls of its groups that are under way fail soon, creating one
  /// included, and every later call that has to wait. Any thread.
  void abort();

private:
  friend class GlooGroup;
  class Impl;
  explicit GlooDevice(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

class GlooGroup {
public:
  /// Meets the ranks that use the same `key` of the same store, and lets in
  /// nobody who has not the same `proofKey`. Collective; ends within
  /// `timeoutSeconds`, which also bounds every later call. `key` must not have
  /// been used before in this store. The device must outlive the group.
  static Status create(GlooDevice &device, Store &store, const std::string &key,
                       const std::string &proofKey, const GroupPlace &place,
                       double timeoutSeconds,
                       std::unique_ptr<GlooGroup> *group);
  ~GlooGroup();

  /// Makes room for all-reduces of at most that many bytes on the wire, so that
  /// the first step need not.
  void reserve(int64_t wireBytes);

  /// Collective; all ranks pass the same description: the plan's comparison
  /// sees to that, since not every difference shows on the wire. `in` may equal
  /// `out` where the kind of collective allows that, else they must not
  /// overlap. After a failure every later call fails at once.
  Status run(const CollectiveDesc &desc, const void *in, void *out);

  /// An all-reduce of an array in place, with the bits that run() gives, in
  /// pieces that `flow` says are ready, and which it finishes; not of affine
  /// codes. `error`: null, or what error feedback keeps (error_feedback.h).
  Status runInPieces(const CollectiveDesc &desc, void *array, void *error,
                     PieceFlow &flow);
  /// Elements of such a piece.
  int64_t pieceElements(const CollectiveDesc &desc) const;

  /// GlooDevice::abort().
  void abort();

  /// Closes all connections: peers that wait for this rank fail. Never while a
  /// call is under way.
  void close();

private:
  class Impl;
  explicit GlooGroup(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_GLOO_GROUP_H
