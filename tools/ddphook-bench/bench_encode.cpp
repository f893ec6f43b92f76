//===- bench_encode.cpp - ddphook-bench encode ----------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Codes of few bits in one thread: encoding, decoding and sums of two ranks'
// codes, and the local work of a hook on one of two ranks, chunk by chunk. Each
// is compared with a plain copy of as many bytes, and with the same codes
// written in tensor operations of PyTorch, which has no such hook.
//
//===----------------------------------------------------------------------===//
#include "benches.h"
#include "local_work.h"

#include "kernels/encode.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <thread>

using namespace ddphook;
using namespace ddphook::bench;
using namespace ddphook::host;

namespace {

constexpr int kWorld = 2;

/// A hook's code with the hook's default block, and its properties from
/// docs/quantization.md.
struct Codec {
  const char *hook;
  Encoding encoding;
  float largest;
  /// For a float: bits of the fraction, least exponent of a normal number.
  int fraction = 0, least = 0;
  bool isInTorch = false;
};

const Codec kCodecs[] = {
    {"int8", {Code::I8, 256}, 127, 0, 0, /*isInTorch=*/true},
    {"int4", {Code::I4, 64}, 7},
    {"fp8", {Code::F8E4M3FN, 256}, 448, 3, -6, /*isInTorch=*/true}};

/// Rounds the elements of one block, in scalar code that is independent of the
/// kernels.
void roundBlock(float *x, int64_t n, const Codec &codec) {
  float most = 0;
  for (int64_t i = 0; i < n; ++i)
    most = std::max(most, std::fabs(x[i]));
  const float scale = roundScalar(most / codec.largest, Dtype::BF16);
  for (int64_t i = 0; i < n; ++i) {
    const float q = std::clamp(x[i] / scale, -codec.largest, codec.largest);
    // Integers have one zero.
    float code = std::nearbyint(q) + 0.0f;
    if (codec.fraction > 0 && q != 0) {
      const int exponent =
          std::max(std::ilogb(q), codec.least) - codec.fraction;
      code = std::ldexp(std::nearbyint(std::ldexp(q, -exponent)), exponent);
    }
    x[i] = code * scale;
  }
}

void roundBlocks(std::vector<float> &x, const Codec &codec) {
  const auto n = static_cast<int64_t>(x.size());
  for (int64_t i = 0; i < n; i += codec.encoding.block)
    roundBlock(x.data() + i, std::min(codec.encoding.block, n - i), codec);
}

/// A bucket's codes: of this rank, of the other one, and of their average.
class EncodeBench {
public:
  EncodeBench(int64_t n, const Codec &codec)
      : codec(codec), encoding(codec.encoding), n(n), x(4 * n), y(4 * n),
        own(room()), peer(room()), sum(room()) {
    fillInput(y.as<float>(), n, 1);
    encodeArray(y.as<void>(), Dtype::F32, n, encoding, at(peer, 0));
    fillInput(x.as<float>(), n, 0);
    encodeArray(x.as<void>(), Dtype::F32, n, encoding, at(own, 0));
    add(0, n);
  }

  Status verify(TorchProcess *torch, Report &report);
  std::vector<Work> works();

private:
  int64_t room() const {
    return encoding.codeBytes(n) + encoding.scaleBytes(n);
  }
  /// Returns the codes from an element on that begins a block.
  EncodedArray at(Buffer &memory, int64_t element) {
    char *base = memory.as<char>();
    return {base + encoding.codeBytes(element),
            base + encoding.codeBytes(n) + encoding.scaleBytes(element)};
  }

  void encode() {
    encodeArray(x.as<void>(), Dtype::F32, n, encoding, at(own, 0));
  }
  /// Decodes like the transports do for another array of this size.
  void decode(Buffer &codes) {
    decodeArray(at(codes, 0), encoding, n, y.as<void>(), Dtype::F32,
                Stores::Streaming);
  }
  void add(int64_t begin, int64_t count) {
    const EncodedArray sources[kWorld] = {at(own, begin), at(peer, begin)};
    sumEncoded(sources, kWorld, encoding, count, kWorld, at(sum, begin));
  }

  /// Does the work of one of two ranks in place: encodes a chunk, adds its half
  /// of the codes, and decodes all; the other rank has added the other half.
  void hook() {
    constexpr int64_t chunk = 64 << 10;
    for (int64_t i = 0; i < n; i += chunk) {
      const int64_t length = std::min(chunk, n - i);
      float *place = x.as<float>() + i;
      encodeArray(place, Dtype::F32, length, encoding, at(own, i));
      add(i, std::min(chunk / kWorld, length));
      decodeArray(at(sum, i), encoding, length, place, Dtype::F32);
    }
  }

  const Codec &codec;
  const Encoding encoding;
  const int64_t n;
  Buffer x, y, own, peer, sum;
};

Status EncodeBench::verify(TorchProcess *torch, Report &report) {
  std::vector<float> mine(static_cast<size_t>(n)), theirs = mine;
  fillInput(mine.data(), n, 0);
  fillInput(theirs.data(), n, 1);
  roundBlocks(mine, codec);
  roundBlocks(theirs, codec);
  const uint64_t encoded = checksum(mine.data(), n);
  for (size_t i = 0; i < mine.size(); ++i)
    mine[i] = (mine[i] + theirs[i]) / kWorld;
  roundBlocks(mine, codec);
  const uint64_t averaged = checksum(mine.data(), n);

  const std::string name = codec.hook;
  std::memset(y.as<void>(), 0x5a, static_cast<size_t>(4 * n));
  decode(own);
  report.verified(name + ", codes against scalar code",
                  checksum(y.as<float>(), n) == encoded);
  decode(sum);
  report.verified(name + ", sum of two against scalar code",
                  checksum(y.as<float>(), n) == averaged);
  hook();
  report.verified(name + ", the hook's local work",
                  checksum(x.as<float>(), n) == averaged);
  fillInput(x.as<float>(), n, 0);
  if (!torch || !codec.isInTorch)
    return Status::ok();
  TorchAnswer answer;
  DDPHOOK_RETURN_IF_ERROR(
      torch->run("encode", codec.hook, Caches::Warm, 1, &answer));
  report.verified(name + ", codes against PyTorch", answer.checksum == encoded);
  return Status::ok();
}

std::vector<Work> EncodeBench::works() {
  const std::string name = codec.hook;
  const int64_t wide = 4 * n, narrow = room();
  std::vector<Work> list = {
      {name + " encode", wide + narrow, [=] { encode(); }, "encode", name},
      {name + " decode", wide + narrow, [=] { decode(own); }, "decode", name},
      {name + " sum of two", 3 * narrow, [=] { add(0, n); }},
      // The other rank computes half of the sum.
      {name + " hook, local work", 2 * (wide + narrow) + 3 * narrow / 2,
       [=] { hook(); }}};
  if (!codec.isInTorch)
    for (Work &work : list)
      work.torchJob.clear();
  return list;
}

/// Adds, for each work, the best copy of as many bytes before it.
std::vector<Work> withCopies(const std::vector<Work> &works, int64_t n,
                             Buffer &from, Buffer &to) {
  std::vector<Work> list;
  for (Work work : works) {
    char name[64];
    std::snprintf(name, sizeof(name), "best copy of %.2f bytes/element",
                  static_cast<double>(work.bytes) / static_cast<double>(n));
    work.copy = name;
    auto isCopy = [&](const Work &other) { return other.name == work.copy; };
    if (std::none_of(list.begin(), list.end(), isCopy))
      list.push_back({work.copy, work.bytes, [&, half = work.bytes / 2] {
                        copyBytes(to.as<void>(), from.as<void>(), half,
                                  Stores::Streaming);
                      }});
    list.push_back(std::move(work));
  }
  return list;
}

Status run(const Options &options, TorchProcess *torch, Report &report) {
  pinTo(0);
  const int64_t n = options.elements();
  // A hook's local work moves most, 12 bytes for each element.
  Buffer from(6 * n), to(6 * n);
  fillInput(from.as<float>(), 6 * n / 4, 0);
  std::deque<EncodeBench> benches;
  std::vector<Work> works;
  for (const Codec &codec : kCodecs) {
    EncodeBench &bench = benches.emplace_back(n, codec);
    DDPHOOK_RETURN_IF_ERROR(bench.verify(torch, report));
    for (Work &work : bench.works())
      works.push_back(std::move(work));
  }
  return measureWorks("codes, one thread; GB/s of what is read and written",
                      withCopies(works, n, from, to), options, torch, report);
}

} // namespace

Status bench::benchEncode(const Options &options, TorchProcess *torch,
                          Report &report) {
  // Use a separate thread, so that binding it does not bind later benchmarks.
  Status status;
  std::thread([&] { status = run(options, torch, report); }).join();
  return status;
}
