// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// MLIR types in the list of element types that compiler and runtime share
// (ddphook/runtime/element_types.inc).

#pragma once

#include "mlir/IR/Types.h"

#include <optional>

namespace mlir::ddp {

struct ElementType {
  /// The name in the plan and in MLIR, for example "bf16".
  StringRef name;
  /// The type in C; "uint16_t" for 16-bit floats, which are passed as their
  /// bits.
  StringRef cType;
  int64_t bytes;
  /// The ddphook_dtype_t, if the runtime computes with this type.
  std::optional<int32_t> dtype;
};

/// Returns the element type for an MLIR type; null if neither plans nor calls
/// of the runtime support it.
const ElementType *lookupElementType(Type type);

/// True if the runtime computes with elements of that type.
bool isDtype(Type type);

/// Returns the names of all types that isDtype() accepts, for diagnostics.
StringRef getDtypeNames();

/// An encoding of collectives (ddphook/runtime/encodings.inc).
struct EncodingRow {
  enum Kind { CAST, SCALED, AFFINE };

  /// The type of its codes, in MLIR and in plans.
  StringRef name;
  int64_t bits;
  Kind kind;
  /// The ddphook_encoding_t.
  int32_t value;
};

/// Returns the encoding with codes of that type; null if there is none.
const EncodingRow *lookupEncoding(Type code);

/// Returns the names of all types of codes, for diagnostics.
StringRef getEncodingNames();

} // namespace mlir::ddp
