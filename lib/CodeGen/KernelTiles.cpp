// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A thread computes a tile of rows and columns, which reuse loaded elements.
// There are two forms: with vectors, for aligned arrays, and element by
// element. In both, the columns of a warp are contiguous, and every sum is
// added in the order of the plain loop nest.

#include "KernelTiles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::ddp;

/// Threads of a block, by columns and rows: a warp per row.
static constexpr int64_t kColumnThreads = 32, kRowThreads = 8;
/// Sizes of contractions from which a thread computes 2x2 and 4x4 elements:
/// tiles of smaller ones would leave most of a GPU idle.
static constexpr int64_t kElementsForTiles[] = {int64_t(1) << 16, int64_t(1)
                                                                      << 20};
static int64_t countBatches(const Contraction &c) {
  int64_t batches = 1;
  for (unsigned loop : c.outerLoops)
    batches *= c.extents[loop];
  return batches;
}

/// Returns the rows and columns of a thread's tile; 1 for no tile.
static int64_t chooseTile(const Contraction &c) {
  if (!c.rowLoop)
    return 1;
  int64_t batches = countBatches(c), rows = c.extents[*c.rowLoop];
  int64_t elements = batches * rows * c.extents[c.columnLoop];
  int64_t tile = 1;
  for (int64_t limit : kElementsForTiles)
    tile *= elements >= limit ? 2 : 1;
  bool fits = batches <= kMaxGrid &&
              llvm::divideCeilSigned(rows, kRowThreads * tile) <= kMaxGrid;
  return fits ? tile : 1;
}

namespace {
/// The vectors that one form of the code reads and writes.
struct Form {
  /// Adjacent columns of a thread, which it writes as a vector; if 1, its
  /// columns are one block size apart.
  int64_t lanes = 1;
  /// Steps of the innermost reduction at a time.
  int64_t step = 1;
};

class TileEmitter {
public:
  TileEmitter(const KernelOps &kernel, const KernelOp &product,
              const Contraction &c, int64_t tile);

  LaunchShape emit();

private:
  Form chooseForm() const;
  Value isAligned(const Form &form);
  void emitForm(const Form &form);
  /// Appends `count` positions along a coordinate. Those past `last` are
  /// clamped to it; they may be read but not written.
  void place(unsigned coordinate, Value first, int64_t distance, int64_t count,
             int64_t last, SmallVector<Value> &values,
             SmallVector<Value> &isInside);
  SmallVector<Value> emitReduction(const Form &form,
                                   SmallVector<Value> coordinates,
                                   SmallVector<Value> sums);
  void emitProducts(const Form &form, SmallVector<Value> coordinates,
                    SmallVector<Value> &sums);
  void finish(PlaceEmitter &element, Value isRow, Value isColumn);

  const KernelOps &kernel;
  const KernelOp &product;
  KernelBuilder b;
  int64_t tile;
  ArrayRef<int64_t> box;
  unsigned column, row, innermost;
  /// The other coordinates, and the thread's position in them.
  SmallVector<unsigned> outer;
  SmallVector<Value> start;
  const Access *lhs, *rhs;
  SmallVector<Value> rows, columns;
};
} // namespace

TileEmitter::TileEmitter(const KernelOps &kernel, const KernelOp &product,
                         const Contraction &c, int64_t tile)
    : kernel(kernel), product(product), b(kernel), tile(tile), box(kernel.box),
      column(product.coordinates[c.columnLoop]),
      row(product.coordinates[*c.rowLoop]),
      innermost(box.size() + product.reductions.size() - 1), start(box.size()) {
  for (unsigned loop : c.outerLoops)
    outer.push_back(product.coordinates[loop]);
  bool isSwapped = product.accesses[0].map.isFunctionOfDim(c.columnLoop);
  lhs = &product.accesses[isSwapped ? 1 : 0];
  rhs = &product.accesses[isSwapped ? 0 : 1];
}

LaunchShape TileEmitter::emit() {
  SmallVector<int64_t> extents;
  for (unsigned coordinate : outer)
    extents.push_back(box[coordinate]);
  Value batch = b.getPosition(gpu::Dimension::z, /*isThread=*/false);
  for (auto [coordinate, value] :
       llvm::zip_equal(outer, b.delinearize(batch, extents)))
    start[coordinate] = value;

  Form form = chooseForm();
  if (form.lanes == 1 && form.step == 1) {
    emitForm(form);
  } else {
    auto choice =
        scf::IfOp::create(b, isAligned(form), /*withElseRegion=*/true);
    b.setInsertionPointToStart(choice.thenBlock());
    emitForm(form);
    b.setInsertionPointToStart(choice.elseBlock());
    emitForm(Form());
  }
  return {{llvm::divideCeilSigned(box[column], kColumnThreads * tile),
           llvm::divideCeilSigned(box[row], kRowThreads * tile),
           llvm::product_of(extents)},
          {kColumnThreads, kRowThreads, 1}};
}

Form TileEmitter::chooseForm() const {
  Form form;
  bool hasLanes = box[column] % tile == 0;
  for (const KernelOp &op : kernel.ops)
    hasLanes &= llvm::all_of(op.getInits(), [&](const Access &init) {
      return hasVectors(init, column, tile);
    });
  if (hasLanes)
    form.lanes = tile;
  int64_t step = 16 / std::max<int64_t>(lhs->getVectorBytes(), 4);
  bool hasSteps =
      hasVectors(*lhs, innermost, step) || hasVectors(*rhs, innermost, step);
  if (hasSteps && product.reductions.back() % step == 0)
    form.step = step;
  return form;
}

Value TileEmitter::isAligned(const Form &form) {
  SmallVector<const Access *> accesses;
  for (const KernelOp &op : kernel.ops)
    for (const Access &access : op.accesses)
      if (form.lanes > 1 && (access.isRead || op.isWritten(access)) &&
          hasVectors(access, column, form.lanes))
        accesses.push_back(&access);
  Value condition;
  if (!accesses.empty())
    condition = b.areAligned(accesses, form.lanes);
  accesses.clear();
  for (const Access *access : {lhs, rhs})
    if (form.step > 1 && hasVectors(*access, innermost, form.step))
      accesses.push_back(access);
  if (accesses.empty())
    return condition;
  Value alongSteps = b.areAligned(accesses, form.step);
  return condition ? arith::AndIOp::create(b, condition, alongSteps)
                   : alongSteps;
}

void TileEmitter::place(unsigned coordinate, Value first, int64_t distance,
                        int64_t count, int64_t last, SmallVector<Value> &values,
                        SmallVector<Value> &isInside) {
  int64_t threads = coordinate == column ? kColumnThreads : kRowThreads;
  bool isCovered = box[coordinate] % (threads * tile) == 0;
  Value end = b.number(last);
  values.clear();
  for (int64_t i = 0; i < count; ++i) {
    Value position = b.add(first, i * distance);
    isInside.push_back(isCovered
                           ? Value()
                           : arith::CmpIOp::create(b, arith::CmpIPredicate::ule,
                                                   position, end));
    values.push_back(isCovered ? position
                               : arith::MinUIOp::create(b, position, end));
  }
}

void TileEmitter::emitForm(const Form &form) {
  OpBuilder::InsertionGuard guard(b);
  SmallVector<Value> coordinates(start), isRow, isColumn;
  Value first =
      form.lanes > 1
          ? b.mul(b.getThread(gpu::Dimension::x, kColumnThreads), tile)
          : b.getThread(gpu::Dimension::x, kColumnThreads * tile);
  place(column, first, kColumnThreads, tile / form.lanes,
        box[column] - form.lanes, columns, isColumn);
  place(row, b.getThread(gpu::Dimension::y, kRowThreads * tile), kRowThreads,
        tile, box[row] - 1, rows, isRow);

  SmallVector<PlaceEmitter> places;
  SmallVector<Value> sums;
  const Access &out = product.getInits().front();
  for (Value rowValue : rows)
    for (Value columnValue : columns) {
      coordinates[row] = rowValue;
      coordinates[column] = columnValue;
      PlaceEmitter &element = places.emplace_back(b, coordinates, form.lanes);
      for (const KernelOp *op = kernel.ops.begin(); op != &product; ++op)
        element.run(*op);
      sums.append(element.load(out));
    }
  sums = emitReduction(form, coordinates, std::move(sums));
  PlaceEmitter *element = places.begin();
  ArrayRef<Value> left = sums;
  for (Value rowInside : isRow)
    for (Value columnInside : isColumn) {
      element->set(out, llvm::to_vector(left.take_front(form.lanes)));
      left = left.drop_front(form.lanes);
      finish(*element++, rowInside, columnInside);
    }
}

void TileEmitter::finish(PlaceEmitter &element, Value isRow, Value isColumn) {
  OpBuilder::InsertionGuard guard(b);
  if (isRow && isColumn)
    b.enterIf(arith::AndIOp::create(b, isRow, isColumn));
  else if (isRow || isColumn)
    b.enterIf(isRow ? isRow : isColumn);
  for (const KernelOp *op = &product + 1; op != kernel.ops.end(); ++op)
    element.run(*op);
  element.store();
}

SmallVector<Value> TileEmitter::emitReduction(const Form &form,
                                              SmallVector<Value> coordinates,
                                              SmallVector<Value> sums) {
  unsigned depth = coordinates.size() - box.size();
  bool isInnermost = coordinates.size() == innermost;
  OpBuilder::InsertionGuard guard(b);
  auto loop =
      b.enterLoop(product.reductions[depth], isInnermost ? form.step : 1, sums);
  coordinates.push_back(loop.getInductionVar());
  sums = llvm::to_vector_of<Value>(loop.getRegionIterArgs());
  if (isInnermost)
    emitProducts(form, coordinates, sums);
  else
    sums = emitReduction(form, std::move(coordinates), std::move(sums));
  scf::YieldOp::create(b, sums);
  return llvm::to_vector_of<Value>(loop.getResults());
}

void TileEmitter::emitProducts(const Form &form, SmallVector<Value> coordinates,
                               SmallVector<Value> &sums) {
  // By step, then by row and column.
  SmallVector<SmallVector<Value>> left(form.step), right(form.step);
  auto append = [&](SmallVector<SmallVector<Value>> &to, const Access &access) {
    for (auto [step, value] :
         llvm::enumerate(b.load(access, coordinates, innermost, form.step)))
      to[step].push_back(value);
  };
  for (Value value : rows) {
    coordinates[row] = value;
    append(left, *lhs);
  }
  bool alongColumns = form.lanes > 1 && hasVectors(*rhs, column, form.lanes);
  Value step = coordinates[innermost];
  for (Value value : columns) {
    coordinates[column] = value;
    for (int64_t i = 0; alongColumns && i < form.step; ++i) {
      coordinates[innermost] = b.add(step, i);
      right[i].append(b.load(*rhs, coordinates, column, form.lanes));
    }
    for (int64_t lane = 0; !alongColumns && lane < form.lanes; ++lane) {
      coordinates[column] = b.add(value, lane);
      append(right, *rhs);
    }
  }
  for (int64_t i = 0; i < form.step; ++i) {
    Value *sum = sums.begin();
    for (Value l : left[i])
      for (Value r : right[i]) {
        Value term = arith::MulFOp::create(b, l, r);
        *sum = arith::AddFOp::create(b, *sum, term);
        ++sum;
      }
  }
}

std::optional<LaunchShape>
mlir::ddp::emitTiles(const KernelOps &kernel, const KernelOp &product,
                     const Contraction &contraction) {
  int64_t tile = chooseTile(contraction);
  if (tile == 1)
    return std::nullopt;
  return TileEmitter(kernel, product, contraction, tile).emit();
}
