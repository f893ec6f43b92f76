//===- node.cpp - which ranks share a node --------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the identity of the machine from the kernel.
//
//===----------------------------------------------------------------------===//
#include "job/node.h"

#include "base/boot_id.h"

#include <climits>
#include <map>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

using namespace ddphook;

/// The name and number of a namespace that this process is in.
static std::string namespaceOf(const char *path) {
  char target[PATH_MAX];
  ssize_t size = ::readlink(path, target, sizeof(target));
  return size > 0 ? std::string(target, static_cast<size_t>(size)) : "";
}

/// Which run of which machine this is.
static Status identifyMachine(std::string *machine) {
  std::string boot;
  DDPHOOK_RETURN_IF_ERROR(readBootId(&boot));
  char host[256] = "";
  if (::gethostname(host, sizeof(host) - 1) != 0)
    host[0] = '\0';
  *machine = "boot:" + boot + "/" + host;
  return Status::ok();
}

Status ddphook::identifyNetwork(std::string *network) {
  DDPHOOK_RETURN_IF_ERROR(identifyMachine(network));
  *network += "/" + namespaceOf("/proc/self/ns/net");
  return Status::ok();
}

std::string ddphook::printNodes(const std::vector<NodeIdentity> &ranks) {
  std::map<std::string_view, size_t> numbers;
  std::string text;
  for (const NodeIdentity &rank : ranks) {
    const size_t number =
        numbers.emplace(rank.node, numbers.size()).first->second;
    text += (text.empty() ? "" : ",") + std::to_string(number);
  }
  return text;
}

Status ddphook::identifyNode(const std::string &nodeOverride,
                             NodeIdentity *identity) {
  if (nodeOverride.empty())
    DDPHOOK_RETURN_IF_ERROR(identifyMachine(&identity->node));
  else
    identity->node = "named:" + nodeOverride;
  struct stat sharedMemory = {};
  std::string device = ::stat("/dev/shm", &sharedMemory) == 0
                           ? std::to_string(sharedMemory.st_dev)
                           : "";
  identity->memoryDomain = identity->node + "/" +
                           namespaceOf("/proc/self/ns/pid") + "/shm:" + device;
  return Status::ok();
}
