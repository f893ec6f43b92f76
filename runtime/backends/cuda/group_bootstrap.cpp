// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every rank sets one key; rank 0 of the group reads them all, decides, and
// sets one key that all ranks read: 3n messages for n ranks, not n².

#include "group_bootstrap.h"

#include "backend/backend_store.h"
#include "cuda_error.h"

#include <cstdlib>
#include <cstring>
#include <map>

using namespace ddphook;
using namespace ddphook::cuda;

/// The first character of a rank's introduction.
static constexpr char ready = '+';
static constexpr char failed = '-';

/// The number of ranks that one process can handle quickly enough.
static constexpr int ranksPerRoot = 128;

/// The first version with all required features. The build requires it, too
/// (DDPHOOK_LEAST_NCCL), but a different library may be loaded.
static constexpr int leastVersion = NCCL_VERSION(2, 28, 0);

/// From this version on NCCL lets ranks share a GPU on request.
static constexpr int sharingVersion = 23003;

static int countRoots(const CudaOptions &options, int size) {
  int roots = options.roots.value_or((size + ranksPerRoot - 1) / ranksPerRoot);
  return std::min(roots, size);
}

/// Returns the rank that provides unique id number `root`.
static int rankOfRoot(int root, int roots, int size) {
  return static_cast<int>(static_cast<int64_t>(root) * size / roots);
}

static bool isRoot(int rank, int roots, int size) {
  for (int root = 0; root < roots; ++root)
    if (rankOfRoot(root, roots, size) == rank)
      return true;
  return false;
}

static bool mayShareGpu(int ncclVersion) {
  const char *enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return ncclVersion >= sharingVersion && enabled &&
         std::strcmp(enabled, "1") == 0;
}

Status cuda::checkIdentities(const std::vector<RankIdentity> &ranks,
                             const int32_t *worldRanks, bool canShareGpu) {
  std::map<std::string, size_t> ownerOf;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankIdentity &rank = ranks[i];
    if (rank.ncclVersion < leastVersion)
      return error(DDPHOOK_UNSUPPORTED,
                   "expected NCCL %s or later, but rank %d has loaded %s",
                   ncclVersionText(leastVersion).c_str(), worldRanks[i],
                   ncclVersionText(rank.ncclVersion).c_str());
    if (rank.ncclVersion != ranks[0].ncclVersion)
      return error(DDPHOOK_UNSUPPORTED,
                   "expected the same NCCL on all ranks, but rank %d has %s "
                   "and rank %d has %s",
                   worldRanks[0], ncclVersionText(ranks[0].ncclVersion).c_str(),
                   worldRanks[i], ncclVersionText(rank.ncclVersion).c_str());
    if (rank.capability != ranks[0].capability)
      return error(DDPHOOK_UNSUPPORTED,
                   "expected GPUs of one kind, but rank %d has compute "
                   "capability %d.%d and rank %d has %d.%d",
                   worldRanks[0], ranks[0].capability / 10,
                   ranks[0].capability % 10, worldRanks[i],
                   rank.capability / 10, rank.capability % 10);
    // Compare what NCCL compares: to it, ranks of two hosts share no GPU.
    auto [owner, isFirst] = ownerOf.emplace(rank.uuid + '\n' + rank.hostId, i);
    if (!isFirst && !canShareGpu)
      return error(DDPHOOK_UNSUPPORTED,
                   "expected every rank to have its own GPU, but ranks %d and "
                   "%d share one; NCCL %s refuses that unless each of them has "
                   "its own NCCL_HOSTID%s",
                   worldRanks[owner->second], worldRanks[i],
                   ncclVersionText(rank.ncclVersion).c_str(),
                   rank.ncclVersion >= sharingVersion
                       ? ", or NCCL_MULTI_RANK_GPU_ENABLE=1"
                       : "");
  }
  return Status::ok();
}

namespace {

/// The keys of one group in the store.
class GroupStore {
public:
  GroupStore(const ddphook_communicator_config_t &config,
             const Deadline &deadline)
      : store(*config.store), key(std::string(config.key) + "/nccl/"),
        deadline(deadline) {}

  Status set(const std::string &name, const std::string &value) {
    return store.set(key + name, value);
  }
  Status get(const std::string &name, std::string *value) {
    return store.get(key + name, deadline, value);
  }
  /// True if the key is set now.
  bool has(const std::string &name) {
    std::string value;
    return store.get(key + name, Deadline::after(0), &value).isOk();
  }
  Status erase(const std::string &name) { return store.erase(key + name); }
  Status add(const std::string &name, int64_t *result) {
    return store.add(key + name, 1, result);
  }

private:
  BackendStore store;
  const std::string key;
  const Deadline deadline;
};

} // namespace

static std::string toBytes(const ncclUniqueId &id) {
  return std::string(id.internal, sizeof(id.internal));
}

/// Writes "+uuid capability version length\n", then `length` bytes of a host
/// name, and the unique id if this rank provides one.
static Status introduce(const DeviceChoice &device, bool isRootRank,
                        std::string *text, RankIdentity *identity) {
  int version = 0;
  DDPHOOK_TRY(toStatus(ncclGetVersion(&version), nullptr,
                       "asking NCCL for its version"));
  identity->uuid = device.uuid;
  identity->capability = device.capability;
  identity->ncclVersion = version;
  const char *hostId = std::getenv("NCCL_HOSTID");
  identity->hostId = hostId ? hostId : "";
  *text = ready + device.uuid + ' ' + std::to_string(device.capability) + ' ' +
          std::to_string(version) + ' ' +
          std::to_string(identity->hostId.size()) + '\n' + identity->hostId;
  if (!isRootRank)
    return Status::ok();
  ncclUniqueId id = {};
  DDPHOOK_TRY(toStatus(ncclGetUniqueId(&id), nullptr, "making a unique id"));
  *text += toBytes(id);
  return Status::ok();
}

static Status readIntroduction(const std::string &text, int worldRank,
                               RankIdentity *identity, std::string *id) {
  if (!text.empty() && text[0] == failed)
    return error(DDPHOOK_ABORTED, "rank %d: %s", worldRank, text.c_str() + 1);
  char uuid[64] = {};
  size_t end = text.find('\n'), length = 0;
  if (end == std::string::npos || text[0] != ready ||
      std::sscanf(text.c_str(), "+%63s %d %d %zu", uuid, &identity->capability,
                  &identity->ncclVersion, &length) != 4 ||
      length > text.size() - end - 1)
    return error(DDPHOOK_DATA_LOSS, "rank %d sent a malformed identity",
                 worldRank);
  identity->uuid = uuid;
  identity->hostId = text.substr(end + 1, length);
  *id = text.substr(end + 1 + length);
  return Status::ok();
}

/// Collects the introductions as rank 0, and concatenates all unique ids.
static Status collect(GroupStore &store,
                      const ddphook_communicator_config_t &config, int roots,
                      std::string *ids) {
  std::vector<RankIdentity> ranks(static_cast<size_t>(config.size));
  for (int rank = 0; rank < config.size; ++rank) {
    const int worldRank = config.world_ranks[rank];
    std::string text, id;
    DDPHOOK_TRY(withContext(store.get(std::to_string(rank), &text),
                            "waiting for rank " + std::to_string(worldRank)));
    DDPHOOK_TRY(readIntroduction(text, worldRank,
                                 &ranks[static_cast<size_t>(rank)], &id));
    if (id.size() !=
        (isRoot(rank, roots, config.size) ? sizeof(ncclUniqueId) : size_t(0)))
      return invalid("expected the same option roots on all ranks, but rank %d "
                     "has another one",
                     worldRank);
    *ids += id;
  }
  // Keep the keys until now, because they tell others which ranks have come.
  for (int rank = 0; rank < config.size; ++rank)
    DDPHOOK_TRY(store.erase(std::to_string(rank)));
  return checkIdentities(ranks, config.world_ranks,
                         mayShareGpu(ranks[0].ncclVersion));
}

/// Returns the rank that rank 0 waits for, or rank 0 if it has not decided.
static int findLate(GroupStore &store,
                    const ddphook_communicator_config_t &config) {
  for (int rank = 0; rank < config.size; ++rank)
    if (!store.has(std::to_string(rank)))
      return config.world_ranks[rank];
  return config.world_ranks[0];
}

/// Reads rank 0's decision. The last reader deletes it.
static Status readVerdict(GroupStore &store,
                          const ddphook_communicator_config_t &config,
                          std::string *ids) {
  std::string verdict;
  Status read = store.get("verdict", &verdict);
  if (read.code() == DDPHOOK_DEADLINE_EXCEEDED)
    return withContext(read, "waiting for rank " +
                                 std::to_string(findLate(store, config)));
  DDPHOOK_TRY(withContext(read, "waiting for unique ids"));
  int64_t readers = 0;
  DDPHOOK_TRY(store.add("readers", &readers));
  if (readers == config.size) {
    DDPHOOK_TRY(store.erase("verdict"));
    DDPHOOK_TRY(store.erase("readers"));
  }
  if (verdict.empty() || (verdict[0] != ready && verdict[0] != failed))
    return error(DDPHOOK_DATA_LOSS, "the unique ids are malformed");
  if (verdict[0] == failed) {
    size_t split = verdict.find(' ');
    return Status(static_cast<ddphook_status_t>(std::atoi(verdict.c_str() + 1)),
                  split == std::string::npos ? "" : verdict.substr(split + 1));
  }
  *ids = verdict.substr(1);
  return Status::ok();
}

Status cuda::agreeOnIds(const ddphook_communicator_config_t &config,
                        const CudaOptions &options, const DeviceChoice &device,
                        const Deadline &deadline,
                        std::vector<ncclUniqueId> *ids) {
  GroupStore store(config, deadline);
  const int roots = countRoots(options, config.size);
  RankIdentity mine;
  std::string text;
  Status introduced =
      introduce(device, isRoot(config.rank, roots, config.size), &text, &mine);
  DDPHOOK_TRY(
      store.set(std::to_string(config.rank),
                introduced.isOk() ? text : failed + introduced.message()));
  if (config.rank == 0) {
    std::string all;
    Status collected = collect(store, config, roots, &all);
    DDPHOOK_TRY(
        store.set("verdict", collected.isOk()
                                 ? ready + all
                                 : failed + std::to_string(collected.code()) +
                                       ' ' + collected.message()));
  }
  std::string all;
  Status agreed = readVerdict(store, config, &all);
  DDPHOOK_TRY(introduced);
  DDPHOOK_TRY(agreed);
  if (all.size() != static_cast<size_t>(roots) * sizeof(ncclUniqueId))
    return invalid("expected the same option roots on all ranks, but got %zu "
                   "unique ids instead of %d",
                   all.size() / sizeof(ncclUniqueId), roots);
  ids->resize(static_cast<size_t>(roots));
  std::memcpy(ids->data(), all.data(), all.size());
  return Status::ok();
}
