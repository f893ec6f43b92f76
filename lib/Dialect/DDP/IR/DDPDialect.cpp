// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Registers the dialect and verifies its discardable attributes.

#include "Verifiers.h"
#include "ddphook/Dialect/DDP/IR/DDPBytecode.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Transforms/InliningUtils.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::ddp;

#include "ddphook/Dialect/DDP/IR/DDPDialect.cpp.inc"
#include "ddphook/Dialect/DDP/IR/DDPEnums.cpp.inc"

#include "ddphook/Dialect/DDP/IR/DDPAttrInterfaces.cpp.inc"
#include "ddphook/Dialect/DDP/IR/DDPOpInterfaces.cpp.inc"

namespace {
/// Every operation of the dialect may be inlined: none captures anything.
struct DDPInlinerInterface : public DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final {
    return true;
  }
};
} // namespace

void DDPDialect::initialize() {
  registerAttributes();
  registerTypes();
  addOperations<
#define GET_OP_LIST
#include "ddphook/Dialect/DDP/IR/DDPOps.cpp.inc"
      >();
  addInterfaces<DDPInlinerInterface>();
  addBytecodeInterface(*this);
}

/// Verifies the name of a gradient on `what`.
static LogicalResult verifyName(Operation *op, Attribute name,
                                const Twine &what) {
  auto text = dyn_cast<StringAttr>(name);
  if (!text || text.empty() || !llvm::json::isUTF8(text.getValue()))
    return op->emitOpError()
           << "expected '" << DDPDialect::kNameAttrName << "'" << what
           << " to be a string that is not empty, in UTF-8, but got " << name;
  return success();
}

LogicalResult DDPDialect::verifyOperationAttribute(Operation *op,
                                                   NamedAttribute attribute) {
  StringAttr name = attribute.getName();
  Attribute value = attribute.getValue();
  auto expect = [&](bool isMet, const Twine &requirement) -> LogicalResult {
    if (isMet)
      return success();
    return op->emitOpError()
           << "expected '" << name.getValue() << "' " << requirement;
  };
  if (name == kHookAttrName) {
    if (!isa<HookAttrInterface>(value))
      return op->emitOpError() << "expected '" << kHookAttrName
                               << "' to be a hook attribute, but got " << value;
    return expect(
        isa<AllReduceOp, ReduceScatterOp, FunctionOpInterface, ModuleOp>(op),
        "on 'ddp.all_reduce', 'ddp.reduce_scatter', a function or a module "
        "only");
  }
  if (name == kNameAttrName) {
    if (!isa<ReduceScatterOp>(op) &&
        (!isa<AllReduceOp>(op) || isa<BucketType>(op->getOperand(0).getType())))
      return expect(false, "on the 'ddp.all_reduce' of a gradient, on a "
                           "'ddp.reduce_scatter', or on a function's argument");
    return verifyName(op, value, "");
  }
  if (name == kErrorAttrName) {
    auto collective = dyn_cast<CollectiveOpInterface>(op);
    TypeAttr wire = collective ? collective.getWireAttr() : TypeAttr();
    auto encoding =
        wire ? dyn_cast<EncodedType>(wire.getValue()) : EncodedType();
    return expect(isa<FlatSymbolRefAttr>(value) && encoding &&
                      !encoding.isAffine() &&
                      collective.getKind() == CollectiveKind::AllReduce,
                  "to name a state, on an all-reduce whose wire type is an "
                  "encoding without a zero point");
  }
  if (name == kAssignmentAttrName)
    return verifyAssignment(op, value);
  if (name == kCompressesAttrName)
    return expect(
        isa<StringAttr>(value) &&
            (isa<SparsifyOp, FlatSparsifyOp>(op) ||
             (isa<MatmulOp, FlatMatmulOp>(op) && op->hasAttr("transpose_lhs"))),
        "to name a bucket, on a product with 'transpose_lhs' or a 'sparsify'");
  if (name == kResultArgumentsAttrName)
    return expect(isa<DenseI64ArrayAttr>(value) && isa<FunctionOpInterface>(op),
                  "to be an array of i64 on a function");
  if (name == kWidenAccumulatorsAttrName)
    return expect(isa<UnitAttr>(value) && isa<ModuleOp>(op),
                  "to be a unit attribute on a module");
  if (name == kPlanAttrName)
    return expect(isa<PlanAttr>(value) && isa<ModuleOp>(op),
                  "to be a #ddp.plan on a module");
  return op->emitOpError() << "got unknown attribute '" << name.getValue()
                           << "' of the ddp dialect";
}

static bool isGradientType(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  return shaped && isa<FloatType>(shaped.getElementType());
}

LogicalResult DDPDialect::verifyRegionArgAttribute(Operation *op,
                                                   unsigned regionIndex,
                                                   unsigned argIndex,
                                                   NamedAttribute attribute) {
  if (attribute.getName() == kNameAttrName)
    return verifyName(op, attribute.getValue(),
                      " of argument " + Twine(argIndex));
  bool isGradient = attribute.getName() == kGradientAttrName;
  if (!isGradient && attribute.getName() != kReplicatedAttrName &&
      attribute.getName() != kInoutAttrName)
    return op->emitOpError()
           << "got unknown argument attribute '"
           << attribute.getName().getValue() << "' of the ddp dialect";
  if (!isa<UnitAttr>(attribute.getValue()))
    return op->emitOpError() << "expected '" << attribute.getName().getValue()
                             << "' to be a unit attribute";
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!isGradient || !function)
    return success();
  Type type = function.getArgumentTypes()[argIndex];
  if (!isa<MemRefType>(type) || !isGradientType(type))
    return op->emitOpError()
           << "expected argument " << argIndex << " marked '"
           << kGradientAttrName
           << "' to be a memref of floats (an out-parameter), but got " << type;
  return success();
}

LogicalResult
DDPDialect::verifyRegionResultAttribute(Operation *op, unsigned regionIndex,
                                        unsigned resultIndex,
                                        NamedAttribute attribute) {
  if (attribute.getName() != kGradientAttrName)
    return op->emitOpError()
           << "got unknown result attribute '" << attribute.getName().getValue()
           << "' of the ddp dialect";
  if (!isa<UnitAttr>(attribute.getValue()))
    return op->emitOpError()
           << "expected '" << kGradientAttrName << "' to be a unit attribute";
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (function && !isGradientType(function.getResultTypes()[resultIndex]))
    return op->emitOpError()
           << "expected result " << resultIndex << " marked '"
           << kGradientAttrName << "' to be a tensor of floats, but got "
           << function.getResultTypes()[resultIndex];
  return success();
}

bool mlir::ddp::hasDDPOps(Operation *op) {
  auto visit = [](Operation *nested) {
    return isa_and_nonnull<DDPDialect>(nested->getDialect())
               ? WalkResult::interrupt()
               : WalkResult::advance();
  };
  return op->walk(visit).wasInterrupted();
}

void mlir::ddp::removeDDPAttrs(Operation *op) {
  auto isOurs = [](NamedAttribute attr) {
    return isa_and_nonnull<DDPDialect>(attr.getNameDialect());
  };
  for (NamedAttribute attr : llvm::to_vector(op->getDiscardableAttrs()))
    if (isOurs(attr))
      op->removeDiscardableAttr(attr.getName());
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    return;
  // All at once, because each change copies the whole list.
  auto filter = [&](ArrayAttr lists) {
    SmallVector<DictionaryAttr> kept;
    for (auto attrs : lists.getAsRange<DictionaryAttr>()) {
      SmallVector<NamedAttribute> others(attrs.getValue());
      llvm::erase_if(others, isOurs);
      kept.push_back(DictionaryAttr::get(lists.getContext(), others));
    }
    return kept;
  };
  if (ArrayAttr attrs = function.getArgAttrsAttr())
    function.setAllArgAttrs(filter(attrs));
  if (ArrayAttr attrs = function.getResAttrsAttr())
    function.setAllResultAttrs(filter(attrs));
}

HookAttrInterface mlir::ddp::getEffectiveHook(Operation *op,
                                              HookAttrInterface defaultHook) {
  for (; op; op = op->getParentOp())
    if (auto hook =
            op->getAttrOfType<HookAttrInterface>(DDPDialect::kHookAttrName))
      return hook;
  return defaultHook;
}

Value mlir::ddp::buildFinalAllReduce(OpBuilder &builder,
                                     const BucketReduction &reduction,
                                     Value input, Type wire, Value step) {
  auto reduced = AllReduceOp::create(
      builder, reduction.loc,
      ReductionAttr::get(builder.getContext(), reduction.kind), input,
      reduction.group, wire ? TypeAttr::get(wire) : TypeAttr(),
      reduction.bucketName, step);
  reduced->setAttr(DDPDialect::kHookAttrName,
                   AllReduceHookAttr::get(builder.getContext()));
  return reduced.getResult();
}

void mlir::ddp::setErrorState(Operation *allReduce, FlatSymbolRefAttr error) {
  if (error)
    allReduce->setAttr(DDPDialect::kErrorAttrName, error);
}

FlatSymbolRefAttr mlir::ddp::getErrorState(Operation *op) {
  return op->getAttrOfType<FlatSymbolRefAttr>(DDPDialect::kErrorAttrName);
}

void mlir::ddp::setAssignment(Operation *op, AssignmentAttr assignment) {
  if (assignment)
    op->setAttr(DDPDialect::kAssignmentAttrName, assignment);
}

void mlir::ddp::setCompressedBucket(Operation *op, StringAttr bucket) {
  if (bucket)
    op->setAttr(DDPDialect::kCompressesAttrName, bucket);
}

AssignmentAttr mlir::ddp::getAssignment(Operation *op) {
  return op->getAttrOfType<AssignmentAttr>(DDPDialect::kAssignmentAttrName);
}

Type mlir::ddp::getElementTypeOf(Type type) {
  if (auto bucket = dyn_cast<BucketType>(type))
    return bucket.getElementType();
  return cast<ShapedType>(type).getElementType();
}

int64_t mlir::ddp::getNumElementsOf(Type type) {
  if (auto bucket = dyn_cast<BucketType>(type))
    return bucket.getNumElements();
  return cast<ShapedType>(type).getNumElements();
}
