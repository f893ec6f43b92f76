//===- gloo_context.h - Gloo's operations, made to end ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A Gloo context whose operations another thread can end. Gloo itself ends a
// wait when the peer's connection breaks or the deadline passes; but a send
// that is under way at that moment is now and then forgotten, and there is no
// call to end an operation from outside. Its algorithms do all their waiting in
// unbound buffers, though, which they get from the transport's context. So this
// one gives them buffers that stand before Gloo's own, are known to it, and
// throw out of the algorithm when they are told to.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_GLOO_CONTEXT_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_GLOO_CONTEXT_H

#include <gloo/rendezvous/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace ddphook::host {

/// Leaves a Gloo algorithm whose context was aborted.
class GlooAborted : public std::exception {
public:
  const char *what() const noexcept override { return "aborted"; }
};

/// The buffers that wait, or may come to, and whether they still should.
class GlooWaits {
public:
  void insert(::gloo::transport::UnboundBuffer *buffer) {
    std::lock_guard<std::mutex> lock(mutex);
    buffers.insert(buffer);
  }

  /// No call of abort() uses `buffer` once this returned.
  void erase(::gloo::transport::UnboundBuffer *buffer) {
    std::lock_guard<std::mutex> lock(mutex);
    buffers.erase(buffer);
  }

  void throwIfAborted() {
    std::lock_guard<std::mutex> lock(mutex);
    if (isAborted)
      throw GlooAborted();
  }

  /// Ends all waits, those to come included. Any thread.
  void abort() {
    std::lock_guard<std::mutex> lock(mutex);
    isAborted = true;
    // A buffer keeps this until its next wait returns, so it does not matter
    // whether one has begun.
    for (::gloo::transport::UnboundBuffer *buffer : buffers) {
      buffer->abortWaitSend();
      buffer->abortWaitRecv();
    }
  }

private:
  std::mutex mutex;
  std::set<::gloo::transport::UnboundBuffer *> buffers;
  bool isAborted = false;
};

/// Gloo's buffer, with waits that throw when they are aborted: the algorithms
/// do not look at what a wait returns.
class GlooBuffer final : public ::gloo::transport::UnboundBuffer {
public:
  GlooBuffer(std::unique_ptr<::gloo::transport::UnboundBuffer> buffer,
             std::shared_ptr<GlooWaits> waits)
      : UnboundBuffer(buffer->ptr, buffer->size), buffer(std::move(buffer)),
        waits(std::move(waits)) {
    this->waits->insert(this->buffer.get());
  }
  ~GlooBuffer() override { waits->erase(buffer.get()); }

  bool waitRecv(int *rank, std::chrono::milliseconds timeout) override {
    waits->throwIfAborted();
    bool isDone = buffer->waitRecv(rank, timeout);
    waits->throwIfAborted();
    return isDone;
  }

  bool waitSend(int *rank, std::chrono::milliseconds timeout) override {
    waits->throwIfAborted();
    bool isDone = buffer->waitSend(rank, timeout);
    waits->throwIfAborted();
    return isDone;
  }

  void abortWaitRecv() override { buffer->abortWaitRecv(); }
  void abortWaitSend() override { buffer->abortWaitSend(); }

  void send(int rank, uint64_t slot, size_t offset, size_t bytes) override {
    buffer->send(rank, slot, offset, bytes);
  }
  void recv(int rank, uint64_t slot, size_t offset, size_t bytes) override {
    buffer->recv(rank, slot, offset, bytes);
  }
  void recv(std::vector<int> ranks, uint64_t slot, size_t offset,
            size_t bytes) override {
    buffer->recv(std::move(ranks), slot, offset, bytes);
  }

private:
  const std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;
  const std::shared_ptr<GlooWaits> waits;
};

/// The transport's context, but for the buffers that it makes.
class GlooTransport final : public ::gloo::transport::Context {
public:
  GlooTransport(std::shared_ptr<::gloo::transport::Context> transport,
                std::shared_ptr<GlooWaits> waits)
      : Context(transport->rank, transport->size),
        transport(std::move(transport)), waits(std::move(waits)) {
    setTimeout(this->transport->getTimeout());
  }

  std::unique_ptr<::gloo::transport::Pair> &getPair(int rank) override {
    return transport->getPair(rank);
  }
  std::unique_ptr<::gloo::transport::Pair> &createPair(int rank) override {
    return transport->createPair(rank);
  }
  std::unique_ptr<::gloo::transport::UnboundBuffer>
  createUnboundBuffer(void *memory, size_t size) override {
    return std::make_unique<GlooBuffer>(
        transport->createUnboundBuffer(memory, size), waits);
  }

private:
  const std::shared_ptr<::gloo::transport::Context> transport;
  const std::shared_ptr<GlooWaits> waits;
};

class GlooContext final : public ::gloo::rendezvous::Context {
public:
  GlooContext(int rank, int size) : Context(rank, size) {}

  /// Connects to all other ranks. Operations can be aborted from then on.
  void connect(::gloo::rendezvous::Store &store,
               std::shared_ptr<::gloo::transport::Device> &device) {
    connectFullMesh(store, device);
    transportContext_ =
        std::make_shared<GlooTransport>(std::move(transportContext_), waits);
  }

  /// Makes the operation under way and all later ones throw GlooAborted, if
  /// they have to wait. Any thread.
  void abort() { waits->abort(); }

private:
  const std::shared_ptr<GlooWaits> waits = std::make_shared<GlooWaits>();
};

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_GLOO_CONTEXT_H
