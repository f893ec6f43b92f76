// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "BFloatMoves.h"

#include "llvm/IR/Constants.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"

using namespace llvm;

static bool isBFloat(const Value *value) {
  return value->getType()->getScalarType()->isBFloatTy();
}

static Type *getInteger(Type *type) {
  return type->getWithNewType(Type::getInt16Ty(type->getContext()));
}

/// Returns true if the instruction moves its bfloat operands, or memory, to its
/// bfloat result.
static bool isMove(const Value *value) {
  return isBFloat(value) &&
         isa<LoadInst, PHINode, SelectInst, FreezeInst, InsertElementInst,
             ExtractElementInst, ShuffleVectorInst>(value);
}

/// Returns the point before which an operand of this use can be computed.
static BasicBlock::iterator getInsertionPoint(const Use &use) {
  auto *user = cast<Instruction>(use.getUser());
  if (auto *phi = dyn_cast<PHINode>(user))
    return phi->getIncomingBlock(use)->getTerminator()->getIterator();
  return user->getIterator();
}

/// Makes an operand of a move or a store, which is none of these itself, an
/// integer.
static void convertOperand(Use &use) {
  Value *value = use.get();
  Type *type = getInteger(value->getType());
  // A phi has the same value for all edges from one block.
  if (auto *phi = dyn_cast<PHINode>(use.getUser()))
    if (Value *other =
            phi->getIncomingValueForBlock(phi->getIncomingBlock(use));
        other->getType() == type) {
      use.set(other);
      return;
    }
  if (auto *constant = dyn_cast<Constant>(value))
    use.set(ConstantExpr::getBitCast(constant, type));
  else if (auto *cast = dyn_cast<BitCastInst>(value);
           cast && cast->getSrcTy() == type)
    use.set(cast->getOperand(0));
  else
    use.set(CastInst::Create(Instruction::BitCast, value, type, "",
                             getInsertionPoint(use)));
}

static void moveBFloatAsInteger(Function &function) {
  SmallVector<Instruction *> moves;
  SmallVector<Use *> toInteger, toBFloat;
  for (Instruction &op : instructions(function)) {
    bool isMoving = isMove(&op);
    if (isMoving)
      moves.push_back(&op);
    for (Use &use : op.operands()) {
      if (!isBFloat(use.get()))
        continue;
      bool takesIntegers = isMoving || isa<StoreInst>(op);
      if (takesIntegers && !isMove(use.get()))
        toInteger.push_back(&use);
      else if (!takesIntegers && isMove(use.get()))
        toBFloat.push_back(&use);
    }
  }
  for (Use *use : toInteger)
    convertOperand(*use);
  for (Instruction *op : moves)
    op->mutateType(getInteger(op->getType()));
  for (Use *use : toBFloat) {
    Value *value = use->get();
    auto *cast = dyn_cast<BitCastInst>(use->getUser());
    if (cast && cast->getDestTy() == value->getType()) {
      cast->replaceAllUsesWith(value);
      continue;
    }
    Type *type = value->getType()->getWithNewType(
        Type::getBFloatTy(function.getContext()));
    use->set(CastInst::Create(Instruction::BitCast, value, type, "",
                              getInsertionPoint(*use)));
  }
}

/// Changes the type of bfloat parameters to integers, if the function is
/// internal and its only uses are direct calls. A parameter that lives across
/// blocks would otherwise be kept as f32, and rounded again.
static void passBFloatAsInteger(Function &function) {
  if (!function.hasLocalLinkage() || function.isVarArg() ||
      llvm::none_of(function.args(),
                    [](Argument &arg) { return isBFloat(&arg); }))
    return;
  SmallVector<CallInst *> calls;
  for (Use &use : function.uses()) {
    auto *call = dyn_cast<CallInst>(use.getUser());
    if (!call || !call->isCallee(&use))
      return;
    calls.push_back(call);
  }
  SmallVector<Type *> types;
  for (Argument &arg : function.args())
    types.push_back(isBFloat(&arg) ? getInteger(arg.getType()) : arg.getType());
  auto *type =
      FunctionType::get(function.getReturnType(), types, function.isVarArg());
  auto *replacement =
      Function::Create(type, function.getLinkage(), function.getAddressSpace(),
                       "", function.getParent());
  replacement->takeName(&function);
  replacement->copyAttributesFrom(&function);
  replacement->copyMetadata(&function, 0);
  function.clearMetadata();
  replacement->splice(replacement->begin(), &function);
  BasicBlock::iterator entry = replacement->begin()->getFirstInsertionPt();
  for (auto [from, to] :
       llvm::zip_equal(function.args(), replacement->args())) {
    Value *value = &to;
    if (isBFloat(&from))
      value = CastInst::Create(Instruction::BitCast, &to, from.getType(), "",
                               entry);
    from.replaceAllUsesWith(value);
  }
  for (CallInst *call : calls) {
    SmallVector<Value *> operands(call->args());
    for (auto [operand, expected] : llvm::zip_equal(operands, types))
      if (operand->getType() != expected)
        operand = CastInst::Create(Instruction::BitCast, operand, expected, "",
                                   call->getIterator());
    auto *converted =
        CallInst::Create(type, replacement, operands, "", call->getIterator());
    converted->setAttributes(call->getAttributes());
    converted->setCallingConv(call->getCallingConv());
    converted->setTailCallKind(call->getTailCallKind());
    converted->copyMetadata(*call);
    call->replaceAllUsesWith(converted);
    call->eraseFromParent();
  }
  function.eraseFromParent();
}

void mlir::ddp::moveBFloatAsInteger(Module &module) {
  for (Function &function : llvm::make_early_inc_range(module))
    passBFloatAsInteger(function);
  for (Function &function : module)
    ::moveBFloatAsInteger(function);
}
