// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernel counts the segments that a connection receives, including those
// without data.

#include "store/silence.h"

#include "store/socket.h"

#include <algorithm>
#include <cstddef>
#include <linux/tcp.h>
#include <netinet/in.h>

using namespace ddphook;

Status Silence::look(int socket, Clock::time_point now) {
  constexpr std::chrono::milliseconds pause(lookMs);
  const Clock::duration passed =
      std::min<Clock::duration>(now - last, 2 * pause);
  if (passed < pause)
    return Status::ok();
  last = now;
  tcp_info info = {};
  socklen_t size = sizeof(info);
  // A system that does not count leaves it to keepalive. Zero segments mean
  // that the socket is still connecting.
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      size < offsetof(tcp_info, tcpi_segs_in) + sizeof(info.tcpi_segs_in) ||
      info.tcpi_segs_in == 0)
    return Status::ok();
  silent = info.tcpi_segs_in == segments ? silent + passed : Clock::duration();
  segments = info.tcpi_segs_in;
  if (std::chrono::duration<double>(silent).count() < limit)
    return Status::ok();
  return error(DDPHOOK_PEER_LOST, "received nothing from %s for %g s",
               peerNameOf(socket).c_str(), limit);
}
