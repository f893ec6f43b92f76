//===- rendezvous.cpp - ranks that meet in their host's store -------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A machine has addresses that mean another machine elsewhere, such as that of
// a bridge for containers, which all machines number alike. So a rank leaves
// out addresses that are its own, and tries the others; that it has reached
// rank 0 indeed, the secret proves.
//
//===----------------------------------------------------------------------===//
#include "job/rendezvous.h"

#include "base/packed_texts.h"
#include "base/wait_scope.h"
#include "job/node.h"
#include "store/absent_ranks.h"
#include "store/hmac.h"
#include "store/socket.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

using namespace ddphook;

static const char keyPrefix[] = "ddphook/";
static constexpr const char *loopbackHost = "127.0.0.1";
/// How long the host's store waits at a time, so that this thread can tell that
/// it waits.
static constexpr double patienceSeconds = 1;
/// How long an address gets that does not answer at all.
static constexpr double attemptSeconds = 2;
/// Of a value. Addresses that do not fit are left out.
static constexpr size_t capacity = 1024;
static constexpr size_t maxAddresses = 8;
static constexpr size_t secretBytes = 32;

static std::string toHex(const std::string &bytes) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += digits[value >> 4];
    text += digits[value & 15];
  }
  return text;
}

/// This rank's network, without commas and white space.
static Status findNetwork(std::string *network) {
  std::string identity;
  DDPHOOK_RETURN_IF_ERROR(identifyNetwork(&identity));
  *network = toHex(sha256(identity));
  return Status::ok();
}

/// What the host's store failed at.
static Status hostStoreError(ddphook_status_t code, const char *action,
                             const std::string &key) {
  return error(code, "the host program's store failed to %s '%s' (%s)", action,
               key.c_str(), ddphook_status_name(code));
}

Status Rendezvous::set(const std::string &key, const std::string &value) {
  const std::string name = keyPrefix + key;
  const ddphook_status_t code =
      place.hostStore->set(place.hostStore->user, name.c_str(), value.c_str());
  return code == DDPHOOK_OK ? Status::ok() : hostStoreError(code, "set", name);
}

/// Waits for what `rank` has to set.
Status Rendezvous::get(const std::string &key, int rank, std::string *value) {
  const std::string name = keyPrefix + key;
  WaitScope scope(
      [&] {
        return describeWait(place.rank, {rank}, place.worldSize) + " to set '" +
               name + "' in the host program's store";
      },
      tellsWaits);
  char text[capacity] = "";
  for (;;) {
    WaitScope::poll();
    const ddphook_status_t code = place.hostStore->get(
        place.hostStore->user, name.c_str(),
        std::min(patienceSeconds, deadline.remaining()), text, sizeof(text));
    if (code == DDPHOOK_OK)
      break;
    if (code != DDPHOOK_DEADLINE_EXCEEDED)
      return hostStoreError(code, "get", name);
    if (deadline.expired())
      return error(DDPHOOK_DEADLINE_EXCEEDED,
                   "rank %d did not set '%s' in the host program's store "
                   "within %g s",
                   rank, name.c_str(), place.timeoutSeconds);
  }
  text[sizeof(text) - 1] = '\0';
  *value = text;
  return Status::ok();
}

Status Rendezvous::choose(StoreAddress *address) {
  std::string bytes;
  DDPHOOK_RETURN_IF_ERROR(drawSecret(secretBytes, &bytes));
  fresh = toHex(bytes);
  address->secret = place.secret + fresh;
  DDPHOOK_RETURN_IF_ERROR(findNetwork(&network));
  bool isOneMachine = true;
  for (int rank = 1; rank < place.worldSize; ++rank) {
    std::string other;
    DDPHOOK_RETURN_IF_ERROR(
        get("network/" + std::to_string(rank), rank, &other));
    isOneMachine = isOneMachine && other == network;
  }
  if (isOneMachine)
    address->host = loopbackHost;
  return Status::ok();
}

Status Rendezvous::publish(StoreAddress *address) {
  std::string value =
      fresh + "," + std::to_string(address->port) + "," + network;
  std::vector<std::string> hosts = {address->host};
  if (address->host.empty()) {
    hosts = outwardAddresses();
    address->host = loopbackHost;
  }
  if (hosts.empty())
    return error(DDPHOOK_BAD_ENVIRONMENT,
                 "rank 0 has no address at which other machines could reach "
                 "it; options.master_addr can name one");
  hosts.resize(std::min(hosts.size(), maxAddresses));
  for (const std::string &host : hosts)
    if (value.size() + 1 + host.size() < capacity)
      value += "," + host;
  return set("address", value);
}

/// Tries again and again, until the deadline, because networks come up late.
Status Rendezvous::tryAddresses(const std::vector<std::string> &hosts, int port,
                                std::string *host) const {
  std::string all;
  for (const std::string &name : hosts)
    all += (all.empty() ? "" : ", ") + name;
  Status cause = error(DDPHOOK_IO_ERROR, "all of them are this machine's");
  WaitScope scope(
      [&] {
        return describeWait(place.rank, {0}, place.worldSize) + " at port " +
               std::to_string(port) + " of " + all + " (" + cause.message() +
               ")";
      },
      tellsWaits);
  for (;;) {
    WaitScope::poll();
    for (const std::string &name : hosts) {
      if (isOwnAddress(name))
        continue;
      FileDescriptor socket;
      cause = connectOnce(
          name, port,
          Deadline::after(std::min(attemptSeconds, deadline.remaining())),
          &socket);
      if (cause.code() == DDPHOOK_RESOURCE_EXHAUSTED)
        return cause;
      if (cause.isOk()) {
        *host = name;
        return Status::ok();
      }
    }
    if (deadline.expired())
      return error(DDPHOOK_DEADLINE_EXCEEDED,
                   "rank %d could not join rank 0 at port %d of %s within %g "
                   "s: %s",
                   place.rank, port, all.c_str(), place.timeoutSeconds,
                   cause.message().c_str());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

Status Rendezvous::find(StoreAddress *address) {
  DDPHOOK_RETURN_IF_ERROR(findNetwork(&network));
  DDPHOOK_RETURN_IF_ERROR(
      set("network/" + std::to_string(place.rank), network));
  std::string value;
  DDPHOOK_RETURN_IF_ERROR(get("address", 0, &value));
  std::vector<std::string> parts = splitAtCommas(value);
  const int port =
      parts.size() > 3
          ? static_cast<int>(std::strtol(parts[1].c_str(), nullptr, 10))
          : 0;
  if (port < 1 || port > 65535)
    return error(DDPHOOK_DATA_LOSS,
                 "expected rank 0's address in the host program's store, but "
                 "got another text; every context needs a store of its own");
  address->port = port;
  address->secret = place.secret + parts[0];
  if (parts[2] == network) {
    address->host = loopbackHost;
    return Status::ok();
  }
  return tryAddresses({parts.begin() + 3, parts.end()}, port, &address->host);
}
