// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "store/socket.h"

#include "base/wait_scope.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

using namespace ddphook;

Status Interrupt::create(Interrupt *interrupt) {
  interrupt->event = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!interrupt->event.isValid())
    return systemError(errno, "cannot make an eventfd");
  return Status::ok();
}

void Interrupt::raise() const {
  uint64_t one = 1;
  if (::write(event.get(), &one, sizeof(one)) < 0) {
    // The counter is full, and therefore not 0.
  }
}

Status ddphook::resolve(const std::string &host, int port, AddressList *list,
                        int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo *found = nullptr;
  int failed =
      getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed != 0)
    return error(failed == EAI_MEMORY ? DDPHOOK_RESOURCE_EXHAUSTED
                                      : DDPHOOK_IO_ERROR,
                 "cannot resolve '%s': %s", host.c_str(), gai_strerror(failed));
  list->reset(found);
  return Status::ok();
}

InterfaceList ddphook::listInterfaces() {
  ifaddrs *list = nullptr;
  return InterfaceList(::getifaddrs(&list) == 0 ? list : nullptr);
}

bool ddphook::isLoopbackAddress(const std::string &address) {
  in_addr v4;
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1)
    return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  if (::inet_pton(AF_INET6, address.c_str(), &v6) == 1)
    return IN6_IS_ADDR_LOOPBACK(&v6);
  return address == "localhost";
}

/// Returns the bytes of an IPv4 or IPv6 address; IPv4 within IPv6 is IPv4.
static std::string addressBytes(const sockaddr *address) {
  if (address->sa_family == AF_INET)
    return std::string(
        reinterpret_cast<const char *>(
            &reinterpret_cast<const sockaddr_in *>(address)->sin_addr),
        sizeof(in_addr));
  if (address->sa_family != AF_INET6)
    return "";
  const in6_addr &v6 =
      reinterpret_cast<const sockaddr_in6 *>(address)->sin6_addr;
  std::string bytes(reinterpret_cast<const char *>(&v6), sizeof(v6));
  return IN6_IS_ADDR_V4MAPPED(&v6) ? bytes.substr(12) : bytes;
}

bool ddphook::isOwnAddress(const std::string &address) {
  AddressList list;
  const InterfaceList interfaces = listInterfaces();
  if (!resolve(address, 0, &list).isOk() || !interfaces)
    return false;
  auto isOwn = [&](const sockaddr *wanted) {
    std::string bytes = addressBytes(wanted);
    if (bytes.size() == sizeof(in_addr) && bytes[0] == 127)
      return true; // All of 127/8 is, though interfaces list one.
    for (ifaddrs *entry = interfaces.get(); entry; entry = entry->ifa_next)
      if (entry->ifa_addr && addressBytes(entry->ifa_addr) == bytes)
        return true;
    return false;
  };
  for (addrinfo *entry = list.get(); entry; entry = entry->ai_next)
    if (!isOwn(entry->ai_addr))
      return false;
  return true;
}

std::vector<std::string> ddphook::outwardAddresses() {
  const InterfaceList interfaces = listInterfaces();
  std::vector<std::string> v4, v6;
  for (ifaddrs *entry = interfaces.get(); entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP) ||
        (entry->ifa_flags & IFF_LOOPBACK))
      continue;
    const std::string bytes = addressBytes(entry->ifa_addr);
    char text[INET6_ADDRSTRLEN] = "";
    if (bytes.size() == sizeof(in_addr)) {
      const bool isLinkLocal = bytes.compare(0, 2, "\xa9\xfe") == 0;
      if (!isLinkLocal &&
          ::inet_ntop(AF_INET, bytes.data(), text, sizeof(text)))
        v4.emplace_back(text);
    } else if (bytes.size() == sizeof(in6_addr)) {
      in6_addr address;
      std::memcpy(&address, bytes.data(), sizeof(address));
      if (!IN6_IS_ADDR_LINKLOCAL(&address) &&
          ::inet_ntop(AF_INET6, &address, text, sizeof(text)))
        v6.emplace_back(text);
    }
  }
  v4.insert(v4.end(), v6.begin(), v6.end());
  return v4;
}

/// Returns the numeric address, or an empty string.
static std::string hostOf(const sockaddr *address, socklen_t size) {
  char host[NI_MAXHOST] = "";
  if (::getnameinfo(address, size, host, sizeof(host), nullptr, 0,
                    NI_NUMERICHOST) != 0)
    return "";
  std::string text = host;
  // An IPv4 address seen through a dual-stack socket.
  if (text.rfind("::ffff:", 0) == 0)
    text.erase(0, 7);
  return text;
}

static FileDescriptor openSocket(int family) {
  return FileDescriptor::opened([family] {
    return ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  });
}

static int portOf(int socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (::getsockname(socket, reinterpret_cast<sockaddr *>(&address), &size) != 0)
    return 0;
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<sockaddr_in6 *>(&address)->sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in *>(&address)->sin_port);
}

/// Returns true only if this machine has no such address.
template <typename Address>
static bool lacksAddress(int family, const Address &address) {
  FileDescriptor socket = openSocket(family);
  if (!socket.isValid())
    return errno == EAFNOSUPPORT;
  return ::bind(socket.get(), reinterpret_cast<const sockaddr *>(&address),
                sizeof(address)) != 0 &&
         errno == EADDRNOTAVAIL;
}

std::string ddphook::loopbackAddress() {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = in6addr_loopback;
  // All ranks of a machine must choose the same one.
  return lacksAddress(AF_INET, v4) && !lacksAddress(AF_INET6, v6) ? "::1"
                                                                  : "127.0.0.1";
}

Status ddphook::findAddresses(const std::string &host,
                              std::vector<std::string> *addresses) {
  addresses->clear();
  AddressList list;
  DDPHOOK_TRY(resolve(host, 0, &list));
  for (addrinfo *entry = list.get(); entry; entry = entry->ai_next) {
    std::string address = hostOf(entry->ai_addr, entry->ai_addrlen);
    if (std::find(addresses->begin(), addresses->end(), address) ==
        addresses->end())
      addresses->push_back(std::move(address));
  }
  return Status::ok();
}

std::string ddphook::endpointName(const std::string &address, int port) {
  const bool isV6 = address.find(':') != std::string::npos;
  return concat(isV6 ? "[" + address + "]" : address, ":", port);
}

Status ddphook::listenAt(const sockaddr *address, socklen_t size,
                         FileDescriptor *result, int *reason) {
  FileDescriptor fd = openSocket(address->sa_family);
  int on = 1, off = 0;
  // The predecessor's closed connections must not keep the port.
  if (fd.isValid())
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address->sa_family == AF_INET6)
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (!fd.isValid() || ::bind(fd.get(), address, size) != 0 ||
      ::listen(fd.get(), 1024) != 0) {
    const int failed = errno;
    if (reason)
      *reason = failed;
    return systemError(failed, "cannot listen");
  }
  *result = std::move(fd);
  return Status::ok();
}

Status ddphook::listenOn(const std::string &address, int port,
                         FileDescriptor *socket, int *boundPort, int *reason) {
  AddressList list;
  DDPHOOK_TRY(resolve(address, port, &list));
  DDPHOOK_TRY(
      withContext(listenAt(list->ai_addr, list->ai_addrlen, socket, reason),
                  endpointName(address, port)));
  *boundPort = portOf(socket->get());
  return Status::ok();
}

Status ddphook::listenOnAll(const std::string &host, int port,
                            const Deadline &deadline,
                            std::vector<FileDescriptor> *sockets,
                            int *boundPort) {
  const bool isLocal = isLoopbackAddress(host);
  // "::" includes IPv4; "0.0.0.0" is for machines without IPv6.
  std::vector<std::string> addresses = {"::", "0.0.0.0"};
  if (isLocal)
    DDPHOOK_TRY(findAddresses(host, &addresses));
  WaitScope scope([port] {
    return concat("rank 0 is waiting for port ", port,
                  ", which another program or job has");
  });
  for (;;) {
    sockets->clear();
    *boundPort = port;
    Status failure;
    int reason = 0;
    for (const std::string &address : addresses) {
      FileDescriptor socket;
      reason = 0;
      Status status =
          listenOn(address, *boundPort, &socket, boundPort, &reason);
      if (status.isOk()) {
        sockets->push_back(std::move(socket));
        if (!isLocal)
          break;
        continue;
      }
      failure = std::move(status);
      // A name may have addresses that this machine lacks.
      if (reason != EADDRNOTAVAIL && reason != EAFNOSUPPORT) {
        sockets->clear();
        break;
      }
    }
    if (!sockets->empty())
      return Status::ok();
    if (reason != EADDRINUSE)
      return failure;
    if (deadline.expired())
      return Status(failure.code(),
                    failure.message() +
                        "; another program or job has this port "
                        "(DDPHOOK_PORT chooses another one)");
    WaitScope::poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// The kernel counts received segments, including those without data.
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
  return peerLost("received nothing from %s for %g s",
                  peerNameOf(socket).c_str(), limit);
}

static Status waitFor(int socket, short events, const Deadline &deadline,
                      const Interrupt *interrupt) {
  Silence silence(controlSilenceSeconds);
  for (;;) {
    pollfd entries[2] = {{socket, events, 0},
                         {interrupt ? interrupt->fd() : -1, POLLIN, 0}};
    int ready = ::poll(entries, 2,
                       WaitScope::patienceMs(
                           std::min(deadline.remainingMs(), Silence::lookMs)));
    if (ready > 0 && entries[1].revents)
      return error(DDPHOOK_ABORTED, "interrupted");
    if (ready > 0)
      return Status::ok();
    if (ready < 0 && errno != EINTR)
      return systemError(errno, "cannot wait");
    if (deadline.expired())
      return deadlineExceeded("no answer in time");
    DDPHOOK_TRY(silence.look(socket));
    WaitScope::poll();
  }
}

Status ddphook::connectTo(const sockaddr *address, socklen_t size,
                          const Deadline &deadline, const Interrupt *interrupt,
                          FileDescriptor *result) {
  FileDescriptor fd = openSocket(address->sa_family);
  if (!fd.isValid())
    return systemError(errno, "cannot open a socket");
  if (::connect(fd.get(), address, size) != 0) {
    if (errno != EINPROGRESS)
      return systemError(errno, "cannot connect");
    DDPHOOK_TRY(withContext(waitFor(fd.get(), POLLOUT, deadline, interrupt),
                            "cannot connect"));
    int failed = 0;
    socklen_t length = sizeof(failed);
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failed, &length);
    if (failed != 0)
      return systemError(failed, "cannot connect");
  }
  // A connection to a free ephemeral port can, rarely, reach itself.
  std::string local;
  DDPHOOK_TRY(findLocalAddress(fd.get(), &local));
  if (peerNameOf(fd.get()) == endpointName(local, portOf(fd.get())))
    return systemError(ECONNREFUSED, "cannot connect");
  *result = std::move(fd);
  return Status::ok();
}

Status ddphook::connectOnce(const std::string &address, int port,
                            const Deadline &deadline, FileDescriptor *socket) {
  AddressList list;
  DDPHOOK_TRY(resolve(address, port, &list));
  return connectTo(list->ai_addr, list->ai_addrlen, deadline,
                   /*interrupt=*/nullptr, socket);
}

Status ddphook::waitToReceive(int socket, const Deadline &deadline) {
  return waitFor(socket, POLLIN, deadline, /*interrupt=*/nullptr);
}

void ddphook::setControlOptions(int socket) {
  auto set = [socket](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 3);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 6);
}

Status ddphook::sendAll(int socket, const void *data, size_t size,
                        const Deadline &deadline, const Interrupt *interrupt) {
  const char *next = static_cast<const char *>(data);
  while (size > 0) {
    ssize_t sent = ::send(socket, next, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      next += sent;
      size -= static_cast<size_t>(sent);
      continue;
    }
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
      return systemError(errno, "cannot send");
    DDPHOOK_TRY(withContext(waitFor(socket, POLLOUT, deadline, interrupt),
                            "cannot send"));
  }
  return Status::ok();
}

Status ddphook::receiveAll(int socket, void *data, size_t size,
                           const Deadline &deadline,
                           const Interrupt *interrupt) {
  char *next = static_cast<char *>(data);
  while (size > 0) {
    ssize_t received = ::recv(socket, next, size, MSG_DONTWAIT);
    if (received > 0) {
      next += received;
      size -= static_cast<size_t>(received);
      continue;
    }
    if (received == 0)
      return dataLoss("the connection was closed");
    if (errno != EAGAIN && errno != EINTR)
      return systemError(errno, "cannot receive");
    DDPHOOK_TRY(waitFor(socket, POLLIN, deadline, interrupt));
  }
  return Status::ok();
}

Status ddphook::findLocalAddress(int socket, std::string *address) {
  sockaddr_storage local = {};
  socklen_t size = sizeof(local);
  if (::getsockname(socket, reinterpret_cast<sockaddr *>(&local), &size) != 0)
    return systemError(errno, "cannot find the address of a connection");
  *address = hostOf(reinterpret_cast<sockaddr *>(&local), size);
  return Status::ok();
}

std::string ddphook::peerNameOf(int socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (::getpeername(socket, reinterpret_cast<sockaddr *>(&address), &size) != 0)
    return "an unknown address";
  int port = address.ss_family == AF_INET6
                 ? reinterpret_cast<sockaddr_in6 *>(&address)->sin6_port
                 : reinterpret_cast<sockaddr_in *>(&address)->sin_port;
  return endpointName(hostOf(reinterpret_cast<sockaddr *>(&address), size),
                      ntohs(static_cast<uint16_t>(port)));
}
