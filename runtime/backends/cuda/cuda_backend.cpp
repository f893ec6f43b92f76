// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Implements the functions of backend.h, which states their contracts, for
// NVIDIA GPUs and NCCL.

#include "backend/backend_store.h"
#include "base/collective.h"
#include "cuda_communicator.h"
#include "cuda_device.h"
#include "cuda_error.h"
#include "kernel_library.h"
#include "kernels/affine.h"
#include "kernels/encode.h"
#include "kernels/kernels.h"
#include "kernels/lowrank.h"

#include <initializer_list>

using namespace ddphook;
using namespace ddphook::cuda;

struct ddphook_device {
  std::unique_ptr<CudaDevice> impl;
};
struct ddphook_communicator {
  std::unique_ptr<CudaCommunicator> impl;
};
struct ddphook_matrices {
  std::unique_ptr<MatrixList> impl;
};
struct ddphook_kernels {
  std::unique_ptr<KernelLibrary> impl;
};

/// An address and its name in messages.
using Argument = std::pair<const void *, const char *>;

static Status checkAddresses(const CudaDevice &device,
                             std::initializer_list<Argument> arguments) {
  for (const auto &[address, name] : arguments)
    DDPHOOK_TRY(device.checkAddress(address, name));
  return Status::ok();
}

/// Runs `function`, which returns a Status, with the GPU as the current device,
/// unless the device has failed.
template <typename Function>
static ddphook_status_t run(ddphook_device_t *device,
                            ddphook_backend_error_t *error,
                            Function &&function) {
  return reportTo(error, [&] {
    CudaDevice &impl = *device->impl;
    DDPHOOK_TRY(impl.failure());
    CurrentDevice current(impl.choice().number);
    Status status = function(impl);
    return status.isOk() ? status : impl.fail(status);
  });
}

/// Does the same for kernels on arrays: passes the stream to `launch`.
template <typename Launch>
static ddphook_status_t
runKernels(ddphook_device_t *device, ddphook_backend_error_t *error,
           const char *what, std::initializer_list<Argument> arguments,
           Launch &&launch) {
  return run(device, error, [&](CudaDevice &impl) {
    DDPHOOK_TRY(checkAddresses(impl, arguments));
    return toStatus(launch(impl.computeStream()), what);
  });
}

/// Destroys an object of a device, even after a failure.
template <typename Object>
static void destroy(ddphook_device_t *device, Object *object) {
  ignoreExceptions([&] {
    CurrentDevice current(device->impl->choice().number);
    RelaxedCapture relaxed;
    delete object;
  });
}

/// Converts a type number, which callers have checked.
static Dtype toDtype(int32_t value) { return static_cast<Dtype>(value); }

static ddphook_status_t createDevice(const ddphook_device_config_t *config,
                                     ddphook_device_t **device,
                                     ddphook_backend_error_t *error) {
  return reportTo(error, [&] {
    auto result = std::make_unique<ddphook_device>();
    DDPHOOK_TRY(CudaDevice::create(*config, &result->impl));
    *device = result.release();
    return Status::ok();
  });
}

static void destroyDevice(ddphook_device_t *device) {
  CurrentDevice current(device->impl->choice().number);
  delete device;
}

static ddphook_status_t allocate(ddphook_device_t *device, uint64_t bytes,
                                 uint64_t alignment, void **memory,
                                 ddphook_backend_error_t *error) {
  return run(device, error, [&](CudaDevice &impl) {
    return impl.allocate(bytes, alignment, memory);
  });
}

static void release(ddphook_device_t *device, void *memory, uint64_t) {
  ignoreExceptions([&] {
    CurrentDevice current(device->impl->choice().number);
    device->impl->release(memory);
  });
}

static ddphook_status_t writeMemory(ddphook_device_t *device, void *memory,
                                    const void *host, uint64_t bytes,
                                    ddphook_backend_error_t *error) {
  return run(device, error, [&](CudaDevice &impl) {
    if (bytes == 0)
      return Status::ok();
    DDPHOOK_TRY(impl.checkAddress(memory, "memory"));
    return impl.copyAndWait(memory, host, bytes, cudaMemcpyHostToDevice,
                            "writing device memory");
  });
}

static ddphook_status_t readMemory(ddphook_device_t *device, void *host,
                                   const void *memory, uint64_t bytes,
                                   ddphook_backend_error_t *error) {
  return run(device, error, [&](CudaDevice &impl) {
    if (bytes == 0)
      return Status::ok();
    DDPHOOK_TRY(impl.checkAddress(memory, "memory"));
    return impl.copyAndWait(host, memory, bytes, cudaMemcpyDeviceToHost,
                            "reading device memory");
  });
}

static ddphook_status_t setStream(ddphook_device_t *device, void *stream,
                                  ddphook_backend_error_t *error) {
  return run(device, error, [&](CudaDevice &impl) {
    return impl.setStream(static_cast<cudaStream_t>(stream));
  });
}

static ddphook_status_t synchronize(ddphook_device_t *device,
                                    ddphook_backend_error_t *error) {
  return reportTo(error, [&] {
    CurrentDevice current(device->impl->choice().number);
    return device->impl->synchronize();
  });
}

static ddphook_status_t createCommunicator(
    ddphook_device_t *device, const ddphook_communicator_config_t *config,
    ddphook_communicator_t **communicator, ddphook_backend_error_t *error) {
  return run(device, error, [&](CudaDevice &impl) {
    auto result = std::make_unique<ddphook_communicator>();
    DDPHOOK_TRY(CudaCommunicator::create(impl, *config, &result->impl));
    *communicator = result.release();
    return Status::ok();
  });
}

// The functions of functions.inc, under the same names.

static ddphook_status_t copy(ddphook_device_t *device, const void *in,
                             void *out, int64_t bytes,
                             ddphook_backend_error_t *error) {
  return runKernels(
      device, error, "copying device memory", {{in, "in"}, {out, "out"}},
      [&](cudaStream_t stream) {
        return bytes == 0 ? cudaSuccess
                          : cudaMemcpyAsync(out, in, static_cast<size_t>(bytes),
                                            cudaMemcpyDeviceToDevice, stream);
      });
}

static ddphook_status_t zero(ddphook_device_t *device, void *out, int64_t bytes,
                             ddphook_backend_error_t *error) {
  return runKernels(device, error, "zeroing device memory", {{out, "out"}},
                    [&](cudaStream_t stream) {
                      return bytes == 0
                                 ? cudaSuccess
                                 : cudaMemsetAsync(out, 0,
                                                   static_cast<size_t>(bytes),
                                                   stream);
                    });
}

static ddphook_status_t cast(ddphook_device_t *device, const void *in,
                             int32_t inDtype, void *out, int32_t outDtype,
                             int64_t count, ddphook_backend_error_t *error) {
  for (int32_t type : {inDtype, outDtype})
    if (!dtypeFromAbi(type))
      return toBackendError(
          ddphook::error(DDPHOOK_UNSUPPORTED,
                         "the CUDA backend has no casts of type %s",
                         dtypeName(static_cast<CastDtype>(type))),
          error);
  return runKernels(device, error, "casting", {{in, "in"}, {out, "out"}},
                    [&](cudaStream_t stream) {
                      return castArray(stream, in, toDtype(inDtype), out,
                                       toDtype(outDtype), count);
                    });
}

static ddphook_status_t encoding_error(ddphook_device_t *device, const void *in,
                                       void *out, int64_t count, int32_t dtype,
                                       int32_t encoding, int64_t block,
                                       int32_t rank, int64_t stream,
                                       int64_t step,
                                       ddphook_backend_error_t *error) {
  const Dtype type = toDtype(dtype);
  const Encoding codes = *encodingFromAbi(encoding, block);
  const bool isExact = device->impl->options().dividesExactly();
  std::optional<Rounding> rounding;
  if (rank >= 0)
    rounding = Rounding::ofSum(stream, step).ofRank(rank);
  return runKernels(device, error, "computing the error of an encoding",
                    {{in, "in"}, {out, "out"}}, [&](cudaStream_t queue) {
                      return codes.isAffine()
                                 ? affineError(
                                       queue, in, out, type,
                                       AffineCodes::of(codes, count, isExact),
                                       device->impl->affineScratch())
                                 : encodingError(queue, in, out, type, count,
                                                 codes, rounding);
                    });
}

static ddphook_status_t sparsify(ddphook_device_t *device, int64_t keep,
                                 const void *in, int64_t count, void *entries,
                                 void *rest, ddphook_backend_error_t *error) {
  return run(device, error, [&](CudaDevice &impl) {
    DDPHOOK_TRY(checkKept(keep, count));
    DDPHOOK_TRY(checkAddresses(
        impl, {{in, "in"}, {entries, "entries"}, {rest, "rest"}}));
    return impl.sparsify(keep, in, count, entries, rest);
  });
}

static ddphook_status_t densify(ddphook_device_t *device, const void *entries,
                                int64_t parts, int64_t keep, void *out,
                                int64_t count, ddphook_backend_error_t *error) {
  return run(device, error, [&](CudaDevice &impl) {
    DDPHOOK_TRY(checkAddresses(impl, {{entries, "entries"}, {out, "out"}}));
    return impl.densify(entries, parts, keep, out, count);
  });
}

static ddphook_status_t divide_by_group_size(ddphook_device_t *device,
                                             int64_t size, const void *in,
                                             void *out, int64_t count,
                                             int32_t dtype,
                                             ddphook_backend_error_t *error) {
  return runKernels(device, error, "dividing", {{in, "in"}, {out, "out"}},
                    [&](cudaStream_t stream) {
                      return compressArray(
                          stream, in, toDtype(dtype), out, toDtype(dtype),
                          count,
                          {size, device->impl->options().dividesExactly()});
                    });
}

static ddphook_status_t scale(ddphook_device_t *device, double factor,
                              const void *in, void *out, int64_t count,
                              int32_t dtype, ddphook_backend_error_t *error) {
  return runKernels(device, error, "scaling", {{in, "in"}, {out, "out"}},
                    [&](cudaStream_t stream) {
                      return scaleArray(stream, in, out, toDtype(dtype), count,
                                        factor);
                    });
}

static ddphook_status_t add(ddphook_device_t *device, const void *a,
                            const void *b, void *out, int64_t count,
                            int32_t dtype, ddphook_backend_error_t *error) {
  return runKernels(device, error, "adding", {{a, "a"}, {b, "b"}, {out, "out"}},
                    [&](cudaStream_t stream) {
                      return addArrays(stream, out, a, b, toDtype(dtype),
                                       count);
                    });
}

static ddphook_status_t subtract(ddphook_device_t *device, const void *a,
                                 const void *b, void *out, int64_t count,
                                 int32_t dtype,
                                 ddphook_backend_error_t *error) {
  return runKernels(
      device, error, "subtracting", {{a, "a"}, {b, "b"}, {out, "out"}},
      [&](cudaStream_t stream) {
        return subtractArrays(stream, out, a, b, toDtype(dtype), count);
      });
}

static ddphook_status_t isFinite(ddphook_device_t *device, const void *in,
                                 int64_t count, int32_t dtype, int32_t *result,
                                 ddphook_backend_error_t *error) {
  return run(device, error, [&](CudaDevice &impl) {
    DDPHOOK_TRY(impl.checkAddress(in, "in"));
    return impl.isFinite(in, toDtype(dtype), count, result);
  });
}

static ddphook_status_t sumSquares(ddphook_device_t *device, const void *in,
                                   int64_t count, int32_t dtype, double *result,
                                   ddphook_backend_error_t *error) {
  return run(device, error, [&](CudaDevice &impl) {
    DDPHOOK_TRY(impl.checkAddress(in, "in"));
    return impl.sumSquares(in, toDtype(dtype), count, result);
  });
}

static ddphook_status_t createMatrices(ddphook_device_t *device,
                                       const ddphook_matrix_list_t *list,
                                       int32_t dtype,
                                       ddphook_matrices_t **matrices,
                                       ddphook_backend_error_t *error) {
  return run(device, error, [&](CudaDevice &impl) {
    DDPHOOK_TRY(impl.refuseCapture("preparing matrices"));
    RelaxedCapture relaxed;
    auto result = std::make_unique<ddphook_matrices>();
    DDPHOOK_TRY(MatrixList::create(*list, toDtype(dtype), impl.plainMemory(),
                                   &result->impl));
    result->impl->dividesExactly = impl.options().dividesExactly();
    *matrices = result.release();
    return Status::ok();
  });
}

/// Destroys an object that kernels may be using, once these have ended. If they
/// do not end, the object remains: CUDA would wait for them.
template <typename Object>
static void destroyUsed(ddphook_device_t *device, Object *object) {
  CudaDevice &impl = *device->impl;
  bool isCapturing = false;
  if (impl.isCapturing(&isCapturing).isOk() && isCapturing) {
    impl.keepWhileCapturing(std::shared_ptr<Object>(object));
    return;
  }
  synchronize(device, nullptr);
  if (impl.isStuck())
    keepForever(std::shared_ptr<Object>(object));
  else
    destroy(device, object);
}

static ddphook_status_t matmul(ddphook_device_t *device,
                               ddphook_matrices_t *matrices, int32_t kind,
                               void *matrix, void *p, void *q,
                               ddphook_backend_error_t *error) {
  return runKernels(
      device, error, "multiplying matrices",
      {{matrix, "matrix"}, {p, "p"}, {q, "q"}}, [&](cudaStream_t stream) {
        return matrices->impl->matmul(
            stream, static_cast<ddphook_matmul_kind_t>(kind), matrix, p, q);
      });
}

static ddphook_status_t orthogonalize(ddphook_device_t *device,
                                      ddphook_matrices_t *matrices,
                                      int32_t factor, const void *in, void *out,
                                      double epsilon,
                                      ddphook_backend_error_t *error) {
  return runKernels(device, error, "orthogonalizing",
                    {{in, "in"}, {out, "out"}}, [&](cudaStream_t stream) {
                      return matrices->impl->orthogonalize(stream, factor, in,
                                                           out, epsilon);
                    });
}

static ddphook_status_t project(ddphook_device_t *device,
                                ddphook_matrices_t *matrices, const void *g,
                                const void *e, const void *q, void *m, void *p,
                                void *rest, ddphook_backend_error_t *error) {
  return runKernels(
      device, error, "projecting matrices",
      {{g, "g"}, {e, "e"}, {q, "q"}, {m, "m"}, {p, "p"}, {rest, "rest"}},
      [&](cudaStream_t stream) {
        return matrices->impl->project(stream, g, e, q, m, p, rest);
      });
}

static ddphook_status_t reconstruct(ddphook_device_t *device,
                                    ddphook_matrices_t *matrices, const void *p,
                                    const void *q, const void *rest,
                                    const void *m, void *out, void *err,
                                    int64_t divisor,
                                    ddphook_backend_error_t *error) {
  return runKernels(device, error, "reconstructing matrices",
                    {{p, "p"},
                     {q, "q"},
                     {rest, "rest"},
                     {m, "m"},
                     {out, "out"},
                     {err, "err"}},
                    [&](cudaStream_t stream) {
                      return matrices->impl->reconstruct(stream, p, q, rest, m,
                                                         out, err, divisor);
                    });
}

static ddphook_status_t
runCollective(ddphook_device_t *device, ddphook_communicator_t *communicator,
              const ddphook_collective_t *operation, const void *in, void *out,
              int64_t *ticket, ddphook_backend_error_t *error) {
  return run(device, error, [&](CudaDevice &impl) {
    int64_t own = 0;
    DDPHOOK_TRY(
        communicator->impl->start(*operation, in, out, ticket ? ticket : &own));
    return ticket ? Status::ok()
                  : impl.inFlight().wait(own, impl.computeStream());
  });
}

static ddphook_status_t wait(ddphook_device_t *device, int64_t ticket,
                             ddphook_backend_error_t *error) {
  if (device->impl->failureLatch().isSet())
    // Buffers are in use until the started collectives have been aborted.
    return synchronize(device, error);
  return run(device, error, [&](CudaDevice &impl) {
    return impl.inFlight().wait(ticket, impl.computeStream());
  });
}

static ddphook_status_t loadKernels(ddphook_device_t *device, const void *code,
                                    uint64_t size, const char *const *names,
                                    int64_t count, ddphook_kernels_t **kernels,
                                    ddphook_backend_error_t *error) {
  return run(device, error, [&](CudaDevice &impl) {
    DDPHOOK_TRY(impl.refuseCapture("loading kernels"));
    RelaxedCapture relaxed;
    auto result = std::make_unique<ddphook_kernels>();
    DDPHOOK_TRY(KernelLibrary::load(code, size, names, count, &result->impl));
    *kernels = result.release();
    return Status::ok();
  });
}

static ddphook_status_t launch(ddphook_device_t *device,
                               ddphook_kernels_t *kernels, int64_t kernel,
                               const int64_t *grid, const int64_t *block,
                               int64_t sharedBytes, void **arguments,
                               ddphook_backend_error_t *error) {
  return run(device, error, [&](CudaDevice &impl) {
    return kernels->impl->launch(kernel, grid, block, sharedBytes, arguments,
                                 impl.computeStream());
  });
}

static void abortDevice(ddphook_device_t *device, ddphook_status_t status,
                        const char *message) {
  ignoreExceptions(
      [&] { device->impl->abort(Status(status, message)).ignore(); });
}

extern "C" __attribute__((visibility("default"))) const ddphook_backend_t *
ddphook_backend_get(void) {
  static const ddphook_backend_t backend = [] {
    ddphook_backend_t table = {};
    table.struct_size = sizeof(table);
    table.collective_size = sizeof(ddphook_collective_t);
    table.abi_version = DDPHOOK_BACKEND_ABI_VERSION;
    table.name = "cuda";
    table.agreed_options = CudaOptions::agreedNames();
    table.device_create = createDevice;
    table.device_destroy = destroyDevice;
    table.memory_alloc = allocate;
    table.memory_free = release;
    table.memory_write = writeMemory;
    table.memory_read = readMemory;
    table.stream_set = setStream;
    table.synchronize = synchronize;
    table.communicator_create = createCommunicator;
    table.communicator_destroy = destroy<ddphook_communicator_t>;
    table.is_finite = isFinite;
    table.sum_squares = sumSquares;
    table.matrices_create = createMatrices;
    table.matrices_destroy = destroyUsed<ddphook_matrices_t>;
#define DDPHOOK_DEVICE_FUNCTION(name, ...) table.name = name;
#include "ddphook/runtime/functions.inc"
    for (int32_t number = 0; number < 32; ++number)
      if (codeFromAbi(number))
        table.encodings |= uint32_t(1) << number;
    table.collective = runCollective;
    table.wait = wait;
    table.kernels_load = loadKernels;
    table.kernels_unload = destroyUsed<ddphook_kernels_t>;
    table.launch = launch;
    table.abort = abortDevice;
    return table;
  }();
  return &backend;
}
