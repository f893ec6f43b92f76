// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names of variables and functions are those of FIPS 180-4 and RFC 2104.

#include "store/hmac.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <sys/random.h>

using namespace ddphook;

static constexpr size_t blockSize = 64;

/// FIPS 180-4, 4.2.2: the first 32 bits of the fractional parts of the cube
/// roots of the first 64 primes.
static constexpr std::array<uint32_t, 64> K = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

namespace {
using State = std::array<uint32_t, 8>;
} // namespace

/// FIPS 180-4, 5.3.3.
static constexpr State initialState = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                       0xa54ff53a, 0x510e527f, 0x9b05688c,
                                       0x1f83d9ab, 0x5be0cd19};

static uint32_t rotr(uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

/// Adds one block to the hash value (FIPS 180-4, 6.2.2).
static void compress(State &H, const char *block) {
  std::array<uint32_t, 64> W;
  for (size_t t = 0; t < 16; ++t) {
    W[t] = 0;
    for (size_t i = 0; i < 4; ++i)
      W[t] = W[t] << 8 | static_cast<unsigned char>(block[4 * t + i]);
  }
  for (size_t t = 16; t < 64; ++t) {
    uint32_t s0 = rotr(W[t - 15], 7) ^ rotr(W[t - 15], 18) ^ (W[t - 15] >> 3);
    uint32_t s1 = rotr(W[t - 2], 17) ^ rotr(W[t - 2], 19) ^ (W[t - 2] >> 10);
    W[t] = s1 + W[t - 7] + s0 + W[t - 16];
  }
  auto [a, b, c, d, e, f, g, h] = H;
  for (size_t t = 0; t < 64; ++t) {
    uint32_t S1 = rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25);
    uint32_t T1 = h + S1 + ((e & f) ^ (~e & g)) + K[t] + W[t];
    uint32_t S0 = rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22);
    uint32_t T2 = S0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + T1;
    d = c;
    c = b;
    b = a;
    a = T1 + T2;
  }
  const State sums = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < H.size(); ++i)
    H[i] += sums[i];
}

std::string ddphook::sha256(std::string_view message) {
  State H = initialState;
  size_t whole = message.size() / blockSize * blockSize;
  for (size_t begin = 0; begin < whole; begin += blockSize)
    compress(H, message.data() + begin);

  // FIPS 180-4, 5.1.1: a one bit, zeros, and the message's length in bits.
  std::string tail(message.substr(whole));
  tail.push_back('\x80');
  while (tail.size() % blockSize != blockSize - 8)
    tail.push_back('\0');
  uint64_t bits = uint64_t(message.size()) * 8;
  for (int shift = 56; shift >= 0; shift -= 8)
    tail.push_back(static_cast<char>(bits >> shift));
  for (size_t begin = 0; begin < tail.size(); begin += blockSize)
    compress(H, tail.data() + begin);

  std::string digest;
  for (uint32_t word : H)
    for (int shift = 24; shift >= 0; shift -= 8)
      digest.push_back(static_cast<char>(word >> shift));
  return digest;
}

std::string ddphook::hmacSha256(std::string_view key,
                                std::string_view message) {
  std::string padded = key.size() > blockSize ? sha256(key) : std::string(key);
  padded.resize(blockSize, '\0');
  std::string inner = padded, outer = padded;
  for (size_t i = 0; i < blockSize; ++i) {
    inner[i] = static_cast<char>(inner[i] ^ 0x36);
    outer[i] = static_cast<char>(outer[i] ^ 0x5c);
  }
  return sha256(outer + sha256(inner.append(message)));
}

bool ddphook::areEqualSecrets(std::string_view a, std::string_view b) {
  if (a.size() != b.size())
    return false;
  // Volatile, so that the compiler cannot add an early exit.
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

Status ddphook::drawSecret(size_t size, std::string *secret) {
  secret->assign(size, '\0');
  for (size_t done = 0; done < size;) {
    ssize_t drawn = ::getrandom(secret->data() + done, size - done, 0);
    if (drawn < 0 && errno != EINTR)
      return error(DDPHOOK_RESOURCE_EXHAUSTED, "cannot draw random bytes: %s",
                   std::strerror(errno));
    done += drawn > 0 ? static_cast<size_t>(drawn) : 0;
  }
  return Status::ok();
}
