// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Moves operations on device memory into kernels of a gpu.module, and launches
// them. Groups of operations that differ only in the values of their operands
// share a kernel. KernelGroups.cpp finds the groups, KernelBody.cpp emits the
// code of a thread; nothing here depends on a kind of GPU.

#include "KernelBody.h"

#include "ddphook/Compiler/EntryPoints.h"

#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

#define GEN_PASS_DEF_DDPOUTLINEGPUKERNELSPASS
#include "ddphook/CodeGen/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// Returns true if a kernel can contain `value` itself: constants, constant
/// arrays, and views of those.
bool isConstant(Value value) {
  Operation *definition = value.getDefiningOp();
  if (!definition)
    return false;
  if (isa<memref::GetGlobalOp>(definition) ||
      matchPattern(definition, m_Constant()))
    return true;
  return isa<ViewLikeOpInterface>(definition) &&
         llvm::all_of(definition->getOperands(), isConstant);
}

struct Kernel {
  gpu::GPUFuncOp function;
  LaunchShape shape;
};

class KernelMaker {
public:
  explicit KernelMaker(ModuleOp module)
      : module(module), b(module.getContext()) {}

  LogicalResult make(ArrayRef<linalg::LinalgOp> group);

private:
  /// How an operand is passed to the kernel: as one argument, or as two if it
  /// begins at a dynamic offset in a larger array.
  struct Argument {
    Value operand;
    SmallVector<Value, 2> passed;
  };
  LogicalResult addArgument(linalg::LinalgOp op, Value operand,
                            SmallVector<Argument> &arguments);
  Kernel getKernel(ArrayRef<linalg::LinalgOp> group,
                   ArrayRef<Argument> arguments, ArrayRef<Value> constants);
  void cloneConstant(Value value, IRMapping &mapping);
  gpu::GPUModuleOp getDeviceModule();

  ModuleOp module;
  OpBuilder b;
  gpu::GPUModuleOp deviceModule;
  /// The kernels, by their text before they got names and bodies.
  llvm::StringMap<Kernel> kernels;
};
} // namespace

/// Passes identity layouts as one address. Others are decomposed here and
/// rebuilt in the kernel, because kernels take bare addresses.
LogicalResult KernelMaker::addArgument(linalg::LinalgOp op, Value operand,
                                       SmallVector<Argument> &arguments) {
  auto type = dyn_cast<MemRefType>(operand.getType());
  if (!type && !operand.getType().isIntOrIndexOrFloat())
    return op.emitOpError() << "cannot become a kernel: expected arrays and "
                               "scalars, but got "
                            << operand.getType();
  if (!type || (type.hasStaticShape() && type.getLayout().isIdentity())) {
    arguments.push_back({operand, {operand}});
    return success();
  }
  SmallVector<int64_t> strides;
  int64_t offset;
  if (!type.hasStaticShape() ||
      failed(type.getStridesAndOffset(strides, offset)) ||
      llvm::any_of(strides, ShapedType::isDynamic))
    return op.emitOpError() << "cannot become a kernel: expected static shapes "
                               "and strides, but got "
                            << type;
  b.setInsertionPoint(op);
  auto metadata =
      memref::ExtractStridedMetadataOp::create(b, op.getLoc(), operand);
  Argument argument{operand, {metadata.getBaseBuffer()}};
  if (ShapedType::isDynamic(offset))
    argument.passed.push_back(metadata.getOffset());
  arguments.push_back(argument);
  return success();
}

gpu::GPUModuleOp KernelMaker::getDeviceModule() {
  if (!deviceModule) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(module.getBody());
    deviceModule =
        gpu::GPUModuleOp::create(b, module.getLoc(), kDeviceModuleName);
    module->setAttr(gpu::GPUDialect::getContainerModuleAttrName(),
                    b.getUnitAttr());
  }
  return deviceModule;
}

/// Clones a constant; constant arrays get a copy in the device's module.
void KernelMaker::cloneConstant(Value value, IRMapping &mapping) {
  if (mapping.contains(value))
    return;
  Operation *definition = value.getDefiningOp();
  for (Value operand : definition->getOperands())
    cloneConstant(operand, mapping);
  if (auto get = dyn_cast<memref::GetGlobalOp>(definition)) {
    gpu::GPUModuleOp device = getDeviceModule();
    if (!SymbolTable::lookupSymbolIn(device, get.getNameAttr())) {
      OpBuilder atStart = OpBuilder::atBlockBegin(device.getBody());
      atStart.clone(*SymbolTable::lookupSymbolIn(module, get.getNameAttr()));
    }
  }
  b.clone(*definition, mapping);
}

/// Returns a kernel around copies of the operations, new or existing.
Kernel KernelMaker::getKernel(ArrayRef<linalg::LinalgOp> group,
                              ArrayRef<Argument> arguments,
                              ArrayRef<Value> constants) {
  Location loc = group.front()->getLoc();
  SmallVector<Type> types;
  for (const Argument &argument : arguments)
    llvm::append_range(types, ValueRange(argument.passed).getTypes());
  b.clearInsertionPoint();
  OwningOpRef<gpu::GPUFuncOp> function =
      gpu::GPUFuncOp::create(b, loc, "kernel", b.getFunctionType(types, {}));
  (*function)->setAttr(gpu::GPUDialect::getKernelFuncAttrName(),
                       b.getUnitAttr());
  Block &body = function->getBody().front();
  b.setInsertionPointToStart(&body);
  IRMapping mapping;
  unsigned next = 0;
  for (const Argument &argument : arguments) {
    Value value = body.getArgument(next);
    auto type = dyn_cast<MemRefType>(argument.operand.getType());
    if (type && value.getType() != type) {
      SmallVector<int64_t> strides;
      int64_t offset;
      (void)type.getStridesAndOffset(strides, offset);
      OpFoldResult begin = b.getIndexAttr(offset);
      if (argument.passed.size() == 2)
        begin = body.getArgument(next + 1);
      value = memref::ReinterpretCastOp::create(
          b, loc, type, value, begin,
          getAsIndexOpFoldResult(b.getContext(), type.getShape()),
          getAsIndexOpFoldResult(b.getContext(), strides));
    }
    mapping.map(argument.operand, value);
    next += argument.passed.size();
  }
  for (Value constant : constants)
    cloneConstant(constant, mapping);
  SmallVector<linalg::LinalgOp> inner;
  for (linalg::LinalgOp op : group)
    inner.push_back(cast<linalg::LinalgOp>(b.clone(*op, mapping)));
  gpu::ReturnOp::create(b, loc);

  std::string text;
  llvm::raw_string_ostream os(text);
  (*function)->print(os, OpPrintingFlags().useLocalScope());
  auto [it, isNew] = kernels.try_emplace(text);
  Kernel &kernel = it->second;
  if (!isNew)
    return kernel;
  kernel.function = function.release();
  kernel.function.setName((kKernelPrefix + Twine(kernels.size() - 1)).str());
  getDeviceModule().getBody()->push_back(kernel.function);
  kernel.shape = emitKernelBody(inner);
  SmallVector<int32_t> block(kernel.shape.block.begin(),
                             kernel.shape.block.end());
  kernel.function.setKnownBlockSizeAttr(b.getDenseI32ArrayAttr(block));
  return kernel;
}

LogicalResult KernelMaker::make(ArrayRef<linalg::LinalgOp> group) {
  // At the last operation, all operands of the group are defined.
  linalg::LinalgOp last = group.back();
  Location loc = last.getLoc();
  llvm::SetVector<Value> captured;
  for (linalg::LinalgOp op : group) {
    captured.insert(op->operand_begin(), op->operand_end());
    getUsedValuesDefinedAbove(op->getRegions(), captured);
  }
  SmallVector<Argument> arguments;
  SmallVector<Value> constants;
  for (Value value : captured) {
    if (isConstant(value))
      constants.push_back(value);
    else if (failed(addArgument(last, value, arguments)))
      return failure();
  }
  Kernel kernel = getKernel(group, arguments, constants);
  b.setInsertionPoint(last);
  auto getSizes = [&](const std::array<int64_t, 3> &sizes) {
    auto get = [&](int64_t size) -> Value {
      return arith::ConstantIndexOp::create(b, loc, size);
    };
    return gpu::KernelDim3{get(sizes[0]), get(sizes[1]), get(sizes[2])};
  };
  SmallVector<Value> passed;
  for (const Argument &argument : arguments)
    llvm::append_range(passed, argument.passed);
  gpu::LaunchFuncOp::create(b, loc, kernel.function,
                            getSizes(kernel.shape.grid),
                            getSizes(kernel.shape.block),
                            /*dynamicSharedMemorySize=*/Value(), passed);
  for (linalg::LinalgOp op : group)
    op.erase();
  return success();
}

namespace {
struct OutlineGPUKernelsPass
    : public ddp::impl::DDPOutlineGPUKernelsPassBase<OutlineGPUKernelsPass> {
  void runOnOperation() override {
    if (!usesDeviceMemory(getOperation()))
      return;
    expandCopies();
    if (failed(prepare()))
      return signalPassFailure();
    llvm::StringSet<> called;
    getOperation().walk(
        [&](func::CallOp call) { called.insert(call.getCallee()); });
    KernelMaker maker(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      bool isEntry =
          function.isPublic() && !called.contains(function.getName());
      for (const KernelGroup &group : groupForKernels(function, isEntry))
        if (failed(maker.make(group)))
          signalPassFailure();
    }
  }

private:
  /// Checks all operations, and erases those without iterations.
  LogicalResult prepare() {
    LogicalResult result = success();
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      function.walk([&](linalg::LinalgOp op) {
        if (!op.hasPureBufferSemantics())
          return;
        if (failed(checkKernel(op)))
          result = failure();
        else if (llvm::is_contained(op.getStaticLoopRanges(), 0))
          op.erase();
      });
      absorbZeros(function);
    }
    return result;
  }

  /// Expands copies that the runtime does not do: strided, or of constants.
  void expandCopies() {
    IRRewriter rewriter(&getContext());
    getOperation().walk([&](memref::CopyOp copy) {
      if (!isa<MemRefType>(copy.getSource().getType()) ||
          !isa<MemRefType>(copy.getTarget().getType()))
        return;
      rewriter.setInsertionPoint(copy);
      linalg::makeMemRefCopyOp(rewriter, copy.getLoc(), copy.getSource(),
                               copy.getTarget());
      rewriter.eraseOp(copy);
    });
  }
};
} // namespace
