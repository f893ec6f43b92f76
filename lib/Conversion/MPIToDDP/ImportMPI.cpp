// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-import-mpi: converts all-reduces over MPI's world to ddp.all_reduce and
// removes MPI's setup and teardown.

#include "ddphook/Dialect/DDP/IR/DDP.h"
#include "ddphook/Dialect/DDP/IR/ElementTypes.h"
#include "ddphook/Dialect/DDP/IR/Remarks.h"

#include "mlir/Dialect/MPI/IR/MPI.h"

#define GEN_PASS_DEF_DDPIMPORTMPIPASS
#include "ddphook/Conversion/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns true if the status of `op` is used by checks only.
static bool isOnlyChecked(Operation *op) {
  return llvm::all_of(op->getUsers(), llvm::IsaPred<mpi::RetvalCheckOp>);
}

static std::string judgeBuffer(Value buffer) {
  auto type = dyn_cast<MemRefType>(buffer.getType());
  if (!type || !type.hasStaticShape())
    return "expected memrefs of static shape";
  if (type.getMemorySpace())
    return "expected memrefs without a memory space";
  if (!isDtype(type.getElementType()))
    return ("expected elements of " + getDtypeNames()).str();
  return "";
}

static std::string judge(mpi::AllReduceOp op) {
  if (op.getOp() != mpi::MPI_ReductionOpEnum::MPI_SUM)
    return "expected MPI_SUM, the only reduction that the runtime has";
  if (!op.getComm().getDefiningOp<mpi::CommWorldOp>())
    return "expected the communicator of 'mpi.comm_world'";
  for (Value buffer : {op.getSendbuf(), op.getRecvbuf()})
    if (std::string reason = judgeBuffer(buffer); !reason.empty())
      return reason;
  auto sent = cast<MemRefType>(op.getSendbuf().getType()),
       received = cast<MemRefType>(op.getRecvbuf().getType());
  if (sent.getShape() != received.getShape() ||
      sent.getElementType() != received.getElementType())
    return "expected two memrefs of one shape and element type";
  return "";
}

/// Returns why an mpi operation has no equivalent, or an empty text if it has.
static std::string findObstacle(Operation *op) {
  if (auto reduction = dyn_cast<mpi::AllReduceOp>(op))
    if (std::string reason = judge(reduction); !reason.empty())
      return reason;
  if (isa<mpi::CommRankOp, mpi::CommSizeOp>(op))
    return "expected a program that does not need the rank or the number of "
           "ranks, which compiled code does not know";
  if (isa<mpi::CommSplitOp>(op))
    return "expected reductions over 'mpi.comm_world' only";
  // These are checked together with the operations that use or define them.
  if (isa<mpi::CommWorldOp, mpi::RetvalCheckOp>(op))
    return "";
  if (!isa<mpi::AllReduceOp, mpi::InitOp, mpi::FinalizeOp>(op))
    return "expected all-reduces only, since ddp has neither messages between "
           "two ranks nor barriers";
  return isOnlyChecked(op) ? ""
                           : "expected its status to be used by "
                             "'mpi.retval_check' only";
}

/// Replaces the checks of a status by constants.
static void answerChecks(Operation *op) {
  for (Operation *user : llvm::make_early_inc_range(op->getUsers())) {
    auto check = cast<mpi::RetvalCheckOp>(user);
    bool isSuccess =
        check.getErrclass() == mpi::MPI_ErrorClassEnum::MPI_SUCCESS;
    OpBuilder builder(check);
    check.replaceAllUsesWith(
        arith::ConstantOp::create(builder, check.getLoc(),
                                  builder.getBoolAttr(isSuccess))
            .getResult());
    check.erase();
  }
}

namespace {
struct ImportMPIPass : public ddp::impl::DDPImportMPIPassBase<ImportMPIPass> {
  using DDPImportMPIPassBase::DDPImportMPIPassBase;

  void runOnOperation() override {
    bool ok = true;
    SmallVector<Operation *> imported;
    SmallVector<mpi::CommWorldOp> worlds;
    getOperation().walk([&](Operation *op) {
      if (!isa_and_nonnull<mpi::MPIDialect>(op->getDialect()))
        return;
      if (std::string reason = findObstacle(op); !reason.empty())
        ok &= succeeded(refuse(op, reason));
      else if (auto world = dyn_cast<mpi::CommWorldOp>(op))
        worlds.push_back(world);
      else if (!isa<mpi::RetvalCheckOp>(op))
        imported.push_back(op);
    });
    if (!ok)
      return signalPassFailure();
    group = {};
    for (Operation *op : imported) {
      if (auto reduction = dyn_cast<mpi::AllReduceOp>(op))
        import(reduction);
      answerChecks(op);
      op->erase();
    }
    for (mpi::CommWorldOp world : worlds)
      if (world->use_empty())
        world->erase();
  }

  /// Reports `op` or, with keep-others, leaves it to another pass.
  LogicalResult refuse(Operation *op, StringRef reason) const {
    if (!keepOthers)
      return op->emitOpError() << reason;
    remark::missed(op->getLoc(), remarkOf("Kept", "ddp-import-mpi"))
        << (op->getName().getStringRef() + ": " + reason).str();
    return success();
  }

  /// Returns the process group of all ranks, at the beginning of the module.
  ProcessGroupOp getGroup() {
    if (!group) {
      SymbolTable symbols(getOperation());
      OpBuilder builder(&getContext());
      group = ProcessGroupOp::create(builder, getOperation().getLoc(), "world");
      // Renames the group if the program has the symbol already.
      symbols.insert(group, getOperation().getBody()->begin());
    }
    return group;
  }

  void import(mpi::AllReduceOp op) {
    OpBuilder builder(op);
    auto reduced = AllReduceOp::create(
        builder, op.getLoc(), /*result=*/Type(),
        ReductionAttr::get(&getContext(), Reduction::Sum), op.getSendbuf(),
        FlatSymbolRefAttr::get(getGroup().getSymNameAttr()), /*wire=*/{},
        /*bucket_name=*/{}, op.getRecvbuf(), /*gradients=*/{});
    reduced->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    bool isExact = cast<MemRefType>(op.getRecvbuf().getType()).getRank() == 0;
    if (isExact)
      reduced.setHook(AllReduceHookAttr::get(&getContext()));
    remark::passed(op.getLoc(), remarkOf("Reduction", "ddp-import-mpi"))
        << reduced.getGroup() << remark::metric("exact", isExact);
  }

  ProcessGroupOp group;
};
} // namespace
