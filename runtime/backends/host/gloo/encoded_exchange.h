//===- encoded_exchange.h - encoded all-reduces over TCP --------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gloo has no collective for what is decoded before it is added. Casts and
// scaled codes go to the rank that owns a part of them, and the encoded sum
// from there to all; affine codes go to all at once. An array travels in chunks
// so that ranks encode and decode while others are under way.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_ENCODED_EXCHANGE_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_ENCODED_EXCHANGE_H

#include "../collective_desc.h"
#include "gloo_transport.h"

#include <cstdlib>
#include <memory>
#include <vector>

namespace ddphook::host {

class EncodedExchange {
public:
  /// Runs one all-reduce, the operation of that number. Throws what the
  /// transport throws.
  void run(GlooTransport &transport, uint32_t operation,
           const CollectiveDesc &desc, const void *in, void *out);

private:
  /// Chunks in memory at a time: one is encoded, one is added, one is decoded.
  static constexpr int kChunks = 3;

  struct Free {
    void operator()(char *memory) const { std::free(memory); }
  };

  /// What a chunk needs, kept from one all-reduce to the next.
  struct Room {
    std::unique_ptr<char, Free> memory;
    /// What each rank encoded. Of casts and scaled codes of peers only this
    /// rank's part arrives: the rest of their memory is never touched, and so
    /// has no pages.
    std::vector<void *> encoded;
    /// What the owners added, each at its part's place.
    void *summed = nullptr;
    std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;
    int64_t sends = 0, receives = 0;
  };
  void reserve(GlooTransport &transport, int64_t bytes);

  Room rooms[kChunks];
  int64_t roomBytes = 0;
};

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_ENCODED_EXCHANGE_H
