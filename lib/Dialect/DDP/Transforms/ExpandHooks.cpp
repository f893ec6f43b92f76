// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-expand-hooks: replaces every reduction of a bucket by the expansion of
// its hook.

#include "../Analysis/Dependences.h"
#include "../Analysis/ProgramWalk.h"
#include "Utils/Arrays.h"
#include "Utils/GradientNames.h"
#include "ddphook/Dialect/DDP/IR/BucketOrigin.h"
#include "ddphook/Dialect/DDP/IR/Remarks.h"

#include "mlir/Interfaces/ValueBoundsOpInterface.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"

#define GEN_PASS_DEF_DDPEXPANDHOOKSPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// True if an earlier expansion built `op`. An operation that carries
/// `#ddp.allreduce` from the start also counts, because it would expand to
/// itself; but a named bucket must have been recorded.
static bool isFinal(AllReduceOp op, const llvm::StringSet<> &recorded) {
  return isa_and_nonnull<AllReduceHookAttr>(
             op->getAttr(DDPDialect::kHookAttrName)) &&
         isa<BucketType>(op.getInput().getType()) &&
         (!op.getBucketName() || recorded.contains(*op.getBucketName()));
}

/// Returns the ratio of gradient bytes to bytes sent.
static std::string getRate(int64_t bytes, BucketType type) {
  if (bytes == 0)
    return "nothing is sent";
  return llvm::formatv("{0:f2}", static_cast<double>(type.getNumBytes()) /
                                     static_cast<double>(bytes));
}

/// Returns true if the hook is meant to send fewer bytes, as it does for a
/// large matrix.
static bool isMeantToCompress(HookAttrInterface hook) {
  MLIRContext *context = hook.getContext();
  auto large = BucketType::get(context, Float32Type::get(context),
                               DenseI64ArrayAttr::get(context, {1024, 1024}));
  return hook.getWireBytes(large) < large.getNumBytes();
}

/// Returns the size in bytes of `numElements` elements of a wire type.
static int64_t getWireBytes(Type wire, int64_t numElements) {
  if (auto encoding = dyn_cast<EncodedType>(wire))
    return encoding.getNumBytes(numElements);
  return numElements * wire.getIntOrFloatBitWidth() / 8;
}

/// Describes the ranks that reduce together, if these are not all ranks: states
/// that depend on a group's agreement mean nothing to another group.
static std::string getRanks(ProcessGroupOp group) {
  if (!group)
    return "";
  if (std::optional<Placement> placement = group.getPlacement())
    return (stringifyPlacement(*placement) + " ").str();
  if (!group.getRanks() || group.getRanks()->size() == 1)
    return "";
  std::string text = "in ";
  llvm::raw_string_ostream os(text);
  llvm::interleaveComma(group.getRanks()->getAsRange<DenseI64ArrayAttr>(), os,
                        [&](DenseI64ArrayAttr list) {
                          os << '[';
                          llvm::interleaveComma(list.asArrayRef(), os);
                          os << ']';
                        });
  os << ' ';
  return text;
}

namespace {
/// Records which gradients each state belongs to while hooks declare states.
class StateRoles {
public:
  explicit StateRoles(ModuleOp module) : symbols(module), module(module) {
    for (auto state : module.getOps<StateOp>())
      older.insert(state);
  }

  void addBucket(const BucketReduction &reduction, HookAttrInterface hook) {
    std::string method;
    llvm::raw_string_ostream(method)
        << stringifyReduction(reduction.kind) << ' '
        << getRanks(
               module.lookupSymbol<ProcessGroupOp>(reduction.group.getAttr()))
        << hook.getStateMethod();
    buckets[reduction.bucketName] = {reduction.gradients, method};
    for (StateOp state : *reduction.sharedStates) {
      auto [it, isNew] = shared.try_emplace(state);
      if (isNew && state.getGradients())
        llvm::append_range(it->second,
                           cast<ArrayAttr>((*state.getGradients())[0]));
      if (reduction.gradients)
        llvm::append_range(it->second, reduction.gradients);
    }
  }

  /// Writes the records to the states once all hooks are expanded.
  void assign() {
    Builder builder(module.getContext());
    for (auto &[state, gradients] : shared)
      if (!gradients.empty())
        StateOp(state).setGradientsAttr(
            builder.getArrayAttr({builder.getArrayAttr(gradients)}));
      else
        StateOp(state).removeRoleAttr();
    for (auto state : module.getOps<StateOp>()) {
      if (older.contains(state) || shared.contains(state))
        continue;
      // A bucket's own state is named BUCKET.ROLE. With buckets `x` and `x.y`,
      // `x.y.error` belongs to `x.y`.
      StringRef name = state.getSymName();
      for (size_t dot = name.rfind('.'); dot != StringRef::npos;
           dot = name.take_front(dot).rfind('.')) {
        auto it = buckets.find(builder.getStringAttr(name.take_front(dot)));
        if (it == buckets.end())
          continue;
        const Method &bucket = it->second;
        // Append what the hook recorded for this bucket alone.
        std::optional<StringRef> more = state.getMethod();
        state.setMethod(more ? bucket.text + ", " + more->str() : bucket.text);
        // Without a role from the hook the state belongs to the whole bucket.
        if (!state.getRole() && bucket.gradients && !bucket.gradients.empty()) {
          state.setRole(name.drop_front(dot + 1));
          state.setGradientsAttr(builder.getArrayAttr({bucket.gradients}));
        }
        break;
      }
    }
  }

  ModuleSymbols symbols;

private:
  struct Method {
    ArrayAttr gradients;
    std::string text;
  };
  ModuleOp module;
  llvm::DenseSet<Operation *> older;
  llvm::DenseMap<StringAttr, Method> buckets;
  llvm::MapVector<Operation *, SmallVector<Attribute>> shared;
};

struct ExpandHooksPass
    : public ddp::impl::DDPExpandHooksPassBase<ExpandHooksPass> {
  using DDPExpandHooksPassBase::DDPExpandHooksPassBase;

  LogicalResult initializeOptions(
      StringRef options,
      function_ref<LogicalResult(const Twine &)> errorHandler) override {
    auto isDeclared = [](StringRef name) {
      return name == "hook" || name == "wrapper" || name == "group-mb";
    };
    return initializeOptionsOf(*this, options, isDeclared, errorHandler);
  }

  void getDependentDialects(DialectRegistry &registry) const override {
    DDPExpandHooksPassBase::getDependentDialects(registry);
    addDependentDialects(registry, hook);
  }

  void runOnOperation() override {
    FailureOr<HookAttrInterface> defaultHook =
        parseHook(&getContext(), hook, wrapper,
                  [&] { return emitError(getOperation().getLoc()); });
    if (failed(defaultHook))
      return signalPassFailure();
    if (!(groupMb >= 0)) {
      emitError(getOperation().getLoc())
          << "expected group-mb to be at least 0, but got "
          << llvm::formatv("{0}", groupMb.getValue()).str();
      return signalPassFailure();
    }

    // Before memory becomes buckets, whose numbers depend on options.
    if (failed(nameGradients(getOperation())))
      return signalPassFailure();
    nextNumber = 0;
    recorded.clear();
    sent.clear();
    for (auto info : getOperation().getOps<BucketInfoOp>())
      recorded.insert(info.getBucketName());
    llvm::StringSet<> taken = recorded;
    SmallVector<AllReduceOp> reductions, onMemory;
    walkProgram(getOperation(), [&](AllReduceOp op) {
      taken.insert(op.getBucketName().value_or(""));
      if (isa<MemRefType>(op.getInput().getType()))
        onMemory.push_back(op);
      else if (!isFinal(op, recorded))
        reductions.push_back(op);
    });
    // Only the program's own tensors: those made below are used up at once.
    TensorsInMemory inMemory(getOperation());
    for (AllReduceOp op : onMemory)
      if (!isa<AllReduceHookAttr>(getEffectiveHook(op, *defaultHook)) ||
          ((isStrided(op) || mayOverlap(op)) && !op.getWire())) {
        FailureOr<AllReduceOp> lifted = liftToBucket(op, taken);
        if (failed(lifted))
          return signalPassFailure();
        reductions.push_back(*lifted);
      }
    StateRoles roles(getOperation());
    for (AllReduceOp op : reductions)
      if (failed(expand(op, *defaultHook, roles, inMemory)))
        return signalPassFailure();
    bool isOk = true;
    bool hasScatters = false;
    walkProgram(getOperation(), [&](ReduceScatterOp op) {
      HookAttrInterface hook = getEffectiveHook(op, *defaultHook);
      isOk &= succeeded(expandScatter(op, hook, roles));
      if (!isOk)
        return;
      hasScatters = true;
      Type type = getElementTypeOf(op.getInput().getType());
      int64_t numElements = getNumElementsOf(op.getInput().getType());
      auto &[ofGradients, onWire] = sent[hook];
      ofGradients += getWireBytes(type, numElements);
      onWire += getWireBytes(op.getWire().value_or(type), numElements);
    });
    if (!isOk)
      return signalPassFailure();
    roles.assign();
    if (!reductions.empty() || hasScatters)
      remarkRates(*defaultHook);
  }

  /// Emits a remark for each compressing hook that saves less than half of its
  /// gradients' bytes.
  void remarkRates(HookAttrInterface defaultHook) {
    sent.insert({defaultHook, {0, 0}});
    for (auto [hook, bytes] : sent) {
      auto [ofGradients, onWire] = bytes;
      if (2 * onWire <= ofGradients && ofGradients != 0)
        continue;
      if (!isMeantToCompress(cast<HookAttrInterface>(hook)))
        continue;
      remark::missed(getOperation().getLoc(),
                     remarkOf("Rate", "ddp-expand-hooks"))
          << (ofGradients == 0
                  ? "no reduction uses the hook, since all are exact or have "
                    "their own hooks"
                  : "the hook compresses its gradients less than 2x overall")
          << remark::metric("hook", hook)
          << remark::metric("gradient-bytes", ofGradients)
          << remark::metric("wire-bytes", onWire);
    }
  }

  /// Lets a hook prepare the operand of a reduce-scatter, and marks the
  /// operation as expanded.
  static LogicalResult expandScatter(ReduceScatterOp op, HookAttrInterface hook,
                                     StateRoles &roles) {
    if (!isa<AllReduceHookAttr>(hook) && failed(prepare(op, hook, roles)))
      return failure();
    op->setAttr(DDPDialect::kHookAttrName,
                AllReduceHookAttr::get(op.getContext()));
    op->removeAttr(DDPDialect::kNameAttrName);
    return success();
  }

  static LogicalResult prepare(ReduceScatterOp op, HookAttrInterface hook,
                               StateRoles &roles) {
    if (op.getWire())
      return op.emitOpError()
             << "expected no wire type, since hook " << hook << " chooses it";
    OpBuilder builder(op);
    Value input = op.getInput(), bucket = input;
    PackOp pack;
    if (!isa<BucketType>(input.getType())) {
      auto type = BucketType::getFromTensors(
          op.getContext(), getElementTypeOf(input.getType()), input.getType());
      pack = PackOp::create(builder, op.getLoc(), type, input);
      bucket = pack;
    }
    auto type = cast<BucketType>(bucket.getType());
    if (failed(hook.verifyBucket(type, [&] { return op.emitOpError(); })))
      return failure();
    auto name = op->getAttrOfType<StringAttr>(DDPDialect::kNameAttrName);
    SmallVector<Attribute> gradients = {name};
    if (!pack)
      gradients = getMemberNames(name, type);
    SmallVector<StateOp> shared;
    // A reduce-scatter is always over all ranks, whatever the topology.
    BucketReduction reduction{op.getLoc(),
                              op.getReduction(),
                              op.getGroupAttr(),
                              name,
                              builder.getArrayAttr(gradients),
                              &shared};
    reduction.symbols = &roles.symbols;
    FailureOr<ScatterOperand> operand = hook.prepareScatter(
        builder, reduction, cast<TypedValue<BucketType>>(bucket));
    if (failed(operand))
      return op.emitOpError() << "hook " << hook << " could not be expanded";
    if (!operand->value)
      return op.emitOpError()
             << "expected a hook that can reduce parts of a gradient, but got "
             << hook << ", which reduces whole gradients only";
    if (operand->value.getType() != type)
      return op.emitOpError()
             << "expected hook " << hook << " to return " << type
             << ", but got " << operand->value.getType();
    roles.addBucket(reduction, hook);
    if (operand->wire)
      op.setWire(operand->wire);
    if (operand->step)
      op.getStepMutable().assign(operand->step);
    if (operand->value != bucket)
      op.getInputMutable().assign(operand->value);
    else if (pack)
      pack.erase();
    return success();
  }

  /// Returns a bucket name that is unused in the module.
  StringAttr makeBucketName(llvm::StringSet<> &taken) {
    while (true) {
      std::string name = "b" + std::to_string(nextNumber++);
      if (taken.insert(name).second)
        return StringAttr::get(&getContext(), name);
    }
  }

  /// True if an operand is strided and has to be copied for the runtime.
  static bool isStrided(AllReduceOp op) {
    return llvm::any_of(op->getOperandTypes(), [](Type type) {
      auto memory = cast<MemRefType>(type);
      return !memory.areTrailingDimsContiguous(memory.getRank());
    });
  }

  /// Returns true if operand and destination may overlap without being the same
  /// memory; the runtime refuses that.
  static bool mayOverlap(AllReduceOp op) {
    auto getRoot = [](Value memory) {
      while (auto view = memory.getDefiningOp<ViewLikeOpInterface>())
        memory = view.getViewSource();
      return memory;
    };
    Value from = op.getInput(), to = op.getDestination();
    if (from == to || getRoot(from) != getRoot(to))
      return false;
    auto first = from.getDefiningOp<memref::SubViewOp>(),
         second = to.getDefiningOp<memref::SubViewOp>();
    if (!first || !second || first.getSource() != second.getSource())
      return true;
    auto getSlice = [](memref::SubViewOp view) {
      return HyperrectangularSlice(
          cast<OffsetSizeAndStrideOpInterface>(view.getOperation()));
    };
    FailureOr<bool> isOverlapping =
        ValueBoundsConstraintSet::areOverlappingSlices(
            op.getContext(), getSlice(first), getSlice(second));
    FailureOr<bool> isSame = ValueBoundsConstraintSet::areEquivalentSlices(
        op.getContext(), getSlice(first), getSlice(second));
    return !(succeeded(isOverlapping) && !*isOverlapping) &&
           !(succeeded(isSame) && *isSame);
  }

  /// Turns a reduction of memory into one of a bucket. It stays where it is,
  /// since reads and writes of memory keep their order; so the bucket has no
  /// other member.
  FailureOr<AllReduceOp> liftToBucket(AllReduceOp op,
                                      llvm::StringSet<> &taken) {
    if (op.getWire())
      return op.emitOpError()
             << "expected no wire type, since a hook chooses it";
    auto memory = cast<MemRefType>(op.getInput().getType());
    auto type =
        RankedTensorType::get(memory.getShape(), memory.getElementType());
    auto bucketType =
        BucketType::getFromTensors(&getContext(), type.getElementType(), type);
    OpBuilder builder(op);
    auto name = op->getAttrOfType<StringAttr>(DDPDialect::kNameAttrName);
    Location loc = getGradientLoc(name, op.getLoc());
    Value gradient =
        createRead(builder, loc, type, op.getInput(), /*isWritable=*/false);
    Value bucket = PackOp::create(builder, loc, bucketType, gradient);
    auto lifted = AllReduceOp::create(
        builder, loc, op.getReductionAttr(), bucket, op.getGroupAttr(),
        /*wire=*/TypeAttr(), makeBucketName(taken));
    lifted.setGradientsAttr(builder.getArrayAttr(name));
    if (Attribute hook = op->getAttr(DDPDialect::kHookAttrName))
      lifted->setAttr(DDPDialect::kHookAttrName, hook);
    auto unpack = UnpackOp::create(builder, loc, type, lifted.getResult());
    createWrite(builder, loc, unpack.getTensors().front(), op.getDestination());
    op.erase();
    return lifted;
  }

  LogicalResult expand(AllReduceOp op, HookAttrInterface defaultHook,
                       StateRoles &roles, const TensorsInMemory &inMemory) {
    auto bucket = dyn_cast<TypedValue<BucketType>>(op.getInput());
    if (!bucket || !op.getBucketName())
      return op.emitOpError()
             << "expected a named bucket; run 'ddp-bucketize' first";
    if (!recorded.insert(*op.getBucketName()).second)
      return op.emitOpError()
             << "expected a unique bucket name, but another bucket is called '"
             << *op.getBucketName() << "'";
    BucketType type = bucket.getType();
    HookAttrInterface hook = getEffectiveHook(op, defaultHook);
    if (failed(hook.verifyBucket(type, [&] { return op.emitOpError(); })))
      return failure();
    // Only a plain all-reduce can have its own wire type.
    Type wire = op.getWire().value_or(Type());
    if (wire && !isa<AllReduceHookAttr>(hook))
      return op.emitOpError()
             << "expected no wire type, since hook " << hook << " chooses it";

    OpBuilder builder(op);
    SmallVector<StateOp> shared;
    // No bucket has 2⁶² bytes.
    auto groupBytes =
        static_cast<int64_t>(std::min(groupMb * 1024 * 1024, 0x1p62));
    BucketReduction reduction{op.getLoc(),
                              op.getReduction(),
                              op.getGroupAttr(),
                              op.getBucketNameAttr(),
                              op.getGradientsAttr(),
                              &shared,
                              groupBytes,
                              getOperation()
                                  .lookupSymbol<ProcessGroupOp>(op.getGroup())
                                  .isHierarchical(),
                              &roles.symbols};
    FailureOr<Value> reduced =
        wire ? buildFinalAllReduce(builder, reduction, bucket, wire,
                                   op.getStep())
             : hook.expand(builder, reduction, bucket);
    if (failed(reduced))
      return op.emitOpError() << "hook " << hook << " could not be expanded";
    if (wire)
      setErrorState(reduced->getDefiningOp(), getErrorState(op));
    roles.addBucket(reduction, hook);
    if (reduced->getType() != type)
      return op.emitOpError() << "expected hook " << hook << " to return "
                              << type << ", but got " << reduced->getType();
    op.getResult().replaceAllUsesWith(*reduced);

    int64_t wireBytes = wire ? getWireBytes(wire, type.getNumElements())
                             : hook.getWireBytes(type);
    builder.setInsertionPointToEnd(getOperation().getBody());
    BucketInfoOp::create(builder, getRecordLoc(op), op.getBucketNameAttr(),
                         op.getReductionAttr(), op.getGroupAttr(), hook,
                         TypeAttr::get(wire ? wire : hook.getWireType(type)),
                         builder.getI64IntegerAttr(wireBytes),
                         builder.getI64IntegerAttr(hook.getStateBytes(type)),
                         TypeAttr::get(type), op.getGradientsAttr());
    auto &[ofGradients, onWire] = sent[hook];
    ofGradients += type.getNumBytes();
    onWire += wireBytes;
    remark::passed(op.getLoc(), remarkOf("Hook", "ddp-expand-hooks"))
        << *op.getBucketName() << remark::metric("hook", Attribute(hook))
        << remark::metric("gradient-bytes", type.getNumBytes())
        << remark::metric("wire-bytes", wireBytes)
        << remark::metric("compression-rate", getRate(wireBytes, type))
        << remark::metric("state-bytes", hook.getStateBytes(type));
    op.erase();

    // Without communication the bucket is not needed: use the gradients
    // directly.
    if (*reduced == bucket)
      foldUnpacks(bucket, inMemory);
    return success();
  }

  /// Replaces unpacked tensors by packed ones, unless a gradient is in memory:
  /// the bucket then keeps its value when that memory is written.
  static void foldUnpacks(Value bucket, const TensorsInMemory &inMemory) {
    auto pack = bucket.getDefiningOp<PackOp>();
    if (!pack || llvm::any_of(pack.getTensors(), [&](Value tensor) {
          return inMemory.contains(tensor);
        }))
      return;
    for (Operation *user : llvm::make_early_inc_range(bucket.getUsers()))
      if (auto unpack = dyn_cast<UnpackOp>(user)) {
        unpack.replaceAllUsesWith(pack.getTensors());
        unpack.erase();
      }
    if (pack->use_empty())
      pack.erase();
  }

  /// The number of the next bucket made from a reduction of memory.
  unsigned nextNumber = 0;
  /// The names of the buckets that the module has a record of.
  llvm::StringSet<> recorded;
  /// For each hook, the bytes of its gradients and the bytes sent.
  llvm::MapVector<Attribute, std::pair<int64_t, int64_t>> sent;
};
} // namespace
