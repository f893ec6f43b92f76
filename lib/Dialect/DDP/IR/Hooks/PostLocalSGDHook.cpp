// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// #ddp.post_local_sgd: Lin, Stich, Patel and Jaggi, "Don't Use Large
// Mini-Batches, Use Local SGD" (ICLR 2020), as PyTorch's hook does it.

#include "HookState.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::ddp;

FailureOr<Value>
PostLocalSGDHookAttr::expand(OpBuilder &builder,
                             const BucketReduction &reduction,
                             TypedValue<BucketType> bucket) const {
  Location loc = reduction.loc;
  HookState states(builder, reduction);
  FlatSymbolRefAttr subgroup = getSubgroup();
  if (getPostLocalGradientAllreduce() && !subgroup) {
    subgroup = states.getLevel(Placement::IntraNode, "node");
    if (!subgroup)
      return emitError(loc)
             << "expected the name @" << reduction.group.getValue()
             << ".node to be free for a process group";
  }
  if (subgroup && !getModule(builder).lookupSymbol<ProcessGroupOp>(
                      subgroup.getAttr())) // C1
    return emitError(loc) << "expected subgroup " << subgroup
                          << " to be declared as a process group";

  FailureOr<Value> iteration = states.getIteration("post_local_sgd.iter");
  if (failed(iteration))
    return failure();
  Value start = arith::ConstantIntOp::create(
      builder, loc, getStartLocalSGDIter(), /*width=*/64);
  Value isGlobal = arith::CmpIOp::create(
      builder, loc, arith::CmpIPredicate::slt, *iteration, start);
  auto choice = scf::IfOp::create(builder, loc, TypeRange(bucket.getType()),
                                  isGlobal, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(choice.thenBlock());
  scf::YieldOp::create(builder, loc,
                       buildFinalAllReduce(builder, reduction, bucket));
  builder.setInsertionPointToStart(choice.elseBlock());
  Value local = bucket;
  if (getPostLocalGradientAllreduce()) {
    BucketReduction nearby = reduction;
    nearby.group = subgroup;
    local = buildFinalAllReduce(builder, nearby, bucket);
  }
  scf::YieldOp::create(builder, loc, local);
  return choice.getResult(0);
}

int64_t PostLocalSGDHookAttr::getWireBytes(BucketType bucket) const {
  return bucket.getNumBytes();
}

bool PostLocalSGDHookAttr::reducesEveryStep() const {
  return getPostLocalGradientAllreduce();
}
