//===- handshake.h - two ranks prove that they belong together --*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The first messages on a new connection. Each end proves that it has the key
// without revealing it:
//
//   accepting end  → greeting   magic, whether there is a secret, nonce a
//   connecting end → claim      nonce b, introduction,
//                               HMAC(key, "claim", purpose, a, b, introduction)
//   accepting end  → verdict    accepted or refused,
//                               HMAC(key, "verdict", purpose, a, b,
//                               introduction)
//
// The connecting end proves first, so that a stranger who connects gets nothing
// that was computed with the key. Nonces are drawn anew for every connection,
// so a recording of another one proves nothing. All sizes are known in advance,
// and small. docs/SECURITY.md says what this protects against and what it does
// not.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_STORE_HANDSHAKE_H
#define DDPHOOK_RUNTIME_SRC_STORE_HANDSHAKE_H

#include "store/hmac.h"
#include "store/socket.h"

#include <string>
#include <string_view>

namespace ddphook {

/// What both ends of a connection have in common.
struct Credentials {
  /// Everything else is derived from it.
  std::string key;
  /// Whether the key came from a secret, or is one that everybody can compute.
  bool hasSecret = false;
  /// What the connection is for: a proof for one purpose is none for another.
  std::string purpose;
};

/// The key of a job. `secret` may be empty.
std::string jobKey(std::string_view secret);

/// A key for one use of `key`.
std::string deriveKey(std::string_view key, std::string_view use);

/// The accepting end. It only makes and checks messages; who sends them is the
/// caller's business.
class AcceptingHandshake {
public:
  static constexpr size_t nonceSize = 32;
  static constexpr size_t greetingSize = 9 + nonceSize;
  static constexpr size_t verdictSize = 1 + digestSize;
  static constexpr size_t claimSize(size_t introductionSize) {
    return nonceSize + introductionSize + digestSize;
  }

  /// Draws a nonce.
  static Status begin(const Credentials &credentials,
                      AcceptingHandshake *handshake);

  std::string greeting() const;

  /// Whether the other end has the key; its introduction, if so. `verdict` is
  /// to be sent in any case. To be called once.
  bool check(std::string_view claim, std::string *introduction,
             std::string *verdict) const;

private:
  Credentials credentials;
  std::string nonce;
};

/// The connecting end: proves itself on `socket`, and demands the same of the
/// other end. BAD_ENVIRONMENT: the two ends do not have the same key. IO_ERROR:
/// the other end speaks something else.
Status proveOn(int socket, const Credentials &credentials,
               std::string_view introduction, const Deadline &deadline,
               const Interrupt *interrupt = nullptr);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_STORE_HANDSHAKE_H
