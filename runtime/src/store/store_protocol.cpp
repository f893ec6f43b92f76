// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "store/store_protocol.h"

#include "base/packed_texts.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace ddphook;
using namespace ddphook::wire;

uint64_t wire::hashRunId(const std::string &runId) {
  return XXH3_64bits(runId.data(), runId.size());
}

Credentials wire::storeCredentials(const std::string &secret) {
  return {jobKey(secret), !secret.empty(), "ddphook store"};
}

std::string Hello::encode() const {
  std::string bytes;
  putNumber(bytes, abiVersion);
  putNumber(bytes, worldSize);
  putNumber(bytes, rank);
  putNumber(bytes, uint32_t(0));
  putNumber(bytes, runId);
  return bytes;
}

std::optional<Hello> Hello::decode(std::string_view bytes) {
  if (bytes.size() != size)
    return std::nullopt;
  return Hello{takeNumber<uint32_t>(bytes, 0), takeNumber<uint32_t>(bytes, 4),
               takeNumber<uint32_t>(bytes, 8), takeNumber<uint64_t>(bytes, 16)};
}

static bool isKnown(uint8_t kind) {
  return (kind >= uint8_t(Kind::Set) && kind <= uint8_t(Kind::Deliver)) ||
         (kind >= uint8_t(Kind::Welcome) && kind <= uint8_t(Kind::Inquiry));
}

std::optional<Frame> Frame::decodeHeader(std::string_view bytes) {
  if (bytes.size() < headerSize || !isKnown(takeNumber<uint8_t>(bytes)))
    return std::nullopt;
  Frame frame;
  frame.kind = static_cast<Kind>(bytes[0]);
  frame.id = takeNumber<uint32_t>(bytes, 4);
  frame.keySize = takeNumber<uint32_t>(bytes, 8);
  frame.valueSize = takeNumber<uint32_t>(bytes, 12);
  if (frame.keySize > maxKeySize || frame.valueSize > maxValueSize)
    return std::nullopt;
  return frame;
}

std::string wire::encodeFrame(Kind kind, uint32_t id, std::string_view key,
                              std::string_view value) {
  std::string bytes;
  bytes.reserve(Frame::headerSize + key.size() + value.size());
  putNumber(bytes, static_cast<uint32_t>(kind));
  putNumber(bytes, id);
  putNumber(bytes, static_cast<uint32_t>(key.size()));
  putNumber(bytes, static_cast<uint32_t>(value.size()));
  bytes.append(key);
  bytes.append(value);
  return bytes;
}

std::string wire::encodeStatus(const Status &status) {
  std::string bytes;
  putNumber(bytes, static_cast<uint32_t>(status.code()));
  bytes.append(status.message());
  return bytes;
}

Status wire::decodeStatus(std::string_view value) {
  uint32_t code = value.size() < 4 ? 0 : takeNumber<uint32_t>(value);
  if (code == DDPHOOK_OK || code > DDPHOOK_INTERNAL)
    return internalError("a rank sent a malformed failure");
  return Status(static_cast<ddphook_status_t>(code),
                std::string(value.substr(4)));
}
