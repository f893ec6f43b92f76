// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The port of a job belongs to the job from the start.

#include "local_job.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

using namespace ddphook;

/// A port of the loopback that the kernel chooses.
static uint16_t choosePort() {
  FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto *any = reinterpret_cast<sockaddr *>(&address);
  if (::bind(fd.get(), any, size) != 0 ||
      ::getsockname(fd.get(), any, &size) != 0)
    return 0;
  return ntohs(address.sin_port);
}

TEST(LocalJob, KeepsItsPortUntilRankZeroListens) {
  LocalJob job;
  ASSERT_TRUE(LocalJob::prepare(2, &job).isOk());
  ASSERT_NE(job.port(), 0);
  // About as many as there are to choose from.
  for (int i = 0; i < 30000; ++i)
    ASSERT_NE(choosePort(), job.port());
  FileDescriptor listening, second;
  int port = 0;
  EXPECT_TRUE(listenOn(job.address(), job.port(), &listening, &port).isOk());
  EXPECT_EQ(port, job.port());
  EXPECT_FALSE(listenOn(job.address(), job.port(), &second, &port).isOk());
}
