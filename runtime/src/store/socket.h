// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parts of TCP that ranks need to connect: they listen, connect, send and
// receive whole buffers until a deadline or an interrupt. Not for collectives.

#pragma once

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/status.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ifaddrs.h>
#include <memory>
#include <netdb.h>
#include <string>
#include <sys/socket.h>
#include <vector>

namespace ddphook {

struct FreeList {
  void operator()(addrinfo *list) const { ::freeaddrinfo(list); }
  void operator()(ifaddrs *list) const { ::freeifaddrs(list); }
};
using AddressList = std::unique_ptr<addrinfo, FreeList>;
using InterfaceList = std::unique_ptr<ifaddrs, FreeList>;

/// Finds the addresses of TCP port `port` of `host`. `flags` as AI_NUMERICHOST.
Status resolve(const std::string &host, int port, AddressList *list,
               int flags = 0);

/// Returns the addresses of this machine's interfaces, or null and sets errno.
InterfaceList listInterfaces();

/// Ends present and future waits on sockets from another thread.
class Interrupt {
public:
  static Status create(Interrupt *interrupt);

  /// Ends every wait that has this interrupt with ABORTED. Thread-safe.
  void raise() const;

  int fd() const { return event.get(); }

private:
  FileDescriptor event;
};

/// Returns true if `address` is a numeric loopback address or "localhost".
/// Other names may mean the loopback interface here but not on other machines.
bool isLoopbackAddress(const std::string &address);

/// Returns this machine's loopback address: 127.0.0.1, or ::1 without IPv4.
std::string loopbackAddress();

/// True if `address` is this machine's, or a name with only such addresses.
bool isOwnAddress(const std::string &address);

/// Returns the numeric addresses at which other machines may reach this one,
/// IPv4 first, without loopback and link-local addresses.
std::vector<std::string> outwardAddresses();

/// Finds the numeric addresses of `host`, each once, in the resolver's order.
Status findAddresses(const std::string &host,
                     std::vector<std::string> *addresses);

/// Returns "address:port", with brackets around an IPv6 address.
std::string endpointName(const std::string &address, int port);

/// Listens on `port` (0: any free one) of the numeric `address`. On failure
/// `reason` receives errno.
Status listenOn(const std::string &address, int port, FileDescriptor *socket,
                int *boundPort, int *reason = nullptr);

/// Listens on `port` of all addresses of `host`, or of none: on the loopback
/// interface only if isLoopbackAddress(host), otherwise on all interfaces.
/// While another program has the port, waits for it until `deadline`.
Status listenOnAll(const std::string &host, int port, const Deadline &deadline,
                   std::vector<FileDescriptor> *sockets, int *boundPort);

/// Listens at exactly this address; port 0 means any free one.
Status listenAt(const sockaddr *address, socklen_t size, FileDescriptor *socket,
                int *reason = nullptr);

/// Tries once to connect to the numeric `address`. RESOURCE_EXHAUSTED is about
/// this process; every other failure may go away by itself.
Status connectOnce(const std::string &address, int port,
                   const Deadline &deadline, FileDescriptor *socket);

/// Tries once to connect to this address.
Status connectTo(const sockaddr *address, socklen_t size,
                 const Deadline &deadline, const Interrupt *interrupt,
                 FileDescriptor *socket);

/// Waits until data can be received or the connection has ended.
Status waitToReceive(int socket, const Deadline &deadline);

/// Sets the options of every connection between ranks: no delay, and probes
/// after three seconds, which Silence needs on both ends. If nobody waits,
/// and so nobody looks, they end a connection to a lost machine after 15 s.
void setControlOptions(int socket);

/// Sends all of `data`. DEADLINE_EXCEEDED may leave a part of it sent.
Status sendAll(int socket, const void *data, size_t size,
               const Deadline &deadline, const Interrupt *interrupt = nullptr);

/// Receives exactly `size` bytes; DATA_LOSS if the connection closes first.
Status receiveAll(int socket, void *data, size_t size, const Deadline &deadline,
                  const Interrupt *interrupt = nullptr);

/// Finds the numeric address of this end of a connection.
Status findLocalAddress(int socket, std::string *address);

/// Returns "host:port" of the other end, for messages.
std::string peerNameOf(int socket);

// TCP alone does not report in time that a machine has vanished: Linux sends no
// keepalive probes while data is unacknowledged, and retransmits that data for
// a quarter of an hour. TCP_USER_TIMEOUT would end the connection sooner, but
// also one to a live peer that has not read for that long, such as a rank that
// computes. So a waiting thread checks whether anything arrives: with keepalive
// on both ends (setControlOptions()), the system of a live machine sends
// something every three seconds, whatever its processes do.

/// The seconds for which a peer's machine may be silent. They exceed the usual
/// pauses between retransmissions (the sixth follows after 12.6 s), so that
/// short outages do no harm. When a machine is gone, the control connection
/// reports it first, with its rank.
inline constexpr double controlSilenceSeconds = 13;
inline constexpr double dataSilenceSeconds = 14;

/// Watches one connection, from the first look() on.
class Silence {
public:
  using Clock = std::chrono::steady_clock;

  explicit Silence(double seconds) : limit(seconds) {}

  /// The milliseconds between two looks of a wait.
  static constexpr int lookMs = 500;

  /// Looks at `socket`, unless it did so a moment ago. Fails with PEER_LOST if
  /// nothing has arrived for too long. Time without looks hardly counts,
  /// because this process or its machine may have been stopped.
  Status look(int socket, Clock::time_point now = Clock::now());

private:
  double limit;
  Clock::time_point last;
  /// The segments received by then, and the time since the last new one.
  uint32_t segments = 0;
  Clock::duration silent = {};
};

} // namespace ddphook
