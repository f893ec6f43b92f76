//===- cuda_communicator.h - one process group on GPUs ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduces with their casts and divisions. A group of one has no NCCL.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_CUDA_COMMUNICATOR_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_CUDA_COMMUNICATOR_H

#include "base/encoding.h"
#include "cuda_device.h"

namespace ddphook::cuda {

/// UNSUPPORTED, with the encoding: the backend has no kernels for any.
Status refuseEncoding(const Encoding &encoding);

class CudaCommunicator {
public:
  /// Collective.
  static Status create(CudaDevice &device,
                       const ddphook_communicator_config_t &config,
                       std::unique_ptr<CudaCommunicator> *result);
  ~CudaCommunicator();

  /// Puts an all-reduce on the communication stream, behind what is on the
  /// compute stream now.
  Status start(const ddphook_all_reduce_t &operation, const void *in, void *out,
               int64_t *ticket);

private:
  CudaCommunicator(CudaDevice &device, int size, const std::string &name)
      : device(device), size(size),
        name(std::make_shared<const std::string>(name)) {}
  Status checkOperation(const ddphook_all_reduce_t &operation, const void *in,
                        const void *out) const;
  Status take(bool isCapturing, Collective **collective);
  Status enqueue(const ddphook_all_reduce_t &operation, const void *in,
                 void *out, cudaStream_t stream, cudaEvent_t begin);
  Status enqueueSum(const void *in, void *out, int64_t count, Dtype dtype,
                    cudaStream_t stream, cudaEvent_t begin);

  CudaDevice &device;
  const int size;
  const std::shared_ptr<const std::string> name;
  /// What travels in another type than it has in memory.
  void *staging = nullptr;
  uint64_t stagingBytes = 0;
  std::unique_ptr<NcclCommunicator> nccl;
};

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_CUDA_COMMUNICATOR_H
