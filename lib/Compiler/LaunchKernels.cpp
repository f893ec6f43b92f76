// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lowers the host side of kernels to calls of ddphook_rt_launch, and adds the
// kernels' names to the plan. The kernels are compiled already.

#include "ddphook/Compiler/EntryPoints.h"
#include "ddphook/Dialect/DDP/IR/RuntimeCalls.h"

#include "mlir/IR/ImplicitLocOpBuilder.h"

#define GEN_PASS_DEF_DDPLAUNCHKERNELSPASS
#include "ddphook/Compiler/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// Emits the launches of one function. All launches reuse arrays on its stack
/// for the values that calls point to: a call reads them before it returns.
class LaunchEmitter {
public:
  LaunchEmitter(func::FuncOp function, const llvm::StringMap<int32_t> &numbers)
      : b(function.getLoc(), function.getContext()), numbers(numbers) {
    SmallVector<gpu::LaunchFuncOp> ops;
    function.walk([&](gpu::LaunchFuncOp op) {
      ops.push_back(op);
      maxArguments = std::max<int64_t>(maxArguments, op.getNumKernelOperands());
    });
    if (ops.empty())
      return;
    b.setInsertionPointToStart(&function.getBody().front());
    Value slot = LLVM::AddressOfOp::create(b, ptr(), kHandleSymbol);
    handle = LLVM::LoadOp::create(b, ptr(), slot);
    sizes = createArray(b.getI64Type(), 6);
    values = createArray(b.getI64Type(), maxArguments);
    addresses = createArray(ptr(), maxArguments);
    for (gpu::LaunchFuncOp op : ops)
      emit(op);
  }

private:
  Type ptr() { return LLVM::LLVMPointerType::get(b.getContext()); }
  Value constant(Type type, int64_t value) {
    return LLVM::ConstantOp::create(b, type, b.getIntegerAttr(type, value));
  }
  Value createArray(Type element, int64_t count) {
    return LLVM::AllocaOp::create(b, ptr(), element,
                                  constant(b.getI64Type(), count), 8);
  }
  Value getSlot(Value array, Type element, int64_t position) {
    return LLVM::GEPOp::create(
        b, ptr(), element, array,
        ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(position)});
  }

  /// Returns the operand in the type of the kernel's parameter.
  Value getParameter(Value operand) {
    Type type = operand.getType();
    if (isa<MemRefType>(type))
      operand = memref::ExtractAlignedPointerAsIndexOp::create(b, operand);
    if (operand.getType().isIndex())
      return arith::IndexCastOp::create(b, b.getI64Type(), operand);
    if (type.isInteger(1))
      return LLVM::ZExtOp::create(b, b.getI8Type(), operand);
    return operand;
  }

  void emit(gpu::LaunchFuncOp op) {
    b.setLoc(op.getLoc());
    b.setInsertionPoint(op);
    gpu::KernelDim3 grid = op.getGridSizeOperandValues();
    gpu::KernelDim3 block = op.getBlockSizeOperandValues();
    Value all[] = {grid.x, grid.y, grid.z, block.x, block.y, block.z};
    for (auto [position, size] : llvm::enumerate(all))
      LLVM::StoreOp::create(b, getParameter(size),
                            getSlot(sizes, b.getI64Type(), position));
    for (auto [position, operand] : llvm::enumerate(op.getKernelOperands())) {
      Value slot = getSlot(values, b.getI64Type(), position);
      LLVM::StoreOp::create(b, getParameter(operand), slot);
      LLVM::StoreOp::create(b, slot, getSlot(addresses, ptr(), position));
    }
    RuntimeArgument<int64_t> sharedBytes = 0;
    if (Value size = op.getDynamicSharedMemorySize())
      sharedBytes = LLVM::ZExtOp::create(b, b.getI64Type(), size).getResult();
    Value blockSizes = getSlot(sizes, b.getI64Type(), 3);
    rt::launch.call(b, b.getLoc(), op->getParentOfType<ModuleOp>(), handle,
                    numbers.lookup(op.getKernelName().getValue()), sizes,
                    blockSizes, sharedBytes, addresses);
    op.erase();
  }

  ImplicitLocOpBuilder b;
  const llvm::StringMap<int32_t> &numbers;
  int64_t maxArguments = 1;
  Value handle, sizes, values, addresses;
};

struct LaunchKernelsPass
    : public ddp::impl::DDPLaunchKernelsPassBase<LaunchKernelsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto device = module.lookupSymbol<gpu::GPUModuleOp>(kDeviceModuleName);
    if (!device)
      return;
    llvm::StringMap<int32_t> numbers;
    SmallVector<StringAttr> names;
    for (auto function : device.getOps<FunctionOpInterface>())
      if (function.getName().starts_with(kKernelPrefix)) {
        numbers[function.getName()] = names.size();
        names.push_back(StringAttr::get(&getContext(), function.getName()));
      }
    PlanAttr plan = getPlan(module);
    if (!plan || !plan.usesDeviceMemory() || !plan.getKernels().empty()) {
      module.emitError() << "expected a plan without kernels, made by "
                            "ddp-pipeline with memory=device";
      return signalPassFailure();
    }
    module->setAttr(DDPDialect::kPlanAttrName,
                    plan.cloneWith(ArrayMemory::Device, names));

    if (failed(checkRuntimeNames(module)))
      return signalPassFailure();
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal())
        LaunchEmitter(function, numbers);
    device.erase();
    module->removeAttr(gpu::GPUDialect::getContainerModuleAttrName());
  }
};
} // namespace
