// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The list is read once. A word that it does not know ends the process: a fault
// that never happens would make a test pass for nothing.

#include "fault.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>

using namespace emulated_cuda;

static const char *const names[] = {"malloc",          "host_malloc",
                                    "launch",          "kernel",
                                    "memcpy",          "nccl_init",
                                    "nccl_launch",     "nccl_launch_full",
                                    "nccl_async",      "nccl_init_exit",
                                    "nccl_init_stall", "nccl_stall",
                                    "nccl_corrupt",    "exit"};

namespace {
struct Fault {
  std::string name;
  long left;
};
using Faults = std::deque<std::pair<Fault, std::atomic<long>>>;
} // namespace

[[noreturn]] static void failBad(const std::string &entry) {
  std::fprintf(stderr,
               "emulated CUDA: expected NAME, NAME:N or NAME@RANK:N in "
               "EMULATED_CUDA_FAULT, but got '%s'\n",
               entry.c_str());
  std::abort();
}

static void add(std::deque<Fault> &faults, const std::string &entry) {
  size_t colon = entry.find(':');
  std::string name = entry.substr(0, colon);
  long count = 1;
  if (colon != std::string::npos) {
    char *end = nullptr;
    count = std::strtol(entry.c_str() + colon + 1, &end, 10);
    if (*end != '\0' || count < 1)
      failBad(entry);
  }
  size_t at = name.find('@');
  if (at != std::string::npos) {
    const char *rank = std::getenv("RANK");
    if (!rank || name.substr(at + 1) != rank)
      return;
    name.resize(at);
  }
  for (const char *known : names) {
    if (name == known) {
      faults.push_back({name, count});
      return;
    }
  }
  failBad(entry);
}

static Faults *readFaults() {
  std::deque<Fault> list;
  const char *text = std::getenv("EMULATED_CUDA_FAULT");
  std::string rest = text ? text : "";
  while (!rest.empty()) {
    size_t comma = rest.find(',');
    add(list, rest.substr(0, comma));
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
  }
  auto *faults = new Faults();
  for (const Fault &fault : list) {
    faults->emplace_back();
    faults->back().first = fault;
    faults->back().second = fault.left;
  }
  return faults;
}

bool emulated_cuda::isFaultDue(const char *name) {
  // Never destroyed: a stream's thread may outlive the main function.
  static Faults *faults = readFaults();
  bool isDue = false;
  for (auto &[fault, left] : *faults)
    if (fault.name == name && left.fetch_sub(1) == 1)
      isDue = true;
  return isDue;
}
