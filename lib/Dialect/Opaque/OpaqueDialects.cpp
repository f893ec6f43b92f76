// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See OpaqueDialects.h. MLIR can also read operations of no dialect, but takes
// each one with a region for a possible symbol table: calls in it are then not
// verified, and the inliner, which asks an operation for its dialect, crashes.

#include "ddphook/Dialect/Opaque/OpaqueDialects.h"

#include "mlir/IR/Dialect.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Transforms/InliningUtils.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// All of these dialects' regions are structured code.
struct OpaqueInlinerInterface : public DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;

  bool isLegalToInline(Region *, Region *, bool, IRMapping &) const final {
    return true;
  }
  bool isLegalToInline(Operation *op, Region *, bool, IRMapping &) const final {
    // The verifier takes an operation that it does not know for a terminator.
    // The inliner would ask what it returns.
    return !isa<FunctionOpInterface>(op->getParentOp()) || op->getNextNode();
  }
};

/// `DialectT` is the derived class.
template <typename DialectT>
class OpaqueDialect : public Dialect {
public:
  explicit OpaqueDialect(MLIRContext *context)
      : Dialect(DialectT::getDialectNamespace(), context,
                TypeID::get<DialectT>()) {
    allowUnknownOperations();
    addInterfaces<OpaqueInlinerInterface>();
  }

  Attribute parseAttribute(DialectAsmParser &parser, Type type) const final {
    Builder &builder = parser.getBuilder();
    return OpaqueAttr::get(builder.getStringAttr(getNamespace()),
                           parser.getFullSymbolSpec(),
                           type ? type : builder.getNoneType());
  }

  Type parseType(DialectAsmParser &parser) const final {
    return OpaqueType::get(parser.getBuilder().getStringAttr(getNamespace()),
                           parser.getFullSymbolSpec());
  }
};

struct ShardyDialect : public OpaqueDialect<ShardyDialect> {
  using OpaqueDialect::OpaqueDialect;
  static constexpr StringLiteral getDialectNamespace() { return "sdy"; }
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ShardyDialect)
};

struct StableHLODialect : public OpaqueDialect<StableHLODialect> {
  using OpaqueDialect::OpaqueDialect;
  static constexpr StringLiteral getDialectNamespace() { return "stablehlo"; }
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(StableHLODialect)
};

struct MHLODialect : public OpaqueDialect<MHLODialect> {
  using OpaqueDialect::OpaqueDialect;
  static constexpr StringLiteral getDialectNamespace() { return "mhlo"; }
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(MHLODialect)
};

struct CHLODialect : public OpaqueDialect<CHLODialect> {
  using OpaqueDialect::OpaqueDialect;
  static constexpr StringLiteral getDialectNamespace() { return "chlo"; }
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CHLODialect)
};
} // namespace

/// Registers each of `DialectTs` whose name is free.
template <typename... DialectTs>
static void registerMissing(DialectRegistry &registry) {
  auto registerOne = [&](auto *none) {
    using DialectT = std::remove_pointer_t<decltype(none)>;
    if (!registry.getDialectAllocator(DialectT::getDialectNamespace()))
      registry.insert<DialectT>();
  };
  (registerOne(static_cast<DialectTs *>(nullptr)), ...);
}

void mlir::ddp::registerOpaqueDialects(DialectRegistry &registry) {
  registerMissing<ShardyDialect, StableHLODialect, MHLODialect, CHLODialect>(
      registry);
}
