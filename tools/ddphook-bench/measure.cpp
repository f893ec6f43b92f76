//===- measure.cpp - how ddphook-bench measures ---------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See measure.h.
//
//===----------------------------------------------------------------------===//
#include "measure.h"

#include "host_memory.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::bench;

const char *bench::cachesName(Caches caches) {
  return caches == Caches::Cold ? "cold" : "warm";
}

double bench::now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void bench::pinTo(int index) {
  static const cpu_set_t allowed = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    return set;
  }();
  const int count = CPU_COUNT(&allowed);
  if (count == 0)
    return;
  int skip = index % count;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || skip-- > 0)
      continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    // Unpinned measurements are noisier, not wrong.
    (void)sched_setaffinity(0, sizeof(one), &one);
    return;
  }
}

int64_t bench::flushBytes() {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return 2 * static_cast<int64_t>(cache > 0 ? cache : 32 << 20);
}

CacheFlusher::CacheFlusher() : other(static_cast<size_t>(flushBytes())) {}

void CacheFlusher::flush() {
  for (size_t i = 0; i < other.size(); i += 64)
    ++other[i];
}

Buffer::Buffer(int64_t size) : bytes(static_cast<uint64_t>(size)) {
  Status status = host::allocateMemory(bytes, 64, &memory);
  if (!status.isOk()) {
    std::fprintf(stderr, "ddphook-bench: %s\n", status.message().c_str());
    std::exit(1);
  }
  // Unwritten pages all map to one page of the kernel, which stays in the
  // caches.
  std::memset(memory, 0, bytes);
}

Buffer::~Buffer() { host::freeMemory(memory, bytes); }

void bench::fillInput(float *x, int64_t n, int rank) {
  for (int64_t i = 0; i < n; ++i)
    x[i] = inputElement(i, rank);
}

static uint64_t checksumTerm(float x, int64_t i) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits * (2 * static_cast<uint64_t>(i) + 1);
}

uint64_t bench::checksum(const float *x, int64_t n) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += checksumTerm(x[i], i);
  return sum;
}

float bench::roundScalar(float x, Dtype type) {
  if (!isHalf(type) || x == 0)
    return x;
  const int fraction = type == Dtype::F16 ? 10 : 7;
  const int least = type == Dtype::F16 ? -14 : -126;
  const int exponent = std::max(std::ilogb(x), least) - fraction;
  return std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
}

uint64_t bench::expectedOfTwo(int64_t n, Dtype wire, bool mean) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    float parts[2];
    for (int rank = 0; rank < 2; ++rank) {
      parts[rank] = roundScalar(inputElement(i, rank), wire);
      if (mean)
        parts[rank] = roundScalar(parts[rank] / 2, wire);
    }
    sum += checksumTerm(roundScalar(parts[0] + parts[1], wire), i);
  }
  return sum;
}
