// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses a transport; groups of one rank have none.

#include "host_communicator.h"

#include "backend/backend_store.h"
#include "encoded_chunks.h"

using namespace ddphook;
using namespace ddphook::host;

Status host::parseTransport(const std::string &name, Transport *transport) {
  if (name == "auto")
    *transport = Transport::Auto;
  else if (name == "shm")
    *transport = Transport::SharedMemory;
  else if (name == "gloo")
    *transport = Transport::Gloo;
  else
    return invalid(
        "expected the transport 'auto', 'shm' or 'gloo', but got '%s'",
        name.c_str());
  return Status::ok();
}

Status
HostCommunicator::join(const ddphook_communicator_config_t &config,
                       Transport transport, double timeoutSeconds,
                       const std::function<Status(GlooDevice **)> &makeDevice,
                       const std::atomic<bool> &isAborted) {
  place.rank = config.rank;
  place.size = config.size;
  place.jobRanks.assign(config.world_ranks, config.world_ranks + config.size);
  place.group = config.name ? config.name : "";
  if (config.size == 1)
    return Status::ok();
  const bool isOneMachine = config.one_machine != 0;
  if (transport == Transport::SharedMemory && !isOneMachine)
    return invalid("the transport is 'shm', but the ranks of a process group "
                   "do not share a machine's memory");
  BackendStore store(*config.store);
  if (transport != Transport::Gloo && isOneMachine)
    return withContext(
        ShmGroup::create(store, config.key, place, timeoutSeconds, &shm,
                         &isAborted),
        "shared memory (DDPHOOK_TRANSPORT=gloo does not need it)");
  GlooDevice *device = nullptr;
  DDPHOOK_TRY(makeDevice(&device));
  std::string proofKey(reinterpret_cast<const char *>(config.proof_key),
                       config.proof_key_size);
  DDPHOOK_TRY(GlooGroup::create(*device, store, config.key, proofKey, place,
                                timeoutSeconds, &gloo));
  gloo->reserve(static_cast<int64_t>(config.max_wire_bytes));
  return Status::ok();
}

Status HostCommunicator::run(const CollectiveDesc &desc, const void *in,
                             void *out) {
  if (shm)
    return place.withGroup(shm->run(desc, in, out));
  if (gloo)
    return place.withGroup(gloo->run(desc, in, out));
  reduceAlone(desc, in, out);
  return Status::ok();
}

Status HostCommunicator::runInPieces(const CollectiveDesc &desc, void *array,
                                     void *error, PieceFlow &flow) {
  if (!gloo)
    return internalError("expected ranks of several machines, but got a group "
                         "without a network");
  return place.withGroup(gloo->runInPieces(desc, array, error, flow));
}
