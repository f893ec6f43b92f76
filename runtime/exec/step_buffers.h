// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Buffers for the arguments and results of one entry point, in the memory where
// its module expects them, and their transfer from and to files.

#pragma once

#include "entry_signature.h"
#include "files/safetensors.h"

#include "ddphook/runtime/runtime.h"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace ddphook {

/// Returns the status of a call to the runtime, with the runtime's text for it.
Status fromRuntime(ddphook_status_t code, const std::string &what);

// The generator of `--inputs=random:SEED`. It is not that of the hooks: only
// tests and trials may depend on these numbers.

/// Identifies a random tensor of a run; equal keys give equal tensors.
struct RandomKey {
  uint64_t seed = 0;
  int32_t rank = 0;
  int64_t step = 0;
  uint64_t argument = 0;
};

/// Fills `count` elements of `type`. Floating-point types get standard normal
/// numbers, rounded to nearest even; booleans 0 or 1; integers 0 … 7.
void fillRandom(const RandomKey &key, TensorType type, uint64_t count,
                void *data);

class StepBuffers {
public:
  /// `signature` must outlive this object, and so must `device`: the context
  /// whose device has the arrays, or null if that is the host.
  explicit StepBuffers(const EntrySignature &signature,
                       ddphook_context_t *device = nullptr)
      : signature(signature), device(device) {}
  ~StepBuffers();

  /// Allocates all buffers, each aligned to 64 bytes and none null.
  Status allocate();

  /// Reads argument i from tensor `arg<i>` of the file; ignores other tensors.
  Status readArguments(const std::string &path);
  /// Draws argument i with `key`, whose `argument` is replaced by i.
  void drawArguments(RandomKey key);
  /// Fills results with 0xff bytes, which are NaN in every floating-point type,
  /// so that elements that the entry point does not write are noticed.
  void poisonResults();
  /// Copy to the device what the calls above have written, and back what the
  /// entry point has written. Without a device they do nothing.
  Status upload();
  Status download();
  /// Writes result i to tensor `result<i>` of the file.
  Status writeResults(const std::string &path) const;

  /// The argument of ddphook_compiled_entry_t::invoke.
  void *const *pointers() const { return list.data(); }

private:
  struct Free {
    void operator()(void *memory) const { std::free(memory); }
  };

  /// One argument, or one result with its own memory.
  struct Buffer {
    std::unique_ptr<void, Free> host;
    void *onDevice = nullptr; // null: the entry point takes `host`
    uint64_t bytes = 0;
  };

  Status add(const EntryValue &value, const std::string &what);
  Buffer &resultBuffer(size_t result) { return buffers[resultBuffers[result]]; }

  const EntrySignature &signature;
  ddphook_context_t *const device;
  std::vector<Buffer> buffers;
  /// The number of each result's buffer, which may be an argument's.
  std::vector<size_t> resultBuffers;
  std::vector<void *> list;
};

} // namespace ddphook
