// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
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
// The connecting end proves itself first, so that a stranger who connects gets
// nothing that was computed with the key. Every connection draws new nonces, so
// a recording of another one proves nothing. All sizes are small and known in
// advance. docs/SECURITY.md says what this protects against and what it does
// not.

#pragma once

#include "store/hmac.h"
#include "store/socket.h"

#include <string>
#include <string_view>

namespace ddphook {

/// The credentials that both ends of a connection have in common.
struct Credentials {
  /// The key from which every other one is derived.
  std::string key;
  /// True if the key came from a secret, false if anybody can compute it.
  bool hasSecret = false;
  /// The purpose of the connection; a proof for another one is invalid.
  std::string purpose;
};

/// Returns the key of a job. `secret` may be empty.
std::string jobKey(std::string_view secret);

/// Derives a key for one use of `key`.
std::string deriveKey(std::string_view key, std::string_view use);

/// The accepting end. It creates and checks messages; the caller sends them.
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

  /// Returns true, and the introduction, if the other end has the key. The
  /// caller must send `verdict` in either case. May be called once.
  bool check(std::string_view claim, std::string *introduction,
             std::string *verdict) const;

private:
  Credentials credentials;
  std::string nonce;
};

/// Runs the connecting end: proves itself on `socket` and demands the same of
/// the other end. BAD_ENVIRONMENT if the two ends have different keys, IO_ERROR
/// if the other end speaks another protocol.
Status proveOn(int socket, const Credentials &credentials,
               std::string_view introduction, const Deadline &deadline,
               const Interrupt *interrupt = nullptr);

} // namespace ddphook
