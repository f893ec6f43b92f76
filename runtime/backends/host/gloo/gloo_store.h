//===- gloo_store.h - Gloo's rendezvous through our store -------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lets Gloo exchange its addresses through the job's store. Its own stores know
// neither our deadlines nor our failures.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_GLOO_STORE_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_GLOO_STORE_H

#include "store.h"

#include <gloo/rendezvous/store.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace ddphook::host {

/// Carries a Status through Gloo's code.
class StoreFailure : public std::runtime_error {
public:
  explicit StoreFailure(Status status)
      : std::runtime_error(status.message()), status(std::move(status)) {}

  const Status status;
};

class GlooStore : public ::gloo::rendezvous::Store {
public:
  /// Keys begin with `prefix`; all waits end at `deadline`.
  GlooStore(ddphook::Store &store, std::string prefix, const Deadline &deadline)
      : store(store), prefix(std::move(prefix)), deadline(deadline) {}

  void set(const std::string &key, const std::vector<char> &data) override {
    check(store.set(prefix + key, std::string(data.begin(), data.end())));
  }

  std::vector<char> get(const std::string &key) override {
    std::string value;
    check(store.get(prefix + key, deadline, &value));
    return std::vector<char>(value.begin(), value.end());
  }

  void wait(const std::vector<std::string> &keys) override {
    for (const std::string &key : keys)
      get(key);
  }

  void wait(const std::vector<std::string> &keys,
            const std::chrono::milliseconds &) override {
    wait(keys);
  }

private:
  static void check(Status status) {
    if (!status.isOk())
      throw StoreFailure(std::move(status));
  }

  ddphook::Store &store;
  const std::string prefix;
  const Deadline deadline;
};

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_GLOO_STORE_H
