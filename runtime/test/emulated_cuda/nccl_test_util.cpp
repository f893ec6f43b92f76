// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The id goes through a page that the test's process maps before it forks.

#include "nccl_test_util.h"

#include "job/job_test_util.h"

#include <cstdlib>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

using namespace emulated_cuda_test;

/// The page of the runAll() under way, for its ranks.
static SharedId *currentId = nullptr;

SharedId::SharedId() {
  void *page = mmap(nullptr, sizeof(Content), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED)
    std::abort();
  content = new (page) Content();
}

SharedId::~SharedId() { munmap(content, sizeof(Content)); }

void SharedId::put(const ncclUniqueId &id) {
  content->id = id;
  content->isThere = true;
}

ncclUniqueId SharedId::get() const {
  while (!content->isThere)
    usleep(1000);
  return content->id;
}

void SharedId::meet(int count) {
  content->met++;
  while (content->met < count)
    usleep(1000);
}

void emulated_cuda_test::runAll(int size, SharedId &id,
                                const std::function<std::string(int)> &function,
                                const std::vector<int> &signals) {
  currentId = &id;
  auto results = ddphook::test::runRanks(size, [&](int rank) {
    setenv("EMULATED_CUDA_FIRST_DEVICE", std::to_string(rank).c_str(), 1);
    setenv("RANK", std::to_string(rank).c_str(), 1);
    std::string text = function(rank);
    return text.empty() ? "fine" : text;
  });
  for (size_t rank = 0; rank < results.size(); ++rank) {
    int signal = rank < signals.size() ? signals[rank] : 0;
    EXPECT_FALSE(results[rank].isHung) << "rank " << rank;
    EXPECT_EQ(results[rank].signal, signal) << "rank " << rank;
    EXPECT_EQ(results[rank].text, signal ? "" : "fine") << "rank " << rank;
  }
}

Rank::Rank(int rank, int size, bool isBlocking)
    : rank(rank), size(size), isBlocking(isBlocking) {
  if (cudaStreamCreateWithFlags(&ownStream, cudaStreamNonBlocking))
    std::abort();
}

Rank::~Rank() { cudaStreamDestroy(ownStream); }

ncclResult_t Rank::begin() {
  ncclUniqueId id;
  if (rank == 0) {
    if (ncclResult_t result = ncclGetUniqueId(&id))
      return result;
    currentId->put(id);
  } else {
    id = currentId->get();
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = isBlocking;
  return ncclCommInitRankConfig(&comm, size, id, rank, &config);
}

ncclResult_t Rank::finish(ncclResult_t result) {
  while (result == ncclInProgress) {
    usleep(100);
    if (ncclResult_t failure = ncclCommGetAsyncError(comm, &result))
      return failure;
  }
  return result;
}

std::string Rank::leave() {
  REQUIRE_NCCL(finish(ncclCommFinalize(comm)));
  REQUIRE_NCCL(ncclCommDestroy(comm));
  comm = nullptr;
  return "";
}

DeviceBytes::DeviceBytes(const std::vector<char> &bytes) : count(bytes.size()) {
  if (count > 0 &&
      (cudaMalloc(&memory, count) ||
       cudaMemcpy(memory, bytes.data(), count, cudaMemcpyHostToDevice) ||
       // Ranks' streams do not wait for what is still on its way.
       cudaStreamSynchronize(nullptr)))
    std::abort();
}

DeviceBytes::~DeviceBytes() { cudaFree(memory); }

std::vector<char> DeviceBytes::read() const {
  std::vector<char> bytes(count);
  if (count > 0 &&
      cudaMemcpy(bytes.data(), memory, count, cudaMemcpyDeviceToHost))
    std::abort();
  return bytes;
}
