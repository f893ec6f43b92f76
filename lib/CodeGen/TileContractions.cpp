// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lowers out[.. m .. n] += lhs[.. m .. k] * rhs[.. n .. k] to
//
//   for the other parallel loops, for n by columns, for m by rows:
//     tile = out[rows x columns]                  // in vector registers
//     for k: tile[i, :] += broadcast(lhs[i, k]) * rhs[:, k]
//     out[rows x columns] = tile
//
// where `columns` are the vectors that fit and `rows` the rows that do. There
// is no blocking for the caches beyond the panel of `rhs` that is copied to the
// stack where rows reuse it: the matrices of a training step that runs on CPUs
// are small, and a step spends its time elsewhere when they are not.
//
// The arithmetic is that of the plain loops, element by element; see the
// description of the pass.

#include "Contraction.h"

#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <algorithm>

#define GEN_PASS_DEF_DDPTILECONTRACTIONSPASS
#include "ddphook/CodeGen/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// Size of the panel of the right operand; half of it stays in a 32 KiB cache.
constexpr int64_t kPanelBytes = 32 * 1024;
/// Copying a panel pays off from this number of rows that reuse it.
constexpr int64_t kMinRowsForPanel = 8;
/// A contiguous right operand is copied when the cache cannot hold it.
constexpr int64_t kMaxUncopiedBytes = 64 * 1024;
/// Vectors of columns in a tile.
constexpr int64_t kVectorsPerTile = 2;

/// The vectors of a tile, each with its offset and number of lanes.
struct Columns {
  SmallVector<std::pair<int64_t, int64_t>> vectors;
  int64_t width = 0;
};

/// Covers `width` columns with vectors of `lanes` lanes and, at the end,
/// smaller powers of two, so that no lane is wasted.
Columns getColumns(int64_t width, int64_t lanes) {
  Columns columns;
  for (; lanes > 0; lanes /= 2)
    while (width - columns.width >= lanes) {
      columns.vectors.emplace_back(columns.width, lanes);
      columns.width += lanes;
    }
  return columns;
}

class ContractionEmitter {
public:
  ContractionEmitter(Contraction &contraction, int64_t vectorBits,
                     int64_t registers, llvm::function_ref<Value()> getScratch)
      : c(contraction), b(c.op.getLoc(), c.op),
        lanes(std::max<int64_t>(vectorBits / c.elementType.getWidth(), 1)),
        registers(registers), getScratch(getScratch),
        dims(contraction.extents.size()) {}

  void emit() {
    emitOuterLoops(c.outerLoops);
    c.op->erase();
  }

private:
  using Body = llvm::function_ref<void(Value)>;

  Value index(int64_t value) {
    return arith::ConstantIndexOp::create(b, value);
  }
  Value add(Value value, int64_t offset) {
    return offset == 0 ? value : arith::AddIOp::create(b, value, index(offset));
  }
  /// for (i = 0; i < extent; i += step), without a loop for one iteration.
  void forEach(int64_t extent, int64_t step, Body body) {
    if (extent <= step)
      return body(index(0));
    auto loop = scf::ForOp::create(b, index(0), index(extent), index(step));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    body(loop.getInductionVar());
  }

  SmallVector<Value> getIndices(const ContractionOperand &operand) {
    SmallVector<Value> indices;
    for (AffineExpr expr : operand.map.getResults()) {
      if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
        indices.push_back(dims[dim.getPosition()]);
        continue;
      }
      AffineMap map = AffineMap::get(dims.size(), 0, expr);
      Value zero = index(0);
      // The expression does not use loops that have not been entered yet.
      SmallVector<Value> values(dims);
      std::replace(values.begin(), values.end(), Value(), zero);
      indices.push_back(affine::AffineApplyOp::create(b, map, values));
    }
    return indices;
  }

  int64_t getRows() const { return c.rowLoop ? c.extents[*c.rowLoop] : 1; }
  bool usesPanel() const {
    // With several reduction loops (a convolution), a panel would have to
    // account for the overlap of their indices.
    if (c.reductionLoops.size() != 1 || getRows() < kMinRowsForPanel)
      return false;
    if (!c.rhsIsContiguous)
      return true;
    auto rhs = cast<MemRefType>(c.rhs.memref.getType());
    return rhs.hasStaticShape() &&
           rhs.getNumElements() * elementBytes() > kMaxUncopiedBytes;
  }
  int64_t elementBytes() const { return c.elementType.getWidth() / 8; }

  void emitOuterLoops(ArrayRef<unsigned> loops);
  void emitColumns(Value column, const Columns &columns);
  void emitPanel(Value column, const Columns &columns, Value first,
                 int64_t depth);
  void emitRows(Value column, const Columns &columns);
  void emitTile(Value row, int64_t rows, Value column, const Columns &columns);
  SmallVector<Value> emitReduction(ArrayRef<unsigned> loops,
                                   SmallVector<Value> tile, Value row,
                                   int64_t rows, Value column,
                                   const Columns &columns);
  Value loadRhs(Value column, std::pair<int64_t, int64_t> vector);
  /// Sets the tile's position for the following indices.
  void setPlace(Value row, int64_t rowOffset, Value column,
                int64_t columnOffset) {
    if (c.rowLoop)
      dims[*c.rowLoop] = add(row, rowOffset);
    dims[c.columnLoop] = add(column, columnOffset);
  }

  Contraction &c;
  ImplicitLocOpBuilder b;
  int64_t lanes, registers;
  llvm::function_ref<Value()> getScratch;
  /// Current value of every loop's index.
  SmallVector<Value> dims;
  /// The panel of depth x width elements, if one is in use, and the first
  /// reduction index that it holds.
  Value panel, panelBegin;
  int64_t panelDepth = 0;
};
} // namespace

void ContractionEmitter::emitOuterLoops(ArrayRef<unsigned> loops) {
  if (!loops.empty())
    return forEach(c.extents[loops.front()], 1, [&](Value iv) {
      dims[loops.front()] = iv;
      emitOuterLoops(loops.drop_front());
    });
  int64_t extent = c.extents[c.columnLoop];
  Columns full = getColumns(std::min(extent, kVectorsPerTile * lanes), lanes);
  int64_t covered = extent / full.width * full.width;
  forEach(covered, full.width,
          [&](Value column) { emitColumns(column, full); });
  if (covered != extent)
    emitColumns(index(covered), getColumns(extent - covered, lanes));
}

void ContractionEmitter::emitColumns(Value column, const Columns &columns) {
  if (!usesPanel())
    return emitRows(column, columns);
  int64_t extent = c.extents[c.reductionLoops.front()];
  int64_t depth = std::min(
      extent,
      std::max<int64_t>(kPanelBytes / (columns.width * elementBytes()), 1));
  int64_t covered = extent / depth * depth;
  forEach(covered, depth, [&](Value first) {
    emitPanel(column, columns, first, depth);
    emitRows(column, columns);
  });
  if (covered != extent) {
    emitPanel(column, columns, index(covered), extent - covered);
    emitRows(column, columns);
  }
}

/// panel[k, j] = rhs[column + j, first + k]
void ContractionEmitter::emitPanel(Value column, const Columns &columns,
                                   Value first, int64_t depth) {
  panel = Value();
  Value target = memref::ViewOp::create(
      b, MemRefType::get({depth, columns.width}, c.elementType), getScratch(),
      index(0), ValueRange());
  unsigned loop = c.reductionLoops.front();
  forEach(depth, 1, [&](Value k) {
    dims[loop] = arith::AddIOp::create(b, first, k);
    for (std::pair<int64_t, int64_t> vector : columns.vectors)
      vector::StoreOp::create(b, loadRhs(column, vector), target,
                              ValueRange{k, index(vector.first)});
  });
  panel = target;
  panelBegin = first;
  panelDepth = depth;
}

void ContractionEmitter::emitRows(Value column, const Columns &columns) {
  int64_t extent = getRows();
  // The tile, the vectors of the right operand, a broadcast and a product.
  int64_t vectors = columns.vectors.size();
  int64_t maxRows = std::max<int64_t>((registers - 2 - vectors) / vectors, 1);
  int64_t tiles = llvm::divideCeil(extent, maxRows);
  int64_t rows = llvm::divideCeil(extent, tiles);
  int64_t covered = extent / rows * rows;
  forEach(covered, rows,
          [&](Value row) { emitTile(row, rows, column, columns); });
  if (covered != extent)
    emitTile(index(covered), extent - covered, column, columns);
}

void ContractionEmitter::emitTile(Value row, int64_t rows, Value column,
                                  const Columns &columns) {
  SmallVector<Value> tile;
  for (int64_t i = 0; i < rows; ++i)
    for (auto [offset, width] : columns.vectors) {
      setPlace(row, i, column, offset);
      tile.push_back(
          vector::LoadOp::create(b, VectorType::get(width, c.elementType),
                                 c.out.memref, getIndices(c.out)));
    }
  tile = emitReduction(c.reductionLoops, std::move(tile), row, rows, column,
                       columns);
  const Value *value = tile.begin();
  for (int64_t i = 0; i < rows; ++i)
    for (auto [offset, width] : columns.vectors) {
      setPlace(row, i, column, offset);
      vector::StoreOp::create(b, *value++, c.out.memref, getIndices(c.out));
    }
}

SmallVector<Value> ContractionEmitter::emitReduction(ArrayRef<unsigned> loops,
                                                     SmallVector<Value> tile,
                                                     Value row, int64_t rows,
                                                     Value column,
                                                     const Columns &columns) {
  if (!loops.empty()) {
    int64_t extent = panel ? panelDepth : c.extents[loops.front()];
    auto loop = scf::ForOp::create(b, index(0), index(extent), index(1), tile);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    dims[loops.front()] = loop.getInductionVar();
    tile.assign(loop.getRegionIterArgs().begin(),
                loop.getRegionIterArgs().end());
    tile = emitReduction(loops.drop_front(), std::move(tile), row, rows, column,
                         columns);
    scf::YieldOp::create(b, tile);
    return llvm::to_vector_of<Value>(loop.getResults());
  }

  SmallVector<Value> rhs;
  for (std::pair<int64_t, int64_t> vector : columns.vectors) {
    if (panel)
      rhs.push_back(vector::LoadOp::create(
          b, VectorType::get(vector.second, c.elementType), panel,
          ValueRange{dims[c.reductionLoops.front()], index(vector.first)}));
    else
      rhs.push_back(loadRhs(column, vector));
  }
  if (panel) {
    Value &k = dims[c.reductionLoops.front()];
    k = arith::AddIOp::create(b, panelBegin, k);
  }
  Value *accumulator = tile.begin();
  for (int64_t i = 0; i < rows; ++i) {
    setPlace(row, i, column, 0);
    Value lhs = memref::LoadOp::create(b, c.lhs.memref, getIndices(c.lhs));
    for (Value vector : rhs) {
      Value factor = vector::BroadcastOp::create(b, vector.getType(), lhs);
      Value product = arith::MulFOp::create(b, factor, vector);
      *accumulator = arith::AddFOp::create(b, *accumulator, product);
      ++accumulator;
    }
  }
  return tile;
}

Value ContractionEmitter::loadRhs(Value column,
                                  std::pair<int64_t, int64_t> vector) {
  auto [offset, width] = vector;
  auto type = VectorType::get(width, c.elementType);
  if (c.rhsIsContiguous) {
    dims[c.columnLoop] = add(column, offset);
    return vector::LoadOp::create(b, type, c.rhs.memref, getIndices(c.rhs));
  }
  SmallVector<Value> elements;
  for (int64_t lane = 0; lane < width; ++lane) {
    dims[c.columnLoop] = add(column, offset + lane);
    elements.push_back(
        memref::LoadOp::create(b, c.rhs.memref, getIndices(c.rhs)));
  }
  return vector::FromElementsOp::create(b, type, elements);
}

namespace {
struct TileContractionsPass
    : public ddp::impl::DDPTileContractionsPassBase<TileContractionsPass> {
  using DDPTileContractionsPassBase::DDPTileContractionsPassBase;

  void runOnOperation() override {
    if (vectorWidth < 64 || vectorRegisters < 8) {
      getOperation()->emitError()
          << "expected vector registers of at least 64 bits and at least 8 of "
             "them, but got "
          << vectorRegisters.getValue() << " of " << vectorWidth.getValue()
          << " bits";
      return signalPassFailure();
    }
    SmallVector<Contraction, 0> contractions;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (std::optional<Contraction> contraction = matchContraction(op))
        contractions.push_back(*contraction);
    });
    Value scratch;
    auto getScratch = [&]() -> Value {
      if (!scratch) {
        auto b = OpBuilder::atBlockBegin(&getOperation().getBody().front());
        scratch = memref::AllocaOp::create(
            b, getOperation().getLoc(),
            MemRefType::get({kPanelBytes}, b.getI8Type()),
            b.getI64IntegerAttr(64));
      }
      return scratch;
    };
    for (Contraction &contraction : contractions)
      ContractionEmitter(contraction, vectorWidth, vectorRegisters, getScratch)
          .emit();
  }
};
} // namespace
