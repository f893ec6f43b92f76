// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A machine has addresses that mean another machine elsewhere, such as that of
// a container bridge. So a rank tries only addresses that are not its own, and
// the secret proves that it has reached rank 0.

#include "job/rendezvous.h"

#include "base/packed_texts.h"
#include "base/wait_scope.h"
#include "job/node.h"
#include "store/hmac.h"
#include "store/socket.h"
#include "store/store.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

using namespace ddphook;

static const char keyPrefix[] = "ddphook/";
/// Each wait in the host's store is this long, so that this thread can log.
static constexpr double patienceSeconds = 1;
/// The largest size of a value. Addresses that do not fit are omitted.
static constexpr size_t capacity = 1024;
static constexpr size_t maxAddresses = 8;
static constexpr size_t secretBytes = 32;

/// Returns this rank's network, without commas and white space.
static Status findNetwork(std::string *network) {
  std::string identity;
  DDPHOOK_TRY(identifyNetwork(&identity));
  *network = toHex(sha256(identity));
  return Status::ok();
}

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

/// Waits for the value that `rank` must set.
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
      return deadlineExceeded(
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
  DDPHOOK_TRY(drawSecret(secretBytes, &bytes));
  fresh = toHex(bytes);
  address->secret = place.secret + fresh;
  DDPHOOK_TRY(findNetwork(&network));
  bool isOneMachine = true;
  for (int rank = 1; rank < place.worldSize; ++rank) {
    std::string other;
    DDPHOOK_TRY(get("network/" + std::to_string(rank), rank, &other));
    isOneMachine = isOneMachine && other == network;
  }
  if (isOneMachine)
    address->hosts = {loopbackAddress()};
  return Status::ok();
}

Status Rendezvous::publish(StoreAddress *address) {
  std::string value = concat(fresh, ",", address->port, ",", network);
  std::vector<std::string> &hosts = address->hosts;
  if (hosts[0].empty())
    hosts = outwardAddresses();
  if (hosts.empty())
    return badEnvironment(
        "rank 0 has no address at which other machines could reach "
        "it; options.master_addr can name one");
  hosts.resize(std::min(hosts.size(), maxAddresses));
  for (const std::string &host : hosts)
    if (value.size() + 1 + host.size() < capacity)
      value += "," + host;
  return set("address", value);
}

Status Rendezvous::find(StoreAddress *address) {
  DDPHOOK_TRY(findNetwork(&network));
  DDPHOOK_TRY(set("network/" + std::to_string(place.rank), network));
  std::string value;
  DDPHOOK_TRY(get("address", 0, &value));
  std::vector<std::string> parts = splitAtCommas(value);
  const int port =
      parts.size() > 3
          ? static_cast<int>(std::strtol(parts[1].c_str(), nullptr, 10))
          : 0;
  if (port < 1 || port > 65535)
    return dataLoss(
        "expected rank 0's address in the host program's store, but "
        "got another text; each context needs its own store");
  address->hosts.clear();
  address->port = port;
  address->secret = place.secret + parts[0];
  if (parts[2] == network) {
    address->hosts = {loopbackAddress()};
    return Status::ok();
  }
  std::copy_if(parts.begin() + 3, parts.end(),
               std::back_inserter(address->hosts),
               [](const std::string &host) { return !isOwnAddress(host); });
  if (address->hosts.empty())
    return badEnvironment(
        "rank %d cannot reach rank 0: all of its addresses, %s, are "
        "this machine's; options.master_addr can name another one",
        place.rank, value.substr(value.find(parts[3])).c_str());
  return Status::ok();
}
