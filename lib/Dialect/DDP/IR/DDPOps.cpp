//===- DDPOps.cpp ----------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifiers, folders and type inference of groups, buckets, collectives and
// views. The constraint that a check enforces stands beside it by its number in
// the operation's description.
//
//===----------------------------------------------------------------------===//

#include "FlatOps.h"
#include "Verifiers.h"
#include "ddphook/Dialect/DDP/IR/DDPBytecode.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace mlir::ddp;

//===----------------------------------------------------------------------===//
// Syntax
//===----------------------------------------------------------------------===//

/// The words of an enum, quoted: 'a', 'b' or 'c'.
template <typename EnumT>
static std::string listKeywords() {
  SmallVector<StringRef> words;
  auto getWord = [](unsigned i) {
    return StringRef(stringifyEnum(static_cast<EnumT>(i)));
  };
  for (unsigned i = 0; !getWord(i).empty(); ++i)
    words.push_back(getWord(i));
  std::string text = ("'" + words.front() + "'").str();
  for (auto [index, word] : llvm::enumerate(ArrayRef(words).drop_front()))
    text += ((index + 2 == words.size() ? " or '" : ", '") + word + "'").str();
  return text;
}

/// An enum's keyword. The parser that is generated for an enum attribute would
/// name the C++ type in its error.
template <typename AttrT>
static ParseResult parseKeyword(OpAsmParser &parser, AttrT &attr) {
  using EnumT = decltype(attr.getValue());
  StringRef keyword;
  SMLoc location = parser.getCurrentLocation();
  if (parser.parseKeyword(&keyword))
    return failure();
  std::optional<EnumT> value = symbolizeEnum<EnumT>(keyword);
  if (!value)
    return parser.emitError(location) << "expected " << listKeywords<EnumT>()
                                      << ", but got '" << keyword << "'";
  attr = AttrT::get(parser.getContext(), *value);
  return success();
}

template <typename AttrT>
static void printKeyword(OpAsmPrinter &printer, Operation *, AttrT attr) {
  printer << stringifyEnum(attr.getValue());
}

/// The one operand that an all-reduce may have beside what it reduces.
static OptionalParseResult
parseStepOrDestination(OpAsmParser &parser,
                       std::optional<OpAsmParser::UnresolvedOperand> &operand,
                       Type &type) {
  if (succeeded(parser.parseOptionalKeyword("step"))) {
    type = parser.getBuilder().getI64Type();
    return parser.parseOperand(operand.emplace());
  }
  if (failed(parser.parseOptionalKeyword("into")))
    return std::nullopt;
  return failure(parser.parseOperand(operand.emplace()) ||
                 parser.parseColonType(type) || parser.parseComma());
}

static void printStepOrDestination(OpAsmPrinter &printer, Operation *,
                                   Value operand, Type type) {
  if (type.isInteger())
    printer << "step " << operand;
  else
    printer << "into " << operand << " : " << type << ",";
}

//===----------------------------------------------------------------------===//
// ddp.process_group
//===----------------------------------------------------------------------===//

/// [[0, 1], [2, 3]]
static ParseResult parseRankLists(OpAsmParser &parser, ArrayAttr &ranks) {
  SmallVector<Attribute> lists;
  auto parseList = [&]() -> ParseResult {
    SmallVector<int64_t> list;
    if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] {
          return parser.parseInteger(list.emplace_back());
        }))
      return failure();
    lists.push_back(DenseI64ArrayAttr::get(parser.getContext(), list));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseList))
    return failure();
  ranks = ArrayAttr::get(parser.getContext(), lists);
  return success();
}

static void printRankLists(OpAsmPrinter &printer, ProcessGroupOp,
                           ArrayAttr ranks) {
  printer << "[";
  llvm::interleaveComma(ranks, printer, [&](Attribute list) {
    printer << "[";
    llvm::interleaveComma(cast<DenseI64ArrayAttr>(list).asArrayRef(), printer);
    printer << "]";
  });
  printer << "]";
}

void ProcessGroupOp::build(OpBuilder &builder, OperationState &state,
                           StringRef name, std::optional<int64_t> size) {
  build(builder, state, builder.getStringAttr(name),
        size ? builder.getI64IntegerAttr(*size) : IntegerAttr(),
        /*ranks=*/ArrayAttr(), /*placement=*/PlacementAttr(),
        /*parent=*/FlatSymbolRefAttr(), /*topology=*/TopologyAttr());
}

void ProcessGroupOp::build(OpBuilder &builder, OperationState &state,
                           StringRef name, Placement placement,
                           StringRef parent) {
  MLIRContext *context = builder.getContext();
  build(builder, state, builder.getStringAttr(name), /*size=*/IntegerAttr(),
        /*ranks=*/ArrayAttr(), PlacementAttr::get(context, placement),
        parent.empty() ? FlatSymbolRefAttr()
                       : FlatSymbolRefAttr::get(context, parent),
        /*topology=*/TopologyAttr());
}

/// The version for which `writer` writes.
static uint64_t getVersion(DialectBytecodeWriter &writer) {
  auto asked = writer.getDialectVersion<DDPDialect>();
  return succeeded(asked) ? static_cast<const DDPVersion &>(**asked).number
                          : DDPVersion::kCurrent;
}

LogicalResult ProcessGroupOp::readProperties(DialectBytecodeReader &reader,
                                             OperationState &state) {
  auto &properties = state.getOrAddProperties<Properties>();
  if (failed(reader.readOptionalAttribute(properties.parent)) ||
      failed(reader.readOptionalAttribute(properties.placement)) ||
      failed(reader.readOptionalAttribute(properties.ranks)) ||
      failed(reader.readOptionalAttribute(properties.size)) ||
      failed(reader.readAttribute(properties.sym_name)))
    return failure();
  auto version = reader.getDialectVersion<DDPDialect>();
  if (failed(version) || static_cast<const DDPVersion &>(**version).number < 2)
    return success();
  return reader.readOptionalAttribute(properties.topology);
}

void ProcessGroupOp::writeProperties(DialectBytecodeWriter &writer) {
  Properties &properties = getProperties();
  writer.writeOptionalAttribute(properties.parent);
  writer.writeOptionalAttribute(properties.placement);
  writer.writeOptionalAttribute(properties.ranks);
  writer.writeOptionalAttribute(properties.size);
  writer.writeAttribute(properties.sym_name);
  if (getVersion(writer) >= 2)
    writer.writeOptionalAttribute(properties.topology);
  else if (properties.topology)
    emitOpError() << "expected no topology in bytecode of version 1";
}

LogicalResult ProcessGroupOp::verify() {
  if (getSize() && static_cast<int64_t>(*getSize()) <= 0) // C1
    return emitOpError() << "expected a positive size, but got "
                         << static_cast<int64_t>(*getSize());
  // No plan has more ranks: runtime/src/plan/plan_reader.h.
  constexpr uint64_t maxSize = 1 << 24;
  if (getSize() && *getSize() > maxSize) // C1
    return emitOpError() << "expected a size of at most " << maxSize
                         << ", but got " << *getSize();
  if (ArrayAttr lists = getRanksAttr()) {
    if (getPlacement() || getParent()) // C4
      return emitOpError() << "expected either ranks, or placement and parent";
    size_t listSize = 0, numRanks = 0;
    for (Attribute list : lists) {
      size_t size = cast<DenseI64ArrayAttr>(list).size();
      if (size == 0 || (listSize != 0 && size != listSize)) // C2
        return emitOpError() << "expected lists of ranks of equal size";
      listSize = size;
      numRanks += size;
    }
    llvm::SmallBitVector seen(numRanks);
    for (Attribute list : lists)
      for (int64_t rank : cast<DenseI64ArrayAttr>(list).asArrayRef()) {
        if (rank < 0 || rank >= static_cast<int64_t>(numRanks) || seen[rank])
          return emitOpError() << "expected each rank from 0 to "
                               << static_cast<int64_t>(numRanks) - 1
                               << " once, but got " << rank; // C2
        seen.set(rank);
      }
    if (getSize() && *getSize() != listSize) // C3
      return emitOpError() << "expected lists of " << *getSize()
                           << " ranks, but got " << listSize;
  }
  if (getParent() && !getPlacement()) // C5
    return emitOpError() << "expected a 'placement' with 'parent'";
  if (getTopology() && getPlacement()) // C6
    return emitOpError() << "expected either a topology or a placement";
  return success();
}

LogicalResult ProcessGroupOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (!getParent())
    return success();
  // The groups of a chain of parents, to refuse one that closes on itself.
  llvm::SmallPtrSet<Operation *, 4> chain = {getOperation()};
  ProcessGroupOp group = *this;
  while (FlatSymbolRefAttr parent = group.getParentAttr()) {
    if (failed(verifyGroup(group, parent, symbols))) // C5
      return failure();
    group =
        symbols.lookupNearestSymbolFrom<ProcessGroupOp>(getOperation(), parent);
    if (!chain.insert(group).second)
      return emitOpError() << "expected a parent that does not depend on "
                           << "this group";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// ddp.bucket_info
//===----------------------------------------------------------------------===//

/// Checks that there is a name for each member of a bucket, or none at all.
static LogicalResult verifyNames(Operation *op, ArrayAttr names, Type type) {
  if (!names)
    return success();
  auto bucket = dyn_cast<BucketType>(type);
  if (!bucket)
    return op->emitOpError() << "expected names of gradients on a bucket only, "
                             << "but got " << type;
  if (names.size() != bucket.getNumMembers())
    return op->emitOpError() << "expected names of " << bucket.getNumMembers()
                             << " gradients, but got " << names.size();
  return success();
}

LogicalResult BucketInfoOp::verify() {
  return verifyNames(*this, getGradientsAttr(), getType()); // C2
}

LogicalResult BucketInfoOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyGroup(*this, getGroupAttr(), symbols); // C1
}

//===----------------------------------------------------------------------===//
// ddp.pack, ddp.unpack, ddp.split, ddp.concat
//===----------------------------------------------------------------------===//

/// Checks that `tensors` are the members of `bucket`, or fill it once it is
/// flat.
static LogicalResult verifyMembers(Operation *op, TypeRange tensors,
                                   Type bucket) {
  for (auto [index, type] : llvm::enumerate(tensors))
    if (getElementTypeOf(type) != getElementTypeOf(bucket))
      return op->emitOpError()
             << "expected tensor " << index << " to have element type "
             << getElementTypeOf(bucket) << ", but got " << type;
  if (auto bucketType = dyn_cast<BucketType>(bucket)) {
    if (tensors.size() != bucketType.getNumMembers())
      return op->emitOpError()
             << "expected " << bucketType.getNumMembers()
             << " tensors for this bucket, but got " << tensors.size();
    for (auto [index, type] : llvm::enumerate(tensors))
      if (cast<RankedTensorType>(type).getShape() != bucketType.getShape(index))
        return op->emitOpError()
               << "expected tensor " << index << " to be "
               << bucketType.getMemberType(index) << ", but got " << type;
    return success();
  }
  int64_t numElements = 0;
  for (Type type : tensors)
    numElements = addElements(numElements, getNumElementsOf(type));
  if (numElements != getNumElementsOf(bucket))
    return op->emitOpError()
           << "expected tensors of " << getNumElementsOf(bucket)
           << " elements together, but got " << numElements;
  return success();
}

LogicalResult PackOp::verify() {
  return verifyMembers(*this, getTensors().getTypes(), getBucket().getType());
}

LogicalResult UnpackOp::verify() {
  return verifyMembers(*this, getTensors().getTypes(), getBucket().getType());
}

OpFoldResult PackOp::fold(FoldAdaptor) {
  // pack(unpack(b)) is b.
  if (getTensors().empty())
    return {};
  auto unpack = getTensors().front().getDefiningOp<UnpackOp>();
  if (unpack && unpack.getBucket().getType() == getBucket().getType() &&
      llvm::equal(unpack.getTensors(), getTensors()))
    return unpack.getBucket();
  return {};
}

LogicalResult UnpackOp::fold(FoldAdaptor,
                             SmallVectorImpl<OpFoldResult> &results) {
  // unpack(pack(t…)) is t….
  auto pack = getBucket().getDefiningOp<PackOp>();
  if (!pack || pack.getTensors().getTypes() != getTensors().getTypes())
    return failure();
  llvm::append_range(results, pack.getTensors());
  return success();
}

/// Checks that `parts`, which are operands or results, make up `whole`; in the
/// order of their members in it, where that is given.
static LogicalResult verifyParts(Operation *op, TypeRange parts, Type whole,
                                 StringRef partKind, StringRef wholeKind,
                                 std::optional<ArrayRef<int64_t>> order = {}) {
  auto bucket = dyn_cast<BucketType>(whole);
  SmallVector<DenseI64ArrayAttr> shapes;
  int64_t numElements = 0;
  for (auto [index, part] : llvm::enumerate(parts)) {
    if (getElementTypeOf(part) != getElementTypeOf(whole))
      return op->emitOpError()
             << "expected " << partKind << " " << index
             << " to have element type " << getElementTypeOf(whole)
             << ", but got " << part;
    if (isa<BucketType>(part) != isa<BucketType>(whole))
      return op->emitOpError()
             << "expected " << partKind << " " << index << " to be of the "
             << wholeKind << "'s kind, but got " << part;
    if (bucket)
      llvm::append_range(shapes, cast<BucketType>(part).getShapes());
    numElements = addElements(numElements, getNumElementsOf(part));
  }
  if (order) {
    SmallVector<DenseI64ArrayAttr> ordered(shapes.size());
    if (!bucket)
      return op->emitOpError()
             << "expected 'order' only on buckets, but got " << whole;
    if (order->size() != shapes.size())
      return op->emitOpError() << "expected an order of " << shapes.size()
                               << " members, but got " << order->size();
    for (auto [place, shape] : llvm::zip(*order, shapes)) {
      if (place < 0 || place >= static_cast<int64_t>(ordered.size()) ||
          ordered[place])
        return op->emitOpError() << "expected each place from 0 to "
                                 << static_cast<int64_t>(ordered.size()) - 1
                                 << " once, but got " << place;
      ordered[place] = shape;
    }
    shapes = ordered;
  }
  if (bucket && bucket.getShapes() != ArrayRef(shapes))
    return op->emitOpError()
           << "expected the " << partKind << "s' members to be the "
           << wholeKind << "'s, but they give "
           << BucketType::get(op->getContext(), bucket.getElementType(),
                              shapes);
  if (numElements != getNumElementsOf(whole))
    return op->emitOpError()
           << "expected " << partKind << "s of " << getNumElementsOf(whole)
           << " elements together, but got " << numElements;
  return success();
}

LogicalResult SplitOp::verify() {
  return verifyParts(*this, getParts().getTypes(), getBucket().getType(),
                     "result", "operand"); // C1
}

LogicalResult ConcatOp::verify() {
  if (getDestination() && (isa<BucketType>(getType()) ||
                           getDestination().getType() != getType())) // C3
    return emitOpError() << "expected 'into' on tensors only, of the result's "
                         << "type, but got " << getDestination().getType();
  return verifyParts(*this, getParts().getTypes(), getType(), "operand",
                     "result", getOrder()); // C1, C2
}

OpFoldResult ConcatOp::fold(FoldAdaptor) {
  if (getOrder() || getDestination())
    return {};
  if (getParts().size() == 1 && getParts().front().getType() == getType())
    return getParts().front();
  // The extracts of one bucket, put together again.
  Value whole;
  int64_t next = 0;
  for (Value part : getParts()) {
    auto extract = part.getDefiningOp<ExtractOp>();
    if (!extract || (whole && extract.getBucket() != whole))
      return {};
    whole = extract.getBucket();
    for (int64_t member : extract.getMembers())
      if (member != next++)
        return {};
  }
  if (whole && whole.getType() == getType())
    return whole;
  return {};
}

//===----------------------------------------------------------------------===//
// ddp.extract
//===----------------------------------------------------------------------===//

LogicalResult ExtractOp::inferReturnTypes(
    MLIRContext *context, std::optional<Location> location, ValueRange operands,
    DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
    SmallVectorImpl<Type> &types) {
  Adaptor adaptor(operands, attributes, properties, regions);
  auto bucket = dyn_cast<BucketType>(adaptor.getBucket().getType());
  if (!bucket)
    return emitOptionalError(location, "expected a bucket to extract from");
  SmallVector<DenseI64ArrayAttr> shapes;
  llvm::BitVector isTaken(bucket.getNumMembers());
  for (int64_t member : adaptor.getMembers()) { // C1
    if (member < 0 || member >= bucket.getNumMembers())
      return emitOptionalError(location, "expected members below ",
                               bucket.getNumMembers(), ", but got ", member);
    if (isTaken.test(member))
      return emitOptionalError(location, "expected distinct members, but got ",
                               member, " twice");
    isTaken.set(member);
    shapes.push_back(bucket.getShapes()[member]);
  }
  types.push_back(BucketType::get(context, bucket.getElementType(), shapes));
  return success();
}

/// Whether the members lie side by side.
static bool isAdjacent(ArrayRef<int64_t> members) {
  for (size_t i = 1; i < members.size(); ++i)
    if (members[i] != members[i - 1] + 1)
      return false;
  return true;
}

OpFoldResult ExtractOp::fold(FoldAdaptor) {
  ArrayRef<int64_t> members = getMembers();
  if (getBucket().getType() == getType() && isAdjacent(members))
    return getBucket();
  if (members.empty())
    return {};
  // An extract of an extract reads the outer bucket.
  if (auto outer = getBucket().getDefiningOp<ExtractOp>()) {
    SmallVector<int64_t> composed;
    for (int64_t member : members)
      composed.push_back(outer.getMembers()[member]);
    setOperand(outer.getBucket());
    setMembers(composed);
    return getResult();
  }
  // Exactly one part of a concat.
  auto concat = getBucket().getDefiningOp<ConcatOp>();
  if (concat && !concat.getOrder()) {
    int64_t first = 0;
    for (Value part : concat.getParts()) {
      int64_t size = cast<BucketType>(part.getType()).getNumMembers();
      if (first == members.front() && isAdjacent(members) &&
          size == static_cast<int64_t>(members.size()) && size > 0)
        return part;
      first += size;
    }
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

// ddp.all_reduce

void AllReduceOp::build(OpBuilder &builder, OperationState &state, Value input,
                        StringRef group, Reduction reduction) {
  MLIRContext *context = builder.getContext();
  build(builder, state, ReductionAttr::get(context, reduction), input,
        FlatSymbolRefAttr::get(context, group), /*wire=*/TypeAttr(),
        /*bucketName=*/StringAttr());
}

void AllReduceOp::build(OpBuilder &builder, OperationState &state, Value input,
                        ProcessGroupOp group, Reduction reduction) {
  build(builder, state, input, group.getSymName(), reduction);
}

LogicalResult AllReduceOp::inferReturnTypes(MLIRContext *,
                                            std::optional<Location>,
                                            ValueRange operands, DictionaryAttr,
                                            OpaqueProperties, RegionRange,
                                            SmallVectorImpl<Type> &types) {
  Type input = operands.front().getType();
  if (!isa<MemRefType>(input))
    types.push_back(input);
  return success();
}

LogicalResult AllReduceOp::verify() {
  if (failed(verifyWire(*this)) || // C3, C5
      failed(verifyNames(*this, getGradientsAttr(),
                         getInput().getType()))) // C4
    return failure();
  Type input = getInput().getType();
  if (isa<MemRefType>(input)) { // C1
    if (!getDestination() || getResult())
      return emitOpError()
             << "expected an 'into' operand and no result on memrefs";
    if (haveSameElements(input, getDestination().getType()))
      return success();
    return emitOpError() << "expected 'into' to have the operand's type, but "
                         << "got " << getDestination().getType();
  }
  if (!getResult() || getResult().getType() != input) // C1
    return emitOpError() << "expected a result of the operand's type";
  if (getDestination()) // C1
    return emitOpError() << "expected 'into' with a memref only, but got "
                         << input;
  return success();
}

LogicalResult AllReduceOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyReductionSymbols(*this, symbols); // C2
}

void AllReduceOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  effects.emplace_back(MemoryEffects::Write::get(), CollectiveResource::get());
  if (!getDestination())
    return;
  effects.emplace_back(MemoryEffects::Read::get(), &getInputMutable(),
                       SideEffects::DefaultResource::get());
  for (OpOperand &destination : getStepOrDestinationMutable())
    effects.emplace_back(MemoryEffects::Write::get(), &destination,
                         SideEffects::DefaultResource::get());
}

// ddp.average

LogicalResult AverageOp::verify() {
  auto period = static_cast<int64_t>(getPeriod());
  auto warmup = static_cast<int64_t>(getWarmup());
  if (period < 1) // C2
    return emitOpError() << "expected a period of at least 1, but got "
                         << period;
  if (warmup < 0) // C2
    return emitOpError() << "expected a warmup of at least 0, but got "
                         << warmup;
  return success();
}

LogicalResult AverageOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyGroup(*this, getGroupAttr(), symbols); // C1
}

//===----------------------------------------------------------------------===//
// ddp.view
//===----------------------------------------------------------------------===//

LogicalResult ViewOp::verify() {
  MemRefType source = getSource().getType(), result = getType();
  if (!source.getLayout().isIdentity() ||
      !result.getLayout().isIdentity()) // C1
    return emitOpError() << "expected memrefs with identity layout";
  if (source.getElementType() != result.getElementType() ||
      source.getMemorySpace() != result.getMemorySpace()) // C1
    return emitOpError() << "expected a slice of " << source.getElementType()
                         << " in the same memory space, but got " << result;
  if (static_cast<int64_t>(getOffset()) >
      source.getNumElements() - result.getNumElements()) // C2
    return emitOpError() << "expected a slice inside of "
                         << source.getNumElements() << " elements, but got "
                         << result.getNumElements() << " from " << getOffset();
  return success();
}

OpFoldResult ViewOp::fold(FoldAdaptor) {
  if (getSource().getType() == getType() && getOffset() == 0)
    return getSource();
  if (auto outer = getSource().getDefiningOp<ViewOp>()) {
    setOperand(outer.getSource());
    setOffset(getOffset() + outer.getOffset());
    return getResult();
  }
  return {};
}

Value ViewOp::getViewSource() { return getSource(); }

#define GET_OP_CLASSES
#include "ddphook/Dialect/DDP/IR/DDPOps.cpp.inc"
