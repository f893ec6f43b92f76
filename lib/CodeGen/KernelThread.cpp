// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "KernelThread.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::ddp;

static constexpr auto kNoOverflow =
    arith::IntegerOverflowFlags::nsw | arith::IntegerOverflowFlags::nuw;

KernelBuilder::KernelBuilder(const KernelOps &ops)
    : ImplicitLocOpBuilder(ops.getFirst()->getLoc(), ops.getFirst()),
      numberType(ops.fits32Bits() ? Type(getI32Type()) : getIndexType()) {}

Value KernelBuilder::number(int64_t value) {
  return arith::ConstantOp::create(*this, getIntegerAttr(numberType, value));
}

Value KernelBuilder::add(Value a, Value b) {
  if (!a || !b)
    return a ? a : b;
  return arith::AddIOp::create(*this, a, b, kNoOverflow);
}

Value KernelBuilder::add(Value a, int64_t b) {
  if (b == 0)
    return a;
  Type type = a ? a.getType() : numberType;
  return add(a, arith::ConstantOp::create(*this, getIntegerAttr(type, b)));
}

Value KernelBuilder::mul(Value a, int64_t factor) {
  if (!a || factor == 0)
    return Value();
  if (factor == 1)
    return a;
  Value value =
      arith::ConstantOp::create(*this, getIntegerAttr(a.getType(), factor));
  return arith::MulIOp::create(*this, a, value, kNoOverflow);
}

Value KernelBuilder::isBelow(Value a, int64_t limit) {
  return arith::CmpIOp::create(*this, arith::CmpIPredicate::ult, a,
                               number(limit));
}

Value KernelBuilder::toIndex(Value a) {
  if (!a)
    return arith::ConstantIndexOp::create(*this, 0);
  return a.getType().isIndex()
             ? a
             : arith::IndexCastUIOp::create(*this, getIndexType(), a);
}

Value KernelBuilder::getPosition(gpu::Dimension dimension, bool isThread) {
  Value position = isThread
                       ? gpu::ThreadIdOp::create(*this, dimension).getResult()
                       : gpu::BlockIdOp::create(*this, dimension).getResult();
  return numberType.isIndex()
             ? position
             : arith::IndexCastUIOp::create(*this, numberType, position);
}

Value KernelBuilder::getThread(gpu::Dimension dimension, int64_t blockSize) {
  return add(mul(getPosition(dimension, /*isThread=*/false), blockSize),
             getPosition(dimension, /*isThread=*/true));
}

SmallVector<Value> KernelBuilder::delinearize(Value number,
                                              ArrayRef<int64_t> extents) {
  SmallVector<Value> place(extents.size());
  for (int64_t i = extents.size() - 1; i > 0; --i) {
    if (extents[i] == 1)
      continue;
    Value extent = this->number(extents[i]);
    place[i] = arith::RemUIOp::create(*this, number, extent);
    number = arith::DivUIOp::create(*this, number, extent);
  }
  if (!place.empty() && extents[0] != 1)
    place[0] = number;
  return place;
}

void KernelBuilder::enterIf(Value condition) {
  setInsertionPointToStart(
      scf::IfOp::create(*this, condition, /*withElseRegion=*/false)
          .thenBlock());
}

scf::ForOp KernelBuilder::enterLoop(int64_t extent, int64_t step,
                                    ValueRange values) {
  auto index = [&](int64_t value) {
    return arith::ConstantIndexOp::create(*this, value);
  };
  auto loop =
      scf::ForOp::create(*this, index(0), index(extent), index(step), values);
  setInsertionPointToStart(loop.getBody());
  return loop;
}

Value KernelBuilder::getFlat(Value array) {
  Value &result = flat[array];
  if (result)
    return result;
  OpBuilder::InsertionGuard guard(*this);
  // Insert it where it dominates all uses.
  if (Operation *definition = array.getDefiningOp())
    setInsertionPointAfter(definition);
  else
    setInsertionPointToStart(cast<BlockArgument>(array).getOwner());
  auto type = cast<MemRefType>(array.getType());
  SmallVector<int64_t> strides;
  int64_t offset, count = 1;
  (void)type.getStridesAndOffset(strides, offset);
  for (auto [stride, extent] : llvm::zip_equal(strides, type.getShape()))
    count += stride * (extent - 1);
  OpFoldResult begin = getIndexAttr(offset);
  if (ShapedType::isDynamic(offset))
    begin = memref::ExtractStridedMetadataOp::create(*this, array).getOffset();
  auto layout =
      StridedLayoutAttr::get(getContext(), offset, ArrayRef<int64_t>{1});
  auto flatType = offset == 0
                      ? MemRefType::get({count}, type.getElementType())
                      : MemRefType::get({count}, type.getElementType(), layout);
  return result = memref::ReinterpretCastOp::create(
             *this, flatType, array, begin,
             ArrayRef<OpFoldResult>{getIndexAttr(count)},
             ArrayRef<OpFoldResult>{getIndexAttr(1)});
}

Value KernelBuilder::getOffset(const Access &access,
                               ArrayRef<Value> coordinates) {
  // Separate the terms of the position from those of the enclosing loops.
  Value place, steps;
  for (auto [coordinate, stride] : llvm::zip(coordinates, access.strides)) {
    Value &part =
        coordinate && coordinate.getType() != numberType ? steps : place;
    part = add(part, mul(coordinate, stride));
  }
  return add(toIndex(add(place, access.start)), steps);
}

KernelBuilder::Element KernelBuilder::getElement(const Access &access,
                                                 ArrayRef<Value> coordinates) {
  if (access.isLinear)
    return {getFlat(access.operand), {getOffset(access, coordinates)}};
  SmallVector<Value> loops, indices;
  for (unsigned coordinate : access.coordinates)
    loops.push_back(toIndex(
        coordinate < coordinates.size() ? coordinates[coordinate] : Value()));
  for (AffineExpr expr : access.map.getResults())
    indices.push_back(affine::AffineApplyOp::create(
        *this, AffineMap::get(access.map.getNumDims(), 0, expr), loops));
  return {access.operand, indices};
}

Value KernelBuilder::loadElement(const Access &access,
                                 ArrayRef<Value> coordinates) {
  auto [array, indices] = getElement(access, coordinates);
  return memref::LoadOp::create(*this, array, indices);
}

/// Returns the alignment for vector instructions with that many elements.
static llvm::Align getAlignment(const Access &access, int64_t lanes) {
  return llvm::Align(std::min(lanes * access.getVectorBytes(), kVectorBytes));
}

SmallVector<Value> KernelBuilder::load(const Access &access,
                                       ArrayRef<Value> coordinates,
                                       unsigned along, int64_t lanes) {
  if (!access.isArray())
    return SmallVector<Value>(lanes, access.operand);
  if (lanes == 1 || (access.isLinear && access.strides[along] == 0))
    return SmallVector<Value>(lanes, loadElement(access, coordinates));
  SmallVector<Value> values;
  if (!hasVectors(access, along, lanes)) {
    SmallVector<Value> next(coordinates);
    for (int64_t i = 0; i < lanes; ++i) {
      values.push_back(loadElement(access, next));
      next[along] = add(coordinates[along], i + 1);
    }
    return values;
  }
  Value array = getFlat(access.operand);
  auto type = VectorType::get(
      {lanes}, cast<MemRefType>(array.getType()).getElementType());
  Value vector = vector::LoadOp::create(
      *this, type, array, getOffset(access, coordinates),
      /*nontemporal=*/false, getAlignment(access, lanes));
  for (int64_t i = 0; i < lanes; ++i)
    values.push_back(vector::ExtractOp::create(*this, vector, i));
  return values;
}

void KernelBuilder::store(const Access &access, ArrayRef<Value> coordinates,
                          ArrayRef<Value> values) {
  auto [array, indices] = getElement(access, coordinates);
  if (values.size() == 1) {
    memref::StoreOp::create(*this, values.front(), array, indices);
    return;
  }
  int64_t lanes = values.size();
  auto type = VectorType::get({lanes}, values.front().getType());
  Value vector = vector::FromElementsOp::create(*this, type, values);
  vector::StoreOp::create(*this, vector, array, indices, /*nontemporal=*/false,
                          getAlignment(access, lanes));
}

Value KernelBuilder::areAligned(ArrayRef<const Access *> accesses,
                                int64_t lanes) {
  auto index = [&](int64_t value) {
    return arith::ConstantIndexOp::create(*this, value);
  };
  Value bits;
  for (const Access *access : accesses) {
    Value array = getFlat(access->operand);
    Value address =
        memref::ExtractAlignedPointerAsIndexOp::create(*this, array);
    if (!cast<MemRefType>(array.getType()).getLayout().isIdentity()) {
      Value begin =
          memref::ExtractStridedMetadataOp::create(*this, array).getOffset();
      address = arith::AddIOp::create(
          *this, address,
          arith::MulIOp::create(*this, begin, index(access->getVectorBytes())));
    }
    address = arith::AndIOp::create(
        *this, address, index(getAlignment(*access, lanes).value() - 1));
    bits = bits ? arith::OrIOp::create(*this, bits, address) : address;
  }
  return arith::CmpIOp::create(*this, arith::CmpIPredicate::eq, bits, index(0));
}

void PlaceEmitter::run(const KernelOp &op) {
  unsigned innermost = place.empty() ? 0 : place.size() - 1;
  SmallVector<SmallVector<Value>> operands;
  for (const Access &access : op.accesses) {
    bool isNow = op.isWritten(access) || op.reductions.empty();
    operands.push_back(access.isRead && isNow
                           ? load(access, place, innermost, lanes)
                           : SmallVector<Value>(lanes));
  }
  SmallVector<SmallVector<Value>> results(op.getInits().size());
  for (int64_t lane = 0; lane < lanes; ++lane) {
    SmallVector<Value> values, coordinates(place);
    for (ArrayRef<Value> operand : operands)
      values.push_back(operand[lane]);
    if (lane)
      coordinates.back() = b.add(coordinates.back(), lane);
    values = op.reductions.empty() ? emitBody(op, coordinates, values)
                                   : reduce(op, values);
    for (auto [result, value] : llvm::zip_equal(results, values))
      result.push_back(value);
  }
  for (auto [init, result] : llvm::zip_equal(op.getInits(), results))
    set(init, result);
}

SmallVector<Value> PlaceEmitter::load(const Access &access,
                                      ArrayRef<Value> coordinates,
                                      unsigned along, int64_t count) {
  auto loaded = given.find(&access);
  if (loaded != given.end())
    return loaded->second;
  auto known = elements.find(access.operand);
  if (known == elements.end())
    return b.load(access, coordinates, along, count);
  // In a reduction's loop, this is the position's only element.
  if (lanes == 1)
    return SmallVector<Value>(count, known->second.values.front());
  return known->second.values;
}

void PlaceEmitter::set(const Access &access, SmallVector<Value> values) {
  elements[access.operand] = {&access, std::move(values)};
}

void PlaceEmitter::store() {
  for (auto &[array, element] : elements)
    b.store(*element.access, place, element.values);
}

/// Loads vectors along the innermost loop from arrays that have them, if they
/// are aligned. Elements are still added one by one, in the same order.
SmallVector<Value> PlaceEmitter::reduce(const KernelOp &op,
                                        SmallVector<Value> operands) {
  SmallVector<Value> sums =
      llvm::to_vector(ArrayRef(operands).take_back(op.getInits().size()));
  unsigned last = place.size() + op.reductions.size() - 1;
  int64_t step = kMaxLanes;
  SmallVector<const Access *> vectors;
  for (const Access &access : op.accesses)
    if (access.isArray() && access.isRead && access.isLinear &&
        access.strides[last] == 1 && access.getVectorBytes())
      step = std::min(step, kVectorBytes / access.getVectorBytes());
  for (const Access &access : op.accesses)
    if (access.isRead && hasVectors(access, last, step))
      vectors.push_back(&access);
  if (vectors.empty() || op.reductions.back() % step != 0)
    return emitLoops(op, place, sums, 1);

  Value isAligned = b.areAligned(vectors, step);
  auto choice = scf::IfOp::create(b, ValueRange(sums).getTypes(), isAligned,
                                  /*withElseRegion=*/true);
  for (Block *block : {choice.thenBlock(), choice.elseBlock()}) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(block);
    scf::YieldOp::create(
        b, emitLoops(op, place, sums, block == choice.thenBlock() ? step : 1));
  }
  return llvm::to_vector_of<Value>(choice.getResults());
}

SmallVector<Value> PlaceEmitter::emitLoops(const KernelOp &op,
                                           ArrayRef<Value> coordinates,
                                           SmallVector<Value> sums,
                                           int64_t step) {
  unsigned depth = coordinates.size() - place.size();
  bool isInnermost = depth + 1 == op.reductions.size();
  OpBuilder::InsertionGuard guard(b);
  auto loop = b.enterLoop(op.reductions[depth], isInnermost ? step : 1, sums);
  SmallVector<Value> inner(coordinates);
  inner.push_back(loop.getInductionVar());
  sums = llvm::to_vector_of<Value>(loop.getRegionIterArgs());
  if (!isInnermost) {
    sums = emitLoops(op, inner, sums, step);
  } else {
    SmallVector<SmallVector<Value>> inputs;
    for (const Access &access :
         ArrayRef(op.accesses).drop_back(op.getInits().size()))
      inputs.push_back(access.isRead
                           ? load(access, inner, coordinates.size(), step)
                           : SmallVector<Value>(step));
    for (int64_t i = 0; i < step; ++i) {
      SmallVector<Value> operands;
      for (ArrayRef<Value> input : inputs)
        operands.push_back(input[i]);
      operands.append(sums);
      inner.back() = b.add(loop.getInductionVar(), i);
      sums = emitBody(op, inner, operands);
    }
  }
  scf::YieldOp::create(b, sums);
  return llvm::to_vector_of<Value>(loop.getResults());
}

SmallVector<Value> PlaceEmitter::emitBody(const KernelOp &op,
                                          ArrayRef<Value> coordinates,
                                          ArrayRef<Value> operands) {
  linalg::LinalgOp linalgOp = op.op;
  IRMapping mapping;
  for (auto [argument, value] :
       llvm::zip_equal(linalgOp.getBlock()->getArguments(), operands))
    if (value)
      mapping.map(argument, value);
  for (Operation &inner : linalgOp.getBlock()->without_terminator()) {
    if (auto position = dyn_cast<linalg::IndexOp>(inner))
      mapping.map(position.getResult(),
                  b.toIndex(coordinates[op.coordinates[position.getDim()]]));
    else
      b.clone(inner, mapping);
  }
  SmallVector<Value> yielded;
  for (Value value : linalgOp.getBlock()->getTerminator()->getOperands())
    yielded.push_back(mapping.lookupOrDefault(value));
  return yielded;
}
