// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decides which elements a thread computes, each with all of its reduction: as
// many as fit into 16 bytes where arrays are contiguous. In large contractions,
// a thread computes a tile (KernelTiles.cpp); with transposed arrays, a square
// (KernelTransposes.cpp). Consecutive threads of a warp write consecutive
// elements or vectors.

#include "KernelBody.h"

#include "KernelTiles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::ddp;

/// Threads of a block.
static constexpr int64_t kThreads = 256;
/// Elements that a thread without vectors loads at a time; their addresses
/// occupy registers.
static constexpr int64_t kMaxPiece = 4;

namespace {
class ElementEmitter {
public:
  explicit ElementEmitter(KernelOps &kernel)
      : kernel(kernel), b(kernel), elements(kernel.countElements()) {}

  LaunchShape emit();

private:
  /// Emits one element, guarded by a bounds check.
  void emitElement(Value number);
  /// Emits several elements, one block size apart.
  void emitElements(Value number, int64_t count, bool isCovered);
  void emitVectors(int64_t lanes);
  /// Returns whether the thread's block is full and all vectors are aligned.
  Value hasVectorsOnly(int64_t lanes);

  KernelOps &kernel;
  KernelBuilder b;
  int64_t elements;
};
} // namespace

LaunchShape ElementEmitter::emit() {
  int64_t lanes = kernel.countLanes();
  // If all fit into one block, vectors would only idle its threads.
  if (elements < kThreads * lanes)
    lanes = 1;
  if (lanes > 1)
    emitVectors(lanes);
  else
    emitElement(b.getThread(gpu::Dimension::x, kThreads));
  return {{llvm::divideCeilSigned(elements, kThreads * lanes), 1, 1},
          {kThreads, 1, 1}};
}

void ElementEmitter::emitElement(Value number) {
  OpBuilder::InsertionGuard guard(b);
  if (elements % kThreads != 0)
    b.enterIf(b.isBelow(number, elements));
  PlaceEmitter place(b, b.delinearize(number, kernel.box));
  for (const KernelOp &op : kernel.ops)
    place.run(op);
  place.store();
}

/// Loads all elements before storing the first. Numbers past the last element
/// are clamped to it; it is then read again, but not written.
void ElementEmitter::emitElements(Value number, int64_t count, bool isCovered) {
  Value last = b.number(elements - 1);
  SmallVector<PlaceEmitter> places;
  SmallVector<Value> isInside;
  for (int64_t i = 0; i < count; ++i) {
    Value mine = b.add(number, i * kThreads);
    if (!isCovered) {
      isInside.push_back(b.isBelow(mine, elements));
      mine = arith::MinUIOp::create(b, mine, last);
    }
    places.emplace_back(b, b.delinearize(mine, kernel.box));
    for (const KernelOp &op : kernel.ops)
      places.back().run(op);
  }
  for (auto [i, place] : llvm::enumerate(places)) {
    OpBuilder::InsertionGuard guard(b);
    if (!isCovered)
      b.enterIf(isInside[i]);
    place.store();
  }
}

Value ElementEmitter::hasVectorsOnly(int64_t lanes) {
  SmallVector<const Access *> accesses;
  llvm::SmallDenseSet<Value> seen;
  for (const KernelOp &op : kernel.ops)
    for (const Access &access : op.accesses)
      if ((access.isRead || op.isWritten(access)) &&
          hasVectors(access, kernel.box.size() - 1, lanes) &&
          seen.insert(access.operand).second)
        accesses.push_back(&access);
  Value condition = b.areAligned(accesses, lanes);
  int64_t whole = elements / (kThreads * lanes);
  if (elements % (kThreads * lanes) == 0)
    return condition;
  return arith::AndIOp::create(
      b, condition,
      b.isBelow(b.getPosition(gpu::Dimension::x, /*isThread=*/false), whole));
}

/// All threads of a block take the same branch. In the one without vectors,
/// neighboring threads still access neighboring elements.
void ElementEmitter::emitVectors(int64_t lanes) {
  auto choice = scf::IfOp::create(b, hasVectorsOnly(lanes),
                                  /*withElseRegion=*/true);
  b.setInsertionPointToStart(choice.thenBlock());
  SmallVector<int64_t> vectors(kernel.box);
  // The last vector may be partial, but its block does not use vectors.
  vectors.back() = llvm::divideCeilSigned(vectors.back(), lanes);
  SmallVector<Value> first =
      b.delinearize(b.getThread(gpu::Dimension::x, kThreads), vectors);
  first.back() = first.back() ? b.mul(first.back(), lanes) : b.number(0);
  PlaceEmitter place(b, first, lanes);
  for (const KernelOp &op : kernel.ops)
    place.run(op);
  place.store();

  b.setInsertionPointToStart(choice.elseBlock());
  Value number = b.getThread(gpu::Dimension::x, kThreads * lanes);
  int64_t piece = std::min(lanes, kMaxPiece);
  for (int64_t done = 0; done < lanes; done += piece)
    emitElements(b.add(number, done * kThreads), piece,
                 elements % (kThreads * lanes) == 0);
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

LaunchShape mlir::ddp::emitKernelBody(ArrayRef<linalg::LinalgOp> ops) {
  KernelOps kernel(ops);
  std::optional<LaunchShape> shape;
  for (auto [number, op] : llvm::enumerate(ops))
    if (std::optional<Contraction> contraction = matchContraction(op))
      shape = emitTiles(kernel, kernel.ops[number], *contraction);
  if (!shape) {
    kernel.collapse();
    shape = emitTransposes(kernel);
  }
  if (!shape)
    shape = ElementEmitter(kernel).emit();
  for (linalg::LinalgOp op : ops)
    op.erase();
  return *shape;
}
