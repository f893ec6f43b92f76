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

namespace {

/// The function of the table that calls `function` with the GPU as the current
/// device, unless the device has failed, and reports its failure.
template <auto function>
struct Call;
template <typename... Arguments, Status (*function)(CudaDevice &, Arguments...)>
struct Call<function> {
  static ddphook_status_t run(ddphook_device_t *device, Arguments... arguments,
                              ddphook_backend_error_t *error) {
    return reportTo(error, [&] {
      CudaDevice &impl = *device->impl;
      DDPHOOK_TRY(impl.failure());
      CurrentDevice current(impl.choice().number);
      Status status = function(impl, arguments...);
      return status.isOk() ? status : impl.fail(status);
    });
  }
};

/// Sets *object to a new object whose `impl` is set by create(&impl).
template <typename Object, typename Create>
Status make(Object **object, const Create &create) {
  auto result = std::make_unique<Object>();
  DDPHOOK_TRY(create(&result->impl));
  *object = result.release();
  return Status::ok();
}

/// Destroys an object of a device, even after a failure.
template <typename Object>
void destroy(ddphook_device_t *device, Object *object) {
  ignoreExceptions([&] {
    CurrentDevice current(device->impl->choice().number);
    RelaxedCapture relaxed;
    delete object;
  });
}

/// An address and its name in messages.
using Argument = std::pair<const void *, const char *>;

Status checkAddresses(const CudaDevice &device,
                      std::initializer_list<Argument> arguments) {
  for (const auto &[address, name] : arguments)
    DDPHOOK_TRY(device.checkAddress(address, name));
  return Status::ok();
}

/// Converts a type number, which callers have checked.
Dtype toDtype(int32_t value) { return static_cast<Dtype>(value); }

/// The functions of the table. Those of functions.inc have the same names here.
namespace calls {

Status allocate(CudaDevice &device, uint64_t bytes, uint64_t alignment,
                void **memory) {
  return device.allocate(bytes, alignment, memory);
}

Status writeMemory(CudaDevice &device, void *memory, const void *host,
                   uint64_t bytes) {
  if (bytes == 0)
    return Status::ok();
  DDPHOOK_TRY(device.checkAddress(memory, "memory"));
  return device.copyAndWait(memory, host, bytes, cudaMemcpyHostToDevice,
                            "writing device memory");
}

Status readMemory(CudaDevice &device, void *host, const void *memory,
                  uint64_t bytes) {
  if (bytes == 0)
    return Status::ok();
  DDPHOOK_TRY(device.checkAddress(memory, "memory"));
  return device.copyAndWait(host, memory, bytes, cudaMemcpyDeviceToHost,
                            "reading device memory");
}

Status setStream(CudaDevice &device, void *stream) {
  return device.setStream(static_cast<cudaStream_t>(stream));
}

Status createCommunicator(CudaDevice &device,
                          const ddphook_communicator_config_t *config,
                          ddphook_communicator_t **communicator) {
  return make(communicator, [&](auto *impl) {
    return CudaCommunicator::create(device, *config, impl);
  });
}

Status copy(CudaDevice &device, const void *in, void *out, int64_t bytes) {
  DDPHOOK_TRY(checkAddresses(device, {{in, "in"}, {out, "out"}}));
  if (bytes == 0)
    return Status::ok();
  return toStatus(cudaMemcpyAsync(out, in, static_cast<size_t>(bytes),
                                  cudaMemcpyDeviceToDevice,
                                  device.computeStream()),
                  "copying device memory");
}

Status zero(CudaDevice &device, void *out, int64_t bytes) {
  DDPHOOK_TRY(device.checkAddress(out, "out"));
  if (bytes == 0)
    return Status::ok();
  return toStatus(cudaMemsetAsync(out, 0, static_cast<size_t>(bytes),
                                  device.computeStream()),
                  "zeroing device memory");
}

Status cast(CudaDevice &device, const void *in, int32_t inDtype, void *out,
            int32_t outDtype, int64_t count) {
  for (int32_t type : {inDtype, outDtype})
    if (!dtypeFromAbi(type))
      return error(DDPHOOK_UNSUPPORTED,
                   "the CUDA backend has no casts of type %s",
                   dtypeName(static_cast<CastDtype>(type)));
  DDPHOOK_TRY(checkAddresses(device, {{in, "in"}, {out, "out"}}));
  return toStatus(castArray(device.computeStream(), in, toDtype(inDtype), out,
                            toDtype(outDtype), count),
                  "casting");
}

Status encoding_error(CudaDevice &device, const void *in, void *out,
                      int64_t count, int32_t dtype, int32_t encoding,
                      int64_t block, int32_t rank, int64_t stream,
                      int64_t step) {
  DDPHOOK_TRY(checkAddresses(device, {{in, "in"}, {out, "out"}}));
  const Dtype type = toDtype(dtype);
  const Encoding codes = *encodingFromAbi(encoding, block);
  const bool isExact = device.options().dividesExactly();
  std::optional<Rounding> rounding;
  if (rank >= 0)
    rounding = Rounding::ofSum(stream, step).ofRank(rank);
  const cudaStream_t queue = device.computeStream();
  return toStatus(
      codes.isAffine()
          ? affineError(queue, in, out, type,
                        AffineCodes::of(codes, count, isExact),
                        device.affineScratch())
          : encodingError(queue, in, out, type, count, codes, rounding),
      "computing the error of an encoding");
}

Status sparsify(CudaDevice &device, int64_t keep, const void *in, int64_t count,
                void *entries, void *rest) {
  DDPHOOK_TRY(checkKept(keep, count));
  DDPHOOK_TRY(checkAddresses(
      device, {{in, "in"}, {entries, "entries"}, {rest, "rest"}}));
  return device.sparsify(keep, in, count, entries, rest);
}

Status densify(CudaDevice &device, const void *entries, int64_t parts,
               int64_t keep, void *out, int64_t count) {
  DDPHOOK_TRY(checkAddresses(device, {{entries, "entries"}, {out, "out"}}));
  return device.densify(entries, parts, keep, out, count);
}

Status divide_by_group_size(CudaDevice &device, int64_t size, const void *in,
                            void *out, int64_t count, int32_t dtype) {
  DDPHOOK_TRY(checkAddresses(device, {{in, "in"}, {out, "out"}}));
  const Dtype type = toDtype(dtype);
  return toStatus(compressArray(device.computeStream(), in, type, out, type,
                                count,
                                {size, device.options().dividesExactly()}),
                  "dividing");
}

Status scale(CudaDevice &device, double factor, const void *in, void *out,
             int64_t count, int32_t dtype) {
  DDPHOOK_TRY(checkAddresses(device, {{in, "in"}, {out, "out"}}));
  return toStatus(scaleArray(device.computeStream(), in, out, toDtype(dtype),
                             count, factor),
                  "scaling");
}

Status add(CudaDevice &device, const void *a, const void *b, void *out,
           int64_t count, int32_t dtype) {
  DDPHOOK_TRY(checkAddresses(device, {{a, "a"}, {b, "b"}, {out, "out"}}));
  return toStatus(
      addArrays(device.computeStream(), out, a, b, toDtype(dtype), count),
      "adding");
}

Status subtract(CudaDevice &device, const void *a, const void *b, void *out,
                int64_t count, int32_t dtype) {
  DDPHOOK_TRY(checkAddresses(device, {{a, "a"}, {b, "b"}, {out, "out"}}));
  return toStatus(
      subtractArrays(device.computeStream(), out, a, b, toDtype(dtype), count),
      "subtracting");
}

Status isFinite(CudaDevice &device, const void *in, int64_t count,
                int32_t dtype, int32_t *result) {
  DDPHOOK_TRY(device.checkAddress(in, "in"));
  return device.isFinite(in, toDtype(dtype), count, result);
}

Status sumSquares(CudaDevice &device, const void *in, int64_t count,
                  int32_t dtype, double *result) {
  DDPHOOK_TRY(device.checkAddress(in, "in"));
  return device.sumSquares(in, toDtype(dtype), count, result);
}

Status createMatrices(CudaDevice &device, const ddphook_matrix_list_t *list,
                      int32_t dtype, ddphook_matrices_t **matrices) {
  DDPHOOK_TRY(device.refuseCapture("preparing matrices"));
  RelaxedCapture relaxed;
  return make(matrices, [&](std::unique_ptr<MatrixList> *impl) {
    DDPHOOK_TRY(
        MatrixList::create(*list, toDtype(dtype), device.plainMemory(), impl));
    (*impl)->dividesExactly = device.options().dividesExactly();
    return Status::ok();
  });
}

Status matmul(CudaDevice &device, ddphook_matrices_t *matrices, int32_t kind,
              void *matrix, void *p, void *q) {
  DDPHOOK_TRY(checkAddresses(device, {{matrix, "matrix"}, {p, "p"}, {q, "q"}}));
  return toStatus(matrices->impl->matmul(
                      device.computeStream(),
                      static_cast<ddphook_matmul_kind_t>(kind), matrix, p, q),
                  "multiplying matrices");
}

Status orthogonalize(CudaDevice &device, ddphook_matrices_t *matrices,
                     int32_t factor, const void *in, void *out,
                     double epsilon) {
  DDPHOOK_TRY(checkAddresses(device, {{in, "in"}, {out, "out"}}));
  return toStatus(matrices->impl->orthogonalize(device.computeStream(), factor,
                                                in, out, epsilon),
                  "orthogonalizing");
}

Status project(CudaDevice &device, ddphook_matrices_t *matrices, const void *g,
               const void *e, const void *q, void *m, void *p, void *rest) {
  DDPHOOK_TRY(checkAddresses(
      device,
      {{g, "g"}, {e, "e"}, {q, "q"}, {m, "m"}, {p, "p"}, {rest, "rest"}}));
  return toStatus(
      matrices->impl->project(device.computeStream(), g, e, q, m, p, rest),
      "projecting matrices");
}

Status reconstruct(CudaDevice &device, ddphook_matrices_t *matrices,
                   const void *p, const void *q, const void *rest,
                   const void *m, void *out, void *err, int64_t divisor) {
  DDPHOOK_TRY(checkAddresses(device, {{p, "p"},
                                      {q, "q"},
                                      {rest, "rest"},
                                      {m, "m"},
                                      {out, "out"},
                                      {err, "err"}}));
  return toStatus(matrices->impl->reconstruct(device.computeStream(), p, q,
                                              rest, m, out, err, divisor),
                  "reconstructing matrices");
}

Status runCollective(CudaDevice &device, ddphook_communicator_t *communicator,
                     const ddphook_collective_t *operation, const void *in,
                     void *out, int64_t *ticket) {
  int64_t own = 0;
  DDPHOOK_TRY(
      communicator->impl->start(*operation, in, out, ticket ? ticket : &own));
  return ticket ? Status::ok()
                : device.inFlight().wait(own, device.computeStream());
}

Status waitFor(CudaDevice &device, int64_t ticket) {
  return device.inFlight().wait(ticket, device.computeStream());
}

Status loadKernels(CudaDevice &device, const void *code, uint64_t size,
                   const char *const *names, int64_t count,
                   ddphook_kernels_t **kernels) {
  DDPHOOK_TRY(device.refuseCapture("loading kernels"));
  RelaxedCapture relaxed;
  return make(kernels, [&](auto *impl) {
    return KernelLibrary::load(code, size, names, count, impl);
  });
}

Status launch(CudaDevice &device, ddphook_kernels_t *kernels, int64_t kernel,
              const int64_t *grid, const int64_t *block, int64_t sharedBytes,
              void **arguments) {
  return kernels->impl->launch(kernel, grid, block, sharedBytes, arguments,
                               device.computeStream());
}

} // namespace calls
} // namespace

static ddphook_status_t createDevice(const ddphook_device_config_t *config,
                                     ddphook_device_t **device,
                                     ddphook_backend_error_t *error) {
  return reportTo(error, [&] {
    return make(device,
                [&](auto *impl) { return CudaDevice::create(*config, impl); });
  });
}

static void destroyDevice(ddphook_device_t *device) {
  CurrentDevice current(device->impl->choice().number);
  delete device;
}

static void release(ddphook_device_t *device, void *memory, uint64_t) {
  ignoreExceptions([&] {
    CurrentDevice current(device->impl->choice().number);
    device->impl->release(memory);
  });
}

static ddphook_status_t synchronize(ddphook_device_t *device,
                                    ddphook_backend_error_t *error) {
  return reportTo(error, [&] {
    CurrentDevice current(device->impl->choice().number);
    return device->impl->synchronize();
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

static ddphook_status_t wait(ddphook_device_t *device, int64_t ticket,
                             ddphook_backend_error_t *error) {
  // After a failure buffers are in use until the started collectives have been
  // aborted.
  return device->impl->failureLatch().isSet()
             ? synchronize(device, error)
             : Call<calls::waitFor>::run(device, ticket, error);
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
    table.memory_alloc = Call<calls::allocate>::run;
    table.memory_free = release;
    table.memory_write = Call<calls::writeMemory>::run;
    table.memory_read = Call<calls::readMemory>::run;
    table.stream_set = Call<calls::setStream>::run;
    table.synchronize = synchronize;
    table.communicator_create = Call<calls::createCommunicator>::run;
    table.communicator_destroy = destroy<ddphook_communicator_t>;
    table.is_finite = Call<calls::isFinite>::run;
    table.sum_squares = Call<calls::sumSquares>::run;
    table.matrices_create = Call<calls::createMatrices>::run;
    table.matrices_destroy = destroyUsed<ddphook_matrices_t>;
#define DDPHOOK_DEVICE_FUNCTION(name, ...) table.name = Call<calls::name>::run;
#include "ddphook/runtime/functions.inc"
    for (int32_t number = 0; number < 32; ++number)
      if (codeFromAbi(number))
        table.encodings |= uint32_t(1) << number;
    table.collective = Call<calls::runCollective>::run;
    table.wait = wait;
    table.kernels_load = Call<calls::loadKernels>::run;
    table.kernels_unload = destroyUsed<ddphook_kernels_t>;
    table.launch = Call<calls::launch>::run;
    table.abort = abortDevice;
    return table;
  }();
  return &backend;
}
