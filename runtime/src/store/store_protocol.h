// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The messages between StoreServer and TcpStore. A connection begins with the
// handshake of handshake.h, in which the client introduces itself by a Hello;
// after that both sides send frames. All numbers are little-endian, so that
// machines of both kinds understand each other.

#pragma once

#include "base/status.h"
#include "store/handshake.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddphook::wire {

/// Returns the credentials for both ends of the store's connections.
Credentials storeCredentials(const std::string &secret);

/// The bytes of the token that comes with Welcome. Ranks of this run of the job
/// have it, ranks of other runs with the same secret do not.
inline constexpr size_t tokenSize = 32;

uint64_t hashRunId(const std::string &runId);

/// The introduction of a client.
struct Hello {
  static constexpr size_t size = 24;

  uint32_t abiVersion = 0;
  uint32_t worldSize = 0;
  uint32_t rank = 0;
  uint64_t runId = 0; // a hash

  std::string encode() const;
  /// Returns nullopt if `bytes` has another size.
  static std::optional<Hello> decode(std::string_view bytes);
};

enum class Kind : uint8_t {
  // Client to server. The answers to Get, TryGet and Add have the same id.
  Set = 1,
  Get = 2,    // answered when the key exists
  TryGet = 3, // answered at once
  Cancel = 4, // forget the Get with this id
  Add = 5,    // value: the summand as a decimal text
  Erase = 6,
  Abort = 7,    // value: a failure; this rank gives up
  Leave = 8,    // this rank ends well; no answer
  Clock = 9,    // answered by a Value: the server's time
  Inquire = 10, // sends an Inquiry to all ranks
  Deliver = 11, // value: what this rank leaves to rank 0's process; answered by
                // an empty Value or an Error
  // Server to client.
  Welcome = 32, // value: the token
  Reject = 33,  // value: a failure; id 1: trying again may help
  Value = 34,
  Missing = 35, // answer to TryGet
  Error = 36,   // value: a failure of the request with this id
  Failure = 37, // value: a failure of the whole job; not an answer
  Inquiry = 38, // a rank asks where all are; answered by a Set
};

struct Frame {
  static constexpr size_t headerSize = 16;
  /// Both limits only bound what a malformed length can make a peer allocate.
  static constexpr uint32_t maxKeySize = 4096;
  static constexpr uint32_t maxValueSize = 64u << 20;

  Kind kind = Kind::Set;
  uint32_t id = 0;
  uint32_t keySize = 0;
  uint32_t valueSize = 0;

  size_t bodySize() const { return size_t(keySize) + valueSize; }
  /// Returns nullopt if the bytes are not a header or a size exceeds its limit.
  static std::optional<Frame> decodeHeader(std::string_view bytes);
};

std::string encodeFrame(Kind kind, uint32_t id, std::string_view key,
                        std::string_view value);

/// Encodes a failure as a frame's value, and decodes it.
std::string encodeStatus(const Status &status);
Status decodeStatus(std::string_view value);

} // namespace ddphook::wire
