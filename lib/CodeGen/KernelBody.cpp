//===- KernelBody.cpp - what a thread of a kernel does --------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One thread computes one element of the results with all of its reduction. In
// large contractions a thread computes a tile of elements instead, which share
// the loaded operands; consecutive threads of a warp write consecutive
// elements.
//
//===----------------------------------------------------------------------===//

#include "KernelBody.h"

#include "Contraction.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <numeric>

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// Threads of a block.
constexpr int64_t kThreads = 256;
/// Threads of a block of contractions, by columns and rows: a warp per row.
constexpr int64_t kColumnThreads = 32, kRowThreads = 8;
/// Elements of a contraction above which a thread gets 2x2 and 4x4 of them:
/// less would leave most of a GPU without work.
constexpr int64_t kElementsForTiles[] = {int64_t(1) << 16, int64_t(1) << 20};
/// The device's limit for y and z.
constexpr int64_t kMaxGrid = 65535;

/// The indices with which an operand is accessed, given the loops' indices.
SmallVector<Value> getIndices(ImplicitLocOpBuilder &b, AffineMap map,
                              ArrayRef<Value> dims) {
  SmallVector<Value> indices;
  for (AffineExpr expr : map.getResults()) {
    if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
      indices.push_back(dims[dim.getPosition()]);
      continue;
    }
    indices.push_back(affine::AffineApplyOp::create(
        b, AffineMap::get(map.getNumDims(), 0, expr), dims));
  }
  return indices;
}

int64_t countBlocks(int64_t elements, int64_t size) {
  return (elements + size - 1) / size;
}

Value index(ImplicitLocOpBuilder &b, int64_t value) {
  return arith::ConstantIndexOp::create(b, value);
}

/// Position of the thread along one dimension of the grid, whose blocks are
/// `blockSize` apart.
Value getThread(ImplicitLocOpBuilder &b, gpu::Dimension dimension,
                int64_t blockSize) {
  Value block = gpu::BlockIdOp::create(b, dimension);
  Value thread = gpu::ThreadIdOp::create(b, dimension);
  Value first = arith::MulIOp::create(b, block, index(b, blockSize));
  return arith::AddIOp::create(b, first, thread);
}

/// Places in a box of these extents, the last one first; `number` may be
/// anything below their product.
SmallVector<Value> delinearize(ImplicitLocOpBuilder &b, Value number,
                               ArrayRef<int64_t> extents) {
  SmallVector<Value> place(extents.size());
  for (int64_t i = extents.size() - 1; i > 0; --i) {
    Value extent = index(b, extents[i]);
    place[i] = arith::RemUIOp::create(b, number, extent);
    number = arith::DivUIOp::create(b, number, extent);
  }
  if (!place.empty())
    place[0] = number;
  return place;
}

/// One thread, one element of every result.
class ElementEmitter {
public:
  explicit ElementEmitter(linalg::LinalgOp op)
      : op(op), b(op.getLoc(), op), extents(op.getStaticLoopRanges()),
        dims(extents.size()) {}

  LaunchShape emit() {
    // Neighbouring threads write neighbouring elements.
    AffineMap out = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
    SmallVector<int64_t> box;
    for (unsigned i = 0; i < out.getNumResults(); ++i)
      box.push_back(extents[out.getDimPosition(i)]);
    int64_t elements = std::accumulate(box.begin(), box.end(), int64_t(1),
                                       std::multiplies<int64_t>());
    Value number = getThread(b, gpu::Dimension::x, kThreads);
    if (elements % kThreads != 0) {
      Value isInside = arith::CmpIOp::create(b, arith::CmpIPredicate::ult,
                                             number, index(b, elements));
      b.setInsertionPointToStart(
          scf::IfOp::create(b, isInside, /*withElseRegion=*/false).thenBlock());
    }
    for (auto [i, place] : llvm::enumerate(delinearize(b, number, box)))
      dims[out.getDimPosition(i)] = place;
    emitElement();
    op.erase();
    return {{countBlocks(elements, kThreads), 1, 1}, {kThreads, 1, 1}};
  }

private:
  void emitElement() {
    for (auto [loop, iterator] : llvm::enumerate(op.getIteratorTypesArray()))
      if (iterator != utils::IteratorType::parallel)
        reductionLoops.push_back(loop);
    SmallVector<Value> results;
    for (OpOperand &init : op.getDpsInitsMutable()) {
      bool isRead =
          !reductionLoops.empty() || op.payloadUsesValueFromOperand(&init);
      results.push_back(isRead ? load(init) : Value());
    }
    results = emitReduction(reductionLoops, results);
    for (auto [init, result] :
         llvm::zip_equal(op.getDpsInitsMutable(), results))
      memref::StoreOp::create(
          b, result, init.get(),
          getIndices(b, op.getMatchingIndexingMap(&init), dims));
  }

  Value load(OpOperand &operand) {
    if (!isa<MemRefType>(operand.get().getType()))
      return operand.get();
    return memref::LoadOp::create(
        b, operand.get(),
        getIndices(b, op.getMatchingIndexingMap(&operand), dims));
  }

  SmallVector<Value> emitReduction(ArrayRef<unsigned> loops,
                                   SmallVector<Value> results) {
    if (loops.empty())
      return emitPayload(results);
    auto loop = scf::ForOp::create(
        b, index(b, 0), index(b, extents[loops.front()]), index(b, 1), results);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    dims[loops.front()] = loop.getInductionVar();
    results =
        emitReduction(loops.drop_front(),
                      llvm::to_vector_of<Value>(loop.getRegionIterArgs()));
    scf::YieldOp::create(b, results);
    return llvm::to_vector_of<Value>(loop.getResults());
  }

  SmallVector<Value> emitPayload(ArrayRef<Value> results) {
    IRMapping mapping;
    for (OpOperand *input : op.getDpsInputOperands())
      if (op.payloadUsesValueFromOperand(input))
        mapping.map(op.getMatchingBlockArgument(input), load(*input));
    for (auto [init, result] :
         llvm::zip_equal(op.getDpsInitsMutable(), results))
      if (result)
        mapping.map(op.getMatchingBlockArgument(&init), result);
    for (Operation &inner : op.getBlock()->without_terminator()) {
      if (auto position = dyn_cast<linalg::IndexOp>(inner)) {
        mapping.map(position.getResult(), dims[position.getDim()]);
        continue;
      }
      b.clone(inner, mapping);
    }
    SmallVector<Value> yielded;
    for (Value value : op.getBlock()->getTerminator()->getOperands())
      yielded.push_back(mapping.lookupOrDefault(value));
    return yielded;
  }

  linalg::LinalgOp op;
  ImplicitLocOpBuilder b;
  SmallVector<int64_t> extents;
  /// Current value of every loop's index.
  SmallVector<Value> dims;
  SmallVector<unsigned> reductionLoops;
};

/// One thread, a tile of rows and columns, both as far apart as the block has
/// threads: what a warp reads and writes at a time is contiguous.
class TileEmitter {
public:
  TileEmitter(Contraction &contraction, int64_t tile)
      : c(contraction), b(c.op.getLoc(), c.op), tile(tile),
        dims(c.extents.size()) {}

  LaunchShape emit();

private:
  /// Indices of one column or row of the tile; beyond the edge, that of the
  /// last one, which may be read but not written.
  void place(unsigned loop, Value first, int64_t distance,
             SmallVector<Value> &indices, SmallVector<Value> &isInside);
  SmallVector<Value> emitReduction(ArrayRef<unsigned> loops,
                                   SmallVector<Value> sums);
  Value load(const ContractionOperand &operand) {
    // Loops that the operand does not depend on may have no index yet.
    SmallVector<Value> values(dims);
    for (auto [loop, value] : llvm::enumerate(values))
      if (!value)
        value = index(b, 0);
    return memref::LoadOp::create(b, operand.memref,
                                  getIndices(b, operand.map, values));
  }

  Contraction &c;
  ImplicitLocOpBuilder b;
  int64_t tile;
  SmallVector<Value> dims, rows, columns, rowInside, columnInside;
};
} // namespace

void TileEmitter::place(unsigned loop, Value first, int64_t distance,
                        SmallVector<Value> &indices,
                        SmallVector<Value> &isInside) {
  int64_t extent = c.extents[loop];
  bool isCovered = extent % (distance * tile) == 0;
  Value last = index(b, extent - 1);
  for (int64_t i = 0; i < tile; ++i) {
    Value position = arith::AddIOp::create(b, first, index(b, i * distance));
    isInside.push_back(isCovered
                           ? Value()
                           : arith::CmpIOp::create(b, arith::CmpIPredicate::ule,
                                                   position, last));
    indices.push_back(isCovered ? position
                                : arith::MinUIOp::create(b, position, last));
  }
}

LaunchShape TileEmitter::emit() {
  int64_t width = kColumnThreads * tile, height = kRowThreads * tile;
  SmallVector<int64_t> outer;
  for (unsigned loop : c.outerLoops)
    outer.push_back(c.extents[loop]);
  LaunchShape shape = {{countBlocks(c.extents[c.columnLoop], width),
                        countBlocks(c.extents[*c.rowLoop], height),
                        std::accumulate(outer.begin(), outer.end(), int64_t(1),
                                        std::multiplies<int64_t>())},
                       {kColumnThreads, kRowThreads, 1}};

  Value batch = gpu::BlockIdOp::create(b, gpu::Dimension::z);
  for (auto [loop, value] :
       llvm::zip_equal(c.outerLoops, delinearize(b, batch, outer)))
    dims[loop] = value;
  place(c.columnLoop, getThread(b, gpu::Dimension::x, width), kColumnThreads,
        columns, columnInside);
  place(*c.rowLoop, getThread(b, gpu::Dimension::y, height), kRowThreads, rows,
        rowInside);

  SmallVector<Value> sums;
  for (Value row : rows)
    for (Value column : columns) {
      dims[*c.rowLoop] = row;
      dims[c.columnLoop] = column;
      sums.push_back(load(c.out));
    }
  sums = emitReduction(c.reductionLoops, std::move(sums));

  const Value *sum = sums.begin();
  for (auto [row, isRow] : llvm::zip_equal(rows, rowInside))
    for (auto [column, isColumn] : llvm::zip_equal(columns, columnInside)) {
      OpBuilder::InsertionGuard guard(b);
      Value isInside = isRow;
      if (isRow && isColumn)
        isInside = arith::AndIOp::create(b, isRow, isColumn);
      else if (isColumn)
        isInside = isColumn;
      if (isInside)
        b.setInsertionPointToStart(
            scf::IfOp::create(b, isInside, /*withElseRegion=*/false)
                .thenBlock());
      dims[*c.rowLoop] = row;
      dims[c.columnLoop] = column;
      for (unsigned loop : c.reductionLoops)
        dims[loop] = Value();
      SmallVector<Value> place;
      for (AffineExpr expr : c.out.map.getResults())
        place.push_back(dims[cast<AffineDimExpr>(expr).getPosition()]);
      memref::StoreOp::create(b, *sum++, c.out.memref, place);
    }
  c.op->erase();
  return shape;
}

SmallVector<Value> TileEmitter::emitReduction(ArrayRef<unsigned> loops,
                                              SmallVector<Value> sums) {
  if (!loops.empty()) {
    auto loop = scf::ForOp::create(
        b, index(b, 0), index(b, c.extents[loops.front()]), index(b, 1), sums);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    dims[loops.front()] = loop.getInductionVar();
    sums = emitReduction(loops.drop_front(),
                         llvm::to_vector_of<Value>(loop.getRegionIterArgs()));
    scf::YieldOp::create(b, sums);
    return llvm::to_vector_of<Value>(loop.getResults());
  }
  SmallVector<Value> left, right;
  dims[c.columnLoop] = columns.front();
  for (Value row : rows) {
    dims[*c.rowLoop] = row;
    left.push_back(load(c.lhs));
  }
  dims[*c.rowLoop] = rows.front();
  for (Value column : columns) {
    dims[c.columnLoop] = column;
    right.push_back(load(c.rhs));
  }
  Value *sum = sums.begin();
  for (Value l : left)
    for (Value r : right) {
      Value product = arith::MulFOp::create(b, l, r);
      *sum = arith::AddFOp::create(b, *sum, product);
      ++sum;
    }
  return sums;
}

LogicalResult mlir::ddp::checkKernel(linalg::LinalgOp op) {
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  if (llvm::any_of(extents, ShapedType::isDynamic))
    return op.emitOpError() << "cannot become a kernel: expected static shapes";
  if (op.getNumDpsInits() == 0)
    return op.emitOpError() << "cannot become a kernel: expected a result";
  unsigned parallel =
      llvm::count(op.getIteratorTypesArray(), utils::IteratorType::parallel);
  for (OpOperand &init : op.getDpsInitsMutable()) {
    AffineMap map = op.getMatchingIndexingMap(&init);
    bool isOneEach = map.isProjectedPermutation() &&
                     map.getNumResults() == parallel &&
                     map.getNumSymbols() == 0;
    for (auto [loop, iterator] : llvm::enumerate(op.getIteratorTypesArray()))
      isOneEach &= iterator == utils::IteratorType::parallel ||
                   !map.isFunctionOfDim(loop);
    if (!isOneEach)
      return op.emitOpError() << "cannot become a kernel: expected one element "
                                 "of each result for every iteration of the "
                                 "parallel loops, but got "
                              << AffineMapAttr::get(map);
  }
  return success();
}

LaunchShape mlir::ddp::emitKernelBody(linalg::LinalgOp op) {
  std::optional<Contraction> contraction = matchContraction(op);
  if (!contraction || !contraction->rowLoop)
    return ElementEmitter(op).emit();
  int64_t batch = 1;
  for (unsigned loop : contraction->outerLoops)
    batch *= contraction->extents[loop];
  int64_t rows = contraction->extents[*contraction->rowLoop];
  int64_t elements =
      batch * rows * contraction->extents[contraction->columnLoop];
  int64_t tile = 1;
  for (int64_t limit : kElementsForTiles)
    tile *= elements >= limit ? 2 : 1;
  bool isTiled = tile > 1 && batch <= kMaxGrid &&
                 countBlocks(rows, kRowThreads * tile) <= kMaxGrid;
  return isTiled ? TileEmitter(*contraction, tile).emit()
                 : ElementEmitter(op).emit();
}
