// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "local_job.h"

#include "base/packed_texts.h"
#include "store/hmac.h"
#include "store/socket.h"

#include <cerrno>
#include <cstdlib>
#include <netinet/in.h>
#include <sys/socket.h>
#include <utility>

using namespace ddphook;

/// Reserves a port at which rank 0 can listen and which nobody else gets. A
/// socket that is bound to it but does not listen conflicts with other sockets
/// only if one of the two lacks SO_REUSEADDR, and always keeps the kernel from
/// choosing the port as a free one.
static Status reservePort(const std::string &host, FileDescriptor *reservation,
                          uint16_t *port) {
  AddressList found;
  DDPHOOK_TRY(resolve(host, /*port=*/0, &found, AI_NUMERICHOST));
  FileDescriptor fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.isValid())
    return systemError(errno, "cannot open a socket");
  sockaddr_in6 bound = {};
  auto *address = reinterpret_cast<sockaddr *>(&bound);
  socklen_t size = sizeof(bound);
  const int on = 1;
  // First find a port that nobody has, then let others share it.
  if (::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::getsockname(fd.get(), address, &size) != 0)
    return systemError(errno, "cannot find a free port");
  // IPv4 addresses have the port at the same offset.
  *port = ntohs(bound.sin6_port);
  *reservation = std::move(fd);
  return Status::ok();
}

/// Draws a secret for the ranks to be started, unless the user has set one.
static Status chooseJobSecret() {
  const char *variable = "DDPHOOK_JOB_SECRET";
  const char *chosen = std::getenv(variable);
  if (chosen && *chosen)
    return Status::ok();
  std::string bytes;
  DDPHOOK_TRY(drawSecret(digestSize, &bytes));
  ::setenv(variable, toHex(bytes).c_str(), 1);
  return Status::ok();
}

Status LocalJob::prepare(int32_t ranks, LocalJob *job) {
  job->ranks = ranks;
  job->storeAddress = loopbackAddress();
  DDPHOOK_TRY(
      reservePort(job->storeAddress, &job->reservation, &job->storePort));
  return chooseJobSecret();
}

void LocalJob::enter(int32_t rank) const {
  const std::string text = std::to_string(rank);
  ::setenv("RANK", text.c_str(), 1);
  ::setenv("LOCAL_RANK", text.c_str(), 1);
  ::setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
  ::setenv("MASTER_ADDR", storeAddress.c_str(), 1);
  ::setenv("MASTER_PORT", std::to_string(storePort).c_str(), 1);
}
