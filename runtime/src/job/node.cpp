// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "job/node.h"

#include "base/boot_id.h"

#include <cerrno>
#include <map>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

using namespace ddphook;

/// Identifies the machine and its present boot.
static Status identifyMachine(std::string *machine) {
  std::string boot;
  DDPHOOK_TRY(readBootId(&boot));
  char host[256] = "";
  if (::gethostname(host, sizeof(host) - 1) != 0)
    host[0] = '\0';
  *machine = "boot:" + boot + "/" + host;
  return Status::ok();
}

Status ddphook::identifyNetwork(std::string *network) {
  std::string space;
  DDPHOOK_TRY(identifyMachine(network));
  DDPHOOK_TRY(readNamespace("/proc/self/ns/net", &space));
  *network += "/" + space;
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
    DDPHOOK_TRY(identifyMachine(&identity->node));
  else
    identity->node = "named:" + nodeOverride;
  struct stat sharedMemory = {};
  std::string device, space;
  if (::stat("/dev/shm", &sharedMemory) == 0)
    device = std::to_string(sharedMemory.st_dev);
  else
    DDPHOOK_TRY(identityFailure(errno));
  DDPHOOK_TRY(readNamespace("/proc/self/ns/pid", &space));
  identity->memoryDomain = identity->node + "/" + space + "/shm:" + device;
  return Status::ok();
}
