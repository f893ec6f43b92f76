//===- step_buffers.h - the memory an entry point is called with *- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Buffers for the arguments and results of one entry point, and their ways
// from and to files. Calls nothing.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_EXEC_STEP_BUFFERS_H
#define DDPHOOK_RUNTIME_EXEC_STEP_BUFFERS_H

#include "entry_signature.h"
#include "random_tensor.h"
#include "safetensors.h"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace ddphook {

class StepBuffers {
public:
  /// `signature` must outlive this object.
  explicit StepBuffers(const EntrySignature &signature)
      : signature(signature) {}

  /// Allocates all buffers, each aligned to 64 bytes and none null.
  Status allocate();

  /// Argument i from tensor `arg<i>` of the file; its other tensors are
  /// ignored.
  Status readArguments(const std::string &path);
  /// Argument i drawn with `key`, whose `argument` is replaced by i.
  void drawArguments(RandomKey key);
  /// Fills results with 0xff bytes, which are NaN in every floating-point type:
  /// an element that the entry point forgets is seen.
  void poisonResults();
  /// Result i to tensor `result<i>` of the file.
  Status writeResults(const std::string &path) const;

  /// What ddphook_compiled_entry_t::invoke takes.
  void *const *pointers() const { return list.data(); }

private:
  struct Free {
    void operator()(void *memory) const { std::free(memory); }
  };

  Status add(const EntryValue &value, const std::string &what);

  const EntrySignature &signature;
  std::vector<std::unique_ptr<void, Free>> memory;
  std::vector<void *> list;
  /// Where each result's data is, those in an argument's buffer included.
  std::vector<void *> resultData;
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_EXEC_STEP_BUFFERS_H
