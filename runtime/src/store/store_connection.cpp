// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "store/store_connection.h"

#include <cerrno>
#include <sys/socket.h>
#include <utility>

using namespace ddphook;

void StoreConnection::send(Bytes bytes) {
  if (!isClosed)
    output.push_back(std::move(bytes));
}

void StoreConnection::sendFailure(const Bytes &frame) {
  if (isClosed || reserved.empty())
    return;
  reserved.front() = frame;
  output.splice(output.end(), reserved);
}

bool StoreConnection::receive() {
  char buffer[65536];
  // Bounded, so that one busy rank cannot keep the others waiting.
  for (int round = 0; round < 16; ++round) {
    const ssize_t received =
        ::recv(socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (received < 0)
      return errno == EAGAIN || errno == EINTR;
    errno = 0;
    if (received == 0)
      return false;
    if (!isTorn) {
      isTorn = true;
      input.append(buffer, static_cast<size_t>(received));
      isTorn = false;
    }
    if (static_cast<size_t>(received) < sizeof(buffer))
      return true;
  }
  return true;
}

bool StoreConnection::flush() {
  while (!output.empty()) {
    const std::string &front = *output.front();
    const ssize_t sent =
        ::send(socket.get(), front.data() + sentOfFront,
               front.size() - sentOfFront, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0)
      return errno == EAGAIN || errno == EINTR;
    sentOfFront += static_cast<size_t>(sent);
    if (sentOfFront == front.size()) {
      output.pop_front();
      sentOfFront = 0;
    }
  }
  return true;
}
