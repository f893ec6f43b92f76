//===- local_job.cpp - launch variables for ranks of one machine ----------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See local_job.h.
//
//===----------------------------------------------------------------------===//
#include "local_job.h"

#include "store/hmac.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

using namespace ddphook;

/// A port on which nothing listens right now.
static Status findFreePort(uint16_t &port) {
  int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0)
    return systemError(errno, "cannot open a socket");
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  Status status;
  if (::bind(listener, reinterpret_cast<sockaddr *>(&address), size) != 0 ||
      ::listen(listener, 1) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr *>(&address), &size) !=
          0)
    status = systemError(errno, "cannot find a free port");
  ::close(listener);
  port = ntohs(address.sin_port);
  return status;
}

/// Draws a secret for the ranks that are going to be started, unless the user
/// has set one.
static Status chooseJobSecret() {
  const char *variable = "DDPHOOK_JOB_SECRET";
  const char *chosen = std::getenv(variable);
  if (chosen && *chosen)
    return Status::ok();
  std::string bytes, text;
  DDPHOOK_RETURN_IF_ERROR(drawSecret(digestSize, &bytes));
  for (char byte : bytes) {
    text.push_back(static_cast<char>('a' + (byte & 15)));
    text.push_back(static_cast<char>('a' + ((byte >> 4) & 15)));
  }
  ::setenv(variable, text.c_str(), 1);
  return Status::ok();
}

Status LocalJob::prepare(int32_t ranks, LocalJob *job) {
  job->ranks = ranks;
  DDPHOOK_RETURN_IF_ERROR(findFreePort(job->storePort));
  return chooseJobSecret();
}

void LocalJob::enter(int32_t rank) const {
  const std::string text = std::to_string(rank);
  ::setenv("RANK", text.c_str(), 1);
  ::setenv("LOCAL_RANK", text.c_str(), 1);
  ::setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
  ::setenv("MASTER_ADDR", address, 1);
  ::setenv("MASTER_PORT", std::to_string(storePort).c_str(), 1);
}
