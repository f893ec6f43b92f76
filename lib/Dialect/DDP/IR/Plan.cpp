// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks the attributes that make up a plan. The runtime checks plans as a
// whole; this file checks only what the compiler relies on.

#include "ddphook/Dialect/DDP/IR/Plan.h"
#include "ddphook/Dialect/DDP/IR/ElementTypes.h"

using namespace mlir;
using namespace mlir::ddp;

using EmitError = function_ref<InFlightDiagnostic()>;

static LogicalResult verifyDtype(EmitError emitError, StringRef key,
                                 Type type) {
  if (isDtype(type))
    return success();
  return emitError() << "expected '" << key << "' to be " << getDtypeNames()
                     << ", but got " << type;
}

static LogicalResult verifyWireType(EmitError emitError, StringRef key,
                                    Type type) {
  return isa<EncodedType>(type) ? success() : verifyDtype(emitError, key, type);
}

/// Checks that an optional list has elements of one kind only.
template <typename ElementAttr>
static LogicalResult verifyElements(EmitError emitError, StringRef key,
                                    ArrayAttr list, StringRef kind) {
  if (!list || llvm::all_of(list, llvm::IsaPred<ElementAttr>))
    return success();
  return emitError() << "expected '" << key << "' to be " << kind
                     << ", but got " << list;
}

LogicalResult PlanGroupAttr::verify(EmitError emitError, StringAttr, int64_t,
                                    ArrayAttr ranks, PlacementAttr, StringAttr,
                                    TopologyAttr) {
  return verifyElements<DenseI64ArrayAttr>(emitError, "ranks", ranks,
                                           "arrays of i64");
}

LogicalResult PlanBucketAttr::verify(EmitError emitError, StringAttr,
                                     StringAttr, ReductionAttr, BucketType,
                                     ArrayAttr gradients, StringAttr,
                                     Type wireType, int64_t, int64_t) {
  if (failed(verifyElements<StringAttr>(emitError, "gradients", gradients,
                                        "names")))
    return failure();
  return verifyWireType(emitError, "wire_type", wireType);
}

LogicalResult PlanStateAttr::verify(EmitError emitError, StringAttr, Type type,
                                    StateKindAttr, StringAttr,
                                    ArrayAttr gradients, StringAttr,
                                    StatePlacementAttr, StateInitAttr, int64_t,
                                    StringAttr, DenseI64ArrayAttr, int64_t) {
  if (failed(verifyElements<ArrayAttr>(emitError, "gradients", gradients,
                                       "lists of names")))
    return failure();
  if (gradients)
    for (auto names : gradients.getAsRange<ArrayAttr>())
      if (failed(verifyElements<StringAttr>(emitError, "gradients", names,
                                            "lists of names")))
        return failure();
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (isa<BucketType>(type) || type.isSignlessInteger(64) ||
      (tensor && tensor.getElementType().isSignlessInteger(32) &&
       tensor.hasStaticShape() && hasAddressableSize(tensor)))
    return success();
  return emitError() << "expected 'type' to be a bucket, i64 or a statically "
                        "shaped tensor of i32, but got "
                     << type;
}

Type PlanStateAttr::getElementType() const {
  auto bucket = dyn_cast<BucketType>(getType());
  return bucket ? bucket.getElementType() : getElementTypeOrSelf(getType());
}

SmallVector<ArrayRef<int64_t>> PlanStateAttr::getShapes() const {
  SmallVector<ArrayRef<int64_t>> shapes;
  if (auto bucket = dyn_cast<BucketType>(getType()))
    llvm::append_range(shapes, bucket.getShapes());
  else if (auto tensor = dyn_cast<RankedTensorType>(getType()))
    shapes.push_back(tensor.getShape());
  else
    shapes.emplace_back();
  return shapes;
}

int64_t PlanStateAttr::getNumBytes() const {
  int64_t numElements = 0;
  for (ArrayRef<int64_t> shape : getShapes())
    numElements += ShapedType::getNumElements(shape);
  return numElements * lookupElementType(getElementType())->bytes;
}

LogicalResult PlanMatrixListAttr::verify(EmitError emitError, Type dtype,
                                         MatrixListAttr, AssignmentAttr) {
  return verifyDtype(emitError, "dtype", dtype);
}

/// Returns a type on the wire if it is no encoding.
static Type getUnlessEncoded(Type wireType) {
  return isa_and_present<EncodedType>(wireType) ? Type() : wireType;
}
static StringRef getEncodingName(Type wireType) {
  auto encoded = dyn_cast_if_present<EncodedType>(wireType);
  return encoded ? lookupEncoding(encoded.getCode())->name : "";
}
static int64_t getBlockOf(Type wireType) {
  auto encoded = dyn_cast_if_present<EncodedType>(wireType);
  return encoded ? encoded.getBlock() : 0;
}

Type PlanBucketAttr::getDtype() const { return getType().getElementType(); }
ArrayRef<DenseI64ArrayAttr> PlanBucketAttr::getShapes() const {
  return getType().getShapes();
}
Type PlanBucketAttr::getWireDtype() const {
  return getWireType() == getDtype() ? Type() : getUnlessEncoded(getWireType());
}
StringRef PlanBucketAttr::getEncoding() const {
  return getEncodingName(getWireType());
}
int64_t PlanBucketAttr::getBlock() const { return getBlockOf(getWireType()); }

Type PlanCollectiveAttr::getPlainWireType() const {
  return getUnlessEncoded(getWireDtype());
}
StringRef PlanCollectiveAttr::getEncoding() const {
  return getEncodingName(getWireDtype());
}
int64_t PlanCollectiveAttr::getBlock() const {
  return getBlockOf(getWireDtype());
}
int64_t PlanCollectiveAttr::getStream() const {
  auto encoded = dyn_cast_if_present<EncodedType>(getWireDtype());
  return encoded ? encoded.getStream() : -1;
}

StringRef mlir::ddp::findPlanTypeDefect(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  if (memref && (!memref.hasStaticShape() || !memref.getLayout().isIdentity()))
    return " of static shape and identity layout";
  if (!lookupElementType(memref ? memref.getElementType() : type))
    return " to be a memref or scalar of integers or floats";
  return "";
}

LogicalResult PlanEntryAttr::verify(EmitError emitError, StringAttr name,
                                    ArrayRef<PlanArgumentAttr> arguments,
                                    ArrayRef<PlanResultAttr> results) {
  auto verifyType = [&](StringRef what, size_t number, Type type) {
    StringRef defect = findPlanTypeDefect(type);
    if (defect.empty())
      return success();
    return LogicalResult(emitError() << "expected " << what << " " << number
                                     << defect << ", but got " << type);
  };
  for (auto [number, argument] : llvm::enumerate(arguments)) {
    if (failed(verifyType("argument", number, argument.getType())))
      return failure();
    if (argument.getInout() && !isa<MemRefType>(argument.getType()))
      return emitError() << "expected argument " << number
                         << ", which is 'inout', to be a memref, but got "
                         << argument.getType();
  }
  for (auto [number, result] : llvm::enumerate(results)) {
    if (failed(verifyType("result", number, result.getType())))
      return failure();
    int64_t argument = result.getArgument();
    if (argument == -1)
      continue;
    if (argument < 0 || argument >= static_cast<int64_t>(arguments.size()) ||
        !arguments[argument].getInout() ||
        arguments[argument].getType() != result.getType())
      return emitError() << "expected result " << number
                         << " to be an 'inout' argument of its type, but got "
                            "argument "
                         << argument;
  }
  return success();
}

LogicalResult
PlanAttr::verify(EmitError emitError, int64_t, ArrayMemoryAttr memory,
                 ArrayRef<StringAttr> kernels, ArrayRef<PlanGroupAttr> groups,
                 ArrayRef<PlanBucketAttr> buckets, ArrayRef<PlanStateAttr>,
                 ArrayRef<PlanMatrixListAttr>,
                 ArrayRef<PlanCollectiveAttr> collectives, int64_t, int64_t,
                 ArrayRef<PlanEntryAttr>) {
  if (!kernels.empty() && memory.getValue() == ArrayMemory::Host)
    return emitError() << "expected no kernels in a plan for memory of the "
                          "host, but got "
                       << kernels.front();
  llvm::DenseSet<StringAttr> names;
  for (PlanBucketAttr bucket : buckets)
    if (!names.insert(bucket.getName()).second)
      return emitError()
             << "expected unique bucket names, but two buckets are called "
             << bucket.getName();
  for (auto [number, collective] : llvm::enumerate(collectives)) {
    Type wireType = collective.getWireDtype();
    if (failed(verifyDtype(emitError, "dtype", collective.getDtype())) ||
        (wireType && failed(verifyWireType(emitError, "wire_dtype", wireType))))
      return failure();
    StringAttr bucket = collective.getBucket();
    if (bucket && !bucket.empty() && !names.contains(bucket))
      return emitError() << "expected collective " << number
                         << " to have the name of a bucket, but got " << bucket;
    if (collective.getGroup() < 0 ||
        collective.getGroup() >= static_cast<int64_t>(groups.size()))
      return emitError() << "expected collective " << number
                         << " to have the number of one of " << groups.size()
                         << " process groups, but got "
                         << collective.getGroup();
  }
  return success();
}

PlanAttr PlanAttr::cloneWith(ArrayMemory memory,
                             ArrayRef<StringAttr> kernels) const {
  return get(getContext(), getAbi(), ArrayMemoryAttr::get(getContext(), memory),
             kernels, getProcessGroups(), getBuckets(), getStates(),
             getMatrixLists(), getCollectives(), getArenaBytes(),
             getStateArenaBytes(), getEntries());
}

PlanAttr mlir::ddp::getPlan(ModuleOp module) {
  return module->getAttrOfType<PlanAttr>(DDPDialect::kPlanAttrName);
}

bool mlir::ddp::usesDeviceMemory(ModuleOp module) {
  PlanAttr plan = getPlan(module);
  return plan && plan.usesDeviceMemory();
}
