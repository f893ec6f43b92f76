// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The release of MLIR that ddphook is built on, and what later releases change
// in what it uses, each with upstream's pull request. Code for later releases
// has not been compiled: "Moving to another MLIR" in docs/embedding.md.

#pragma once

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Config/llvm-config.h"

/// CMakeLists.txt reads this line.
#define DDPHOOK_MLIR_VERSION 22

#if LLVM_VERSION_MAJOR != DDPHOOK_MLIR_VERSION
#error "the headers of LLVM are not those of DDPHOOK_MLIR_VERSION"
#endif

namespace mlir {
#if LLVM_VERSION_MAJOR > 22
// llvm/llvm-project#185157
class PropertyRef;
using OpaqueProperties = PropertyRef;
#endif

namespace ddp {
/// Returns the values that receive operands at a successor of `op`, an
/// operation with regions (llvm/llvm-project#175815).
template <typename OpT, typename SuccessorT>
auto getSuccessorInputs([[maybe_unused]] OpT op, const SuccessorT &successor) {
#if LLVM_VERSION_MAJOR > 22
  return op.getSuccessorInputs(successor);
#else
  return successor.getSuccessorInputs();
#endif
}

/// Returns true if MLIR itself adds an argument of that name to remarks
/// (llvm/llvm-project#180953).
inline bool isAddedToRemarks(StringRef name) {
  return name == "RemarkId" || name == "RelatedTo";
}
} // namespace ddp
} // namespace mlir
