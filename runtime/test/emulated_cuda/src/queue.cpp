//===- queue.cpp - a thread that runs operations in order -----------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The thread is detached and holds its queue: an operation that never ends
// keeps neither the destruction of a stream nor the end of the process waiting.
//
//===----------------------------------------------------------------------===//
#include "queue.h"

#include <thread>

using namespace emulated_cuda;

bool Mark::isReached() const { return queue->isReached(number); }
void Mark::wait() const { queue->wait(number); }

std::shared_ptr<Queue> Queue::create() {
  auto queue = std::make_shared<Queue>();
  std::thread([queue] { queue->run(); }).detach();
  return queue;
}

void Queue::close() {
  std::lock_guard<std::mutex> lock(mutex);
  isClosed = true;
  pushed.notify_all();
}

Mark Queue::push(std::vector<Mark> marks, Operation operation) {
  std::lock_guard<std::mutex> lock(mutex);
  entries.push_back({std::move(marks), std::move(operation)});
  ++pushedCount;
  pushed.notify_all();
  return {shared_from_this(), pushedCount};
}

Mark Queue::end() {
  std::lock_guard<std::mutex> lock(mutex);
  return {shared_from_this(), pushedCount};
}

bool Queue::isReached(uint64_t number) {
  std::lock_guard<std::mutex> lock(mutex);
  return doneCount >= number;
}

void Queue::wait(uint64_t number) {
  std::unique_lock<std::mutex> lock(mutex);
  done.wait(lock, [&] { return doneCount >= number; });
}

void Queue::run() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    pushed.wait(lock, [&] { return isClosed || !entries.empty(); });
    if (entries.empty())
      return;
    Entry entry = std::move(entries.front());
    entries.pop_front();
    lock.unlock();
    for (const Mark &mark : entry.marks)
      mark.wait();
    entry.operation();
    // What the operation holds is given back before anybody hears of its end.
    entry = {};
    lock.lock();
    ++doneCount;
    done.notify_all();
  }
}
