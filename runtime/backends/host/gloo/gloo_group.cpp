//===- gloo_group.cpp - all-reduce over TCP -------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The only file that calls Gloo; its exceptions become statuses here.
//
//===----------------------------------------------------------------------===//
#include "gloo_group.h"

#include "gloo_context.h"
#include "gloo_store.h"
#include "kernels.h"
#include "threads.h"

#include <gloo/allreduce.h>
#include <gloo/common/error.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <cstring>

using namespace ddphook;
using namespace ddphook::host;

class GlooDevice::Impl {
public:
  std::shared_ptr<::gloo::transport::Device> device;
};

class GlooGroup::Impl {
public:
  Status ring(const AllReduceDesc &desc, const void *in, void *out);

  std::shared_ptr<GlooContext> context;
  int size = 0;
  double timeoutSeconds = 0;
  /// The bucket in its wire type.
  std::unique_ptr<char[]> wire;
  int64_t wireCapacity = 0;
  Status failure;
};

static std::chrono::milliseconds toMilliseconds(double seconds) {
  // Gloo takes 0 for "wait forever".
  double ms = std::min(std::max(seconds * 1e3, 1.0), 1e12);
  return std::chrono::milliseconds(static_cast<int64_t>(ms));
}

/// Runs `function`, which calls Gloo.
template <typename Function>
static Status translateExceptions(const char *what, double timeoutSeconds,
                                  Function &&function) {
  NoPipeSignal guard;
  try {
    function();
    return Status::ok();
  } catch (const StoreFailure &failure) {
    return withContext(failure.status, what);
  } catch (const GlooAborted &) {
    return error(DDPHOOK_ABORTED, "%s: the group was aborted on this rank",
                 what);
  } catch (const ::gloo::IoException &exception) {
    // Gloo has one exception for both; only its text tells them apart.
    const char *text = exception.what();
    if (std::strstr(text, "imed out") || std::strstr(text, "timeout"))
      return error(DDPHOOK_DEADLINE_EXCEEDED,
                   "%s: a peer did not answer within %g s", what,
                   timeoutSeconds);
    return error(DDPHOOK_PEER_LOST, "%s: a peer closed its connection", what);
  } catch (const std::bad_alloc &) {
    return error(DDPHOOK_RESOURCE_EXHAUSTED, "%s: out of memory", what);
  } catch (const std::exception &exception) {
    return error(DDPHOOK_INTERNAL, "%s: %s", what, exception.what());
  }
}

Status GlooDevice::create(const std::string &address,
                          std::unique_ptr<GlooDevice> *result) {
  auto impl = std::make_unique<Impl>();
  ::gloo::transport::tcp::attr attributes;
  const char *interface = std::getenv("DDPHOOK_SOCKET_IFNAME");
  if (interface && *interface)
    attributes.iface = interface;
  else
    attributes.hostname = address;
  Status status = translateExceptions("cannot open a TCP device", 0, [&] {
    BlockedSignals blocked;
    impl->device = ::gloo::transport::tcp::CreateDevice(attributes);
  });
  DDPHOOK_RETURN_IF_ERROR(status);
  result->reset(new GlooDevice(std::move(impl)));
  return status;
}

GlooDevice::GlooDevice(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
GlooDevice::~GlooDevice() = default;

GlooGroup::GlooGroup(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
GlooGroup::~GlooGroup() {
  NoPipeSignal guard;
  impl.reset();
}

Status GlooGroup::create(GlooDevice &device, Store &store,
                         const std::string &key, int rank, int size,
                         double timeoutSeconds,
                         std::unique_ptr<GlooGroup> *group) {
  auto impl = std::make_unique<Impl>();
  impl->size = size;
  impl->timeoutSeconds = timeoutSeconds;
  DDPHOOK_RETURN_IF_ERROR(
      translateExceptions("connecting the ranks over TCP", timeoutSeconds, [&] {
        GlooStore rendezvous(store, key + "/", Deadline::after(timeoutSeconds));
        impl->context = std::make_shared<GlooContext>(rank, size);
        impl->context->setTimeout(toMilliseconds(timeoutSeconds));
        impl->context->connect(rendezvous, device.impl->device);
      }));
  group->reset(new GlooGroup(std::move(impl)));
  return Status::ok();
}

void GlooGroup::reserve(int64_t wireBytes) {
  if (wireBytes <= impl->wireCapacity)
    return;
  // Zeroed, and with that resident.
  impl->wire = std::make_unique<char[]>(static_cast<size_t>(wireBytes));
  impl->wireCapacity = wireBytes;
}

/// One Gloo operation over the whole array: its segments, and with them the
/// order of additions, depend on the array's size.
Status GlooGroup::Impl::ring(const AllReduceDesc &desc, const void *in,
                             void *out) {
  return translateExceptions("all-reduce over TCP", timeoutSeconds, [&] {
    ::gloo::AllreduceOptions options(context);
    size_t count = static_cast<size_t>(desc.count);
    // Gloo only wants to know the elements' size.
    auto bind = [&](auto element) {
      using Element = decltype(element);
      if (in != out)
        options.setInput(
            const_cast<Element *>(static_cast<const Element *>(in)), count);
      options.setOutput(static_cast<Element *>(out), count);
    };
    Dtype type = desc.wireType();
    switch (dtypeSize(type)) {
    case 2:
      bind(uint16_t());
      break;
    case 4:
      bind(float());
      break;
    default:
      bind(double());
      break;
    }
    options.setAlgorithm(::gloo::AllreduceOptions::Algorithm::RING);
    options.setTimeout(toMilliseconds(timeoutSeconds));
    options.setReduceFunction(
        [type](void *sum, const void *a, const void *b, size_t n) {
          addArrays(sum, a, b, type, static_cast<int64_t>(n));
        });
    ::gloo::allreduce(options);
  });
}

Status GlooGroup::allReduce(const AllReduceDesc &desc, const void *in,
                            void *out) {
  if (!impl->failure.isOk())
    return impl->failure;
  if (desc.count == 0)
    return Status::ok();
  Status status;
  if (desc.wireType() != desc.dtype) {
    reserve(desc.wireBytes());
    void *wire = impl->wire.get();
    compressArray(in, desc.dtype, wire, desc.wireType(), desc.count,
                  desc.divide ? impl->size : 1);
    status = impl->ring(desc, wire, wire);
    if (status.isOk())
      castArray(wire, desc.wireType(), out, desc.dtype, desc.count);
  } else if (desc.divide) {
    divideArray(in, out, desc.dtype, desc.count, impl->size);
    status = impl->ring(desc, out, out);
  } else {
    status = impl->ring(desc, in, out);
  }
  if (!status.isOk())
    impl->failure = status;
  return status;
}

void GlooGroup::abort() { impl->context->abort(); }

void GlooGroup::close() {
  if (impl->failure.isOk())
    impl->failure = error(DDPHOOK_ABORTED, "the group was closed");
  translateExceptions("closing connections", 0, [&] {
    impl->context->closeConnections();
  }).ignore();
}
