// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of NCCL 2.28 that the CUDA backend uses. Data go through the host
// backend's shared memory, in its order of additions: the results are its bits.
// All ranks have to run on one machine, as processes or as threads.
//
// Kept from NCCL, because the backend has to live with it:
//   - a communicator whose configuration says blocking = 0 answers
//     ncclInProgress and goes on in a thread that this call starts. Until
//     ncclCommGetAsyncError() gives ncclSuccess nothing is in the stream yet,
//     and every other call gives ncclInvalidArgument.
//   - a communicator that is blocking works on the calling thread, and waits
//     there for the other ranks until another thread calls ncclCommAbort() in a
//     group. The group's end frees the communicator, and ends the process where
//     a thread is in a call still. NCCL_COMM_BLOCKING overrides what the
//     configuration says.
//   - a rank that is missing, or a peer that dies, is not noticed: the
//     initialization, or the operation in the stream, hangs until
//     ncclCommAbort().
//   - an abort lets the communicator's own operations end, and then waits for
//     all that the device has been given: where that is behind an operation of
//     another communicator, it hangs until that one is aborted as well. Aborts
//     of one group let the operations of all of them end first.
//   - a graph that has captured an operation holds the communicator: to
//     finalize, destroy or abort it waits until the graph, and what was
//     instantiated from it, are destroyed.
//   - ncclCommDestroy(), of the last rank in a process, waits until the ranks
//     of the machine have called it or ncclCommAbort().
//   - two ranks on one GPU are ncclInvalidUsage, unless NCCL_HOSTID differs or
//     NCCL_MULTI_RANK_GPU_ENABLE is 1 (which NCCL has from 2.30.3 on).
// Stricter: every collective of a blocking communicator waits for the other
// ranks' calls, where NCCL does that when it has to connect; buffers have to be
// device memory, or pinned, from end to end; what is sent and received has to
// be a whole all-to-all in one group, with one send and one receive of as many
// elements for each rank, in the order of the ranks.
//
// EMULATED_NCCL_VERSION=22809 is the version that ncclGetVersion() gives.

#pragma once

#include "cuda_runtime_api.h"

#include <limits.h>

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_VERSION_CODE 22809
/// The coding changed with 2.9.
#define NCCL_VERSION(X, Y, Z)                                                  \
  ((X) <= 2 && (Y) <= 8 ? (X) * 1000 + (Y) * 100 + (Z)                         \
                        : (X) * 10000 + (Y) * 100 + (Z))

typedef struct ncclComm *ncclComm_t;
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclNumResults = 8
} ncclResult_t;

typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
  ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

typedef enum {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL

typedef struct ncclConfig_v22800 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char *netName;
  int splitShare;
  int trafficClass;
  const char *commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
} ncclConfig_t;

#define NCCL_CONFIG_MAGIC 0xcafebeef
#define NCCL_CONFIG_INITIALIZER                                                \
  {sizeof(ncclConfig_t),                                                       \
   NCCL_CONFIG_MAGIC,                                                          \
   NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH),                           \
   NCCL_CONFIG_UNDEF_INT,                                                      \
   NCCL_CONFIG_UNDEF_INT,                                                      \
   NCCL_CONFIG_UNDEF_INT,                                                      \
   NCCL_CONFIG_UNDEF_INT,                                                      \
   NCCL_CONFIG_UNDEF_PTR,                                                      \
   NCCL_CONFIG_UNDEF_INT,                                                      \
   NCCL_CONFIG_UNDEF_INT,                                                      \
   NCCL_CONFIG_UNDEF_PTR,                                                      \
   NCCL_CONFIG_UNDEF_INT,                                                      \
   NCCL_CONFIG_UNDEF_INT,                                                      \
   NCCL_CONFIG_UNDEF_INT,                                                      \
   NCCL_CONFIG_UNDEF_INT,                                                      \
   NCCL_CONFIG_UNDEF_INT,                                                      \
   NCCL_CONFIG_UNDEF_INT}

#ifdef __cplusplus
extern "C" {
#endif

ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);

ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId,
                              int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks,
                                    ncclUniqueId commId, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks,
                                      int myrank, int nId,
                                      ncclUniqueId *commIds,
                                      ncclConfig_t *config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError);
ncclResult_t ncclCommCount(const ncclComm_t comm, int *count);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank);

ncclResult_t ncclMemAlloc(void **ptr, size_t size);
ncclResult_t ncclMemFree(void *ptr);
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size,
                              void **handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle);

ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff,
                               size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream);
ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff,
                           size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclSend(const void *sendbuff, size_t count,
                      ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype,
                      int peer, ncclComm_t comm, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
