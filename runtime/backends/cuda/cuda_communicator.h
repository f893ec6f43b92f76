// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs collectives with their casts and divisions. A group of one has no NCCL.

#pragma once

#include "base/collective.h"
#include "base/rounding.h"
#include "cuda_device.h"
#include "kernels/elements.h"

namespace ddphook::cuda {

class CudaCommunicator {
public:
  /// Collective.
  static Status create(CudaDevice &device,
                       const ddphook_communicator_config_t &config,
                       std::unique_ptr<CudaCommunicator> *result);
  ~CudaCommunicator();

  /// Enqueues a collective on the communication stream, after the work that is
  /// on the compute stream now.
  Status start(const CollectiveOperation &operation, const void *in, void *out,
               int64_t *ticket);

private:
  /// A collective to enqueue. NCCL's part of it records `begin` again.
  struct Call {
    const CollectiveOperation &operation;
    const void *in;
    void *out;
    cudaStream_t stream;
    cudaEvent_t begin;
  };

  CudaCommunicator(CudaDevice &device,
                   const ddphook_communicator_config_t &config)
      : device(device), rank(config.rank), size(config.size),
        name(std::make_shared<const std::string>(
            config.name ? config.name : "the process group of all ranks")) {}
  Status checkOperation(const CollectiveOperation &operation, const void *in,
                        const void *out) const;
  Status take(bool isCapturing, Collective **collective);
  Status enqueue(const Call &call);
  Status communicate(const Call &call, CollectiveKind kind, const void *in,
                     void *out, int64_t count, Dtype dtype);
  Status enqueueAllReduce(const Call &call);
  int64_t partOfEach(const CollectiveOperation &operation) const;
  Status enqueueReduceScatter(const Call &call);
  Status enqueueAllGather(const Call &call);
  Status enqueueEncoded(const Call &call, const Encoding &encoding);
  Status enqueueEncodedGather(const Call &call, const Encoding &encoding);
  Status enqueueAffine(const Call &call, const Encoding &encoding);
  /// True if a reduce-scatter or all-gather uses the staging buffer: with casts
  /// or divisions, and if NCCL's parts of equal size are not those of the
  /// array.
  bool isStaged(const CollectiveOperation &operation) const;
  /// Returns 1 if a collective does not divide.
  Divisor divisorOf(const CollectiveOperation &operation) const {
    return {operation.divide ? size : 1, device.options().dividesExactly()};
  }
  Deadline deadline() const { return Deadline::after(device.timeoutSeconds()); }

  CudaDevice &device;
  const int rank, size;
  /// The name of the group in messages and in NCCL.
  const std::shared_ptr<const std::string> name;
  /// Arrays whose wire type differs from their type in memory.
  void *staging = nullptr;
  uint64_t stagingBytes = 0;
  /// Codes and scales: this rank's parts, then all ranks' codes of the part
  /// that is added here; or the affine codes of all ranks, then scratch.
  void *encoded = nullptr;
  uint64_t encodedBytes = 0;
  std::unique_ptr<NcclCommunicator> nccl;
};

} // namespace ddphook::cuda
