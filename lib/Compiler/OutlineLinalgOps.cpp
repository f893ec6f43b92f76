// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keeps the time of LLVM's passes linear in the size of a training step. Later
// passes, which see one function at a time, choose the loops of an operation.

#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

#define GEN_PASS_DEF_DDPOUTLINELINALGOPSPASS
#include "ddphook/Compiler/Passes.h"

using namespace mlir;

namespace {
class KernelOutliner {
public:
  explicit KernelOutliner(ModuleOp module)
      : symbols(module), builder(module.getContext()) {}

  void outline(linalg::LinalgOp op) {
    llvm::SetVector<Value> captured(op->operand_begin(), op->operand_end());
    getUsedValuesDefinedAbove(op->getRegions(), captured);
    SmallVector<Value> arguments;
    SmallVector<Operation *> constants;
    for (Value value : captured) {
      Operation *definition = value.getDefiningOp();
      if (definition && matchPattern(definition, m_Constant()))
        constants.push_back(definition);
      else
        arguments.push_back(value);
    }
    func::FuncOp kernel = getKernel(op, arguments, constants);
    builder.setInsertionPoint(op);
    for (auto [argument, type] :
         llvm::zip_equal(arguments, kernel.getArgumentTypes()))
      if (argument.getType() != type)
        argument = memref::CastOp::create(builder, op.getLoc(), type, argument);
    func::CallOp::create(builder, op.getLoc(), kernel, arguments);
    op->erase();
  }

private:
  /// Slices of a buffer differ only in their offsets and can use one kernel.
  static Type getArgumentType(Type type) {
    auto memref = dyn_cast<MemRefType>(type);
    auto layout =
        memref ? dyn_cast<StridedLayoutAttr>(memref.getLayout()) : nullptr;
    if (!layout)
      return type;
    auto anywhere = StridedLayoutAttr::get(
        type.getContext(), ShapedType::kDynamic, layout.getStrides());
    return MemRefType::Builder(memref).setLayout(anywhere);
  }

  /// Returns a function around a copy of `op`, new or existing.
  func::FuncOp getKernel(linalg::LinalgOp op, ArrayRef<Value> arguments,
                         ArrayRef<Operation *> constants) {
    SmallVector<Type> types;
    for (Value argument : arguments)
      types.push_back(getArgumentType(argument.getType()));
    auto type = builder.getFunctionType(types, {});
    OwningOpRef<func::FuncOp> kernel =
        func::FuncOp::create(op.getLoc(), "ddphook.kernel", type);
    kernel->setPrivate();
    // Inlining would undo the work of this pass.
    (*kernel)->setAttr("passthrough", builder.getStrArrayAttr({"noinline"}));
    (*kernel)->setAttr(
        "llvm.linkage",
        LLVM::LinkageAttr::get(builder.getContext(), LLVM::Linkage::Internal));
    Block *body = kernel->addEntryBlock();
    builder.setInsertionPointToStart(body);
    IRMapping mapping;
    mapping.map(arguments, body->getArguments());
    for (Operation *constant : constants)
      builder.clone(*constant, mapping);
    builder.clone(*op, mapping);
    func::ReturnOp::create(builder, op.getLoc());

    std::string text;
    llvm::raw_string_ostream os(text);
    (*kernel)->print(os, OpPrintingFlags().useLocalScope());
    func::FuncOp &known = kernels[text];
    if (!known) {
      known = kernel.release();
      known.setName(("ddphook.kernel." + Twine(kernels.size() - 1)).str());
      symbols.insert(known);
    }
    return known;
  }

  SymbolTable symbols;
  OpBuilder builder;
  /// The functions, by their text before they were named.
  llvm::StringMap<func::FuncOp> kernels;
};

struct OutlineLinalgOpsPass
    : public ddp::impl::DDPOutlineLinalgOpsPassBase<OutlineLinalgOpsPass> {
  using DDPOutlineLinalgOpsPassBase::DDPOutlineLinalgOpsPassBase;

  void runOnOperation() override {
    SmallVector<linalg::LinalgOp> outlined;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      SmallVector<linalg::LinalgOp> ops;
      function.walk([&](linalg::LinalgOp op) {
        if (op.hasPureBufferSemantics())
          ops.push_back(op);
      });
      if (ops.size() > maxOps)
        llvm::append_range(outlined, ops);
    }
    if (outlined.empty())
      return;
    KernelOutliner outliner(getOperation());
    for (linalg::LinalgOp op : outlined)
      outliner.outline(op);
  }
};
} // namespace
