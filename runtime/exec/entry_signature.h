// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The arguments and results of one entry point, as its module's plan lists
// them, in terms of tensors in files.

#pragma once

#include "files/safetensors.h"

#include "ddphook/runtime/compiled.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ddphook {

struct EntryValue {
  /// As written to files: i1 is BOOL, index is I64.
  TensorType type = TensorType::F32;
  std::vector<int64_t> shape;
  uint64_t elements = 0;
  uint64_t bytes = 0;
  /// Arguments only: true for a value instead of an array of one.
  bool isScalar = false;
};

struct EntryResult : EntryValue {
  /// The argument that shares its buffer with this result, or −1.
  int64_t argument = -1;
};

struct EntrySignature {
  std::string name;
  ddphook_status_t (*invoke)(void *const *buffers) = nullptr;
  std::vector<EntryValue> arguments;
  std::vector<EntryResult> results;
  /// The number and bytes of the module's states, which all entry points share.
  size_t stateCount = 0;
  uint64_t stateBytes = 0;
};

/// Finds entry point `name` in `module`; for an unknown one the message lists
/// the existing ones.
Status findEntry(const ddphook_compiled_module_t &module,
                 const std::string &name, EntrySignature &signature);

} // namespace ddphook
