// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ProgramFacts.h"

#include "ddphook/Dialect/DDP/IR/BucketOrigin.h"
#include "ddphook/Dialect/DDP/IR/RuntimeCalls.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/ScopedPrinter.h"

#include <map>

using namespace mlir;
using namespace mlir::ddp;
namespace json = llvm::json;

std::string mlir::ddp::describeLocation(Location loc) {
  std::string text;
  if (auto file = loc->findInstanceOf<FileLineColLoc>())
    text = (file.getFilename().getValue() + ":" + Twine(file.getLine()) + ":" +
            Twine(file.getColumn()))
               .str();
  else if (auto name = loc->findInstanceOf<NameLoc>())
    text = name.getName().getValue().str();
  // A report is JSON, whose text must be UTF-8.
  return json::fixUTF8(text);
}

/// Returns the size in bytes, or 0 if it is not static.
static int64_t getBytes(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  if (!memref || !memref.hasStaticShape())
    return 0;
  Type element = memref.getElementType();
  int64_t bytes = element.isIntOrFloat()
                      ? llvm::divideCeil(element.getIntOrFloatBitWidth(), 8)
                      : 8;
  return memref.getNumElements() * bytes;
}

/// Describes a memref type without its layout and space: "64x128xf32".
static std::string describeMemory(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  if (!memref)
    return llvm::to_string(type);
  std::string text;
  llvm::raw_string_ostream os(text);
  for (int64_t size : memref.getShape())
    os << (ShapedType::isDynamic(size) ? "?" : std::to_string(size)) << "x";
  os << memref.getElementType();
  return text;
}

static std::string getFunctionName(Operation *op) {
  auto function = op->getParentOfType<func::FuncOp>();
  return function ? json::fixUTF8(function.getName()) : "";
}

MemoryFacts mlir::ddp::readMemory(ModuleOp module) {
  MemoryFacts facts;
  json::Array buckets, buffers, copies;
  for (auto info : module.getOps<BucketInfoOp>()) {
    BucketOrigin origin = getOrigin(info);
    std::string name = json::fixUTF8(info.getBucketName());
    facts.bucketNames.try_emplace(origin.bucket, name);
    json::Object gradients;
    for (auto [gradient, loc] : origin.gradients)
      gradients[json::fixUTF8(gradient)] = describeLocation(loc);
    buckets.push_back(
        json::Object{{"name", name},
                     {"hook_from", json::fixUTF8(origin.hookFrom)},
                     {"source", describeLocation(origin.bucket)},
                     {"gradients", std::move(gradients)}});
  }
  module.walk([&](Operation *op) {
    bool isView = isa<memref::ViewOp>(op);
    if (!isView && !isa<memref::CopyOp, linalg::CopyOp>(op))
      return;
    Type type =
        isView ? op->getResult(0).getType() : op->getOperand(0).getType();
    json::Object memory{{"function", getFunctionName(op)},
                        {"bytes", getBytes(type)},
                        {"type", describeMemory(type)},
                        {"source", describeLocation(op->getLoc())}};
    if (!isView) {
      copies.push_back(std::move(memory));
      return;
    }
    auto view = cast<memref::ViewOp>(op);
    std::optional<int64_t> offset = getConstantIntValue(view.getByteShift());
    if (!offset || !view.getSource().getDefiningOp<ArenaOp>())
      return;
    memory["offset"] = *offset;
    memory["bucket"] = facts.bucketNames.lookup(op->getLoc());
    buffers.push_back(std::move(memory));
  });
  facts.program = json::Object{{"buckets", std::move(buckets)},
                               {"buffers", std::move(buffers)},
                               {"copies", std::move(copies)}};
  return facts;
}

/// Returns the runtime function that `op` calls, without its prefix, or an
/// empty string.
static StringRef getRuntimeFunction(Operation *op) {
  auto call = dyn_cast<LLVM::CallOp>(op);
  StringRef name = call ? call.getCallee().value_or("") : "";
  return name.consume_front("ddphook_rt_") ? name : "";
}

/// Returns a report's name for the work of `op`; empty if it takes no time.
static std::string describeWork(Operation *op) {
  if (StringRef name = getRuntimeFunction(op); !name.empty())
    return name == "arena" || name == "state" || name == "wait" ||
                   name.ends_with("_start")
               ? ""
               : name.str();
  if (isa<linalg::LinalgOp, memref::CopyOp>(op))
    return op->getName().getStringRef().str();
  if (auto call = dyn_cast<func::CallOp>(op))
    return "call of '" + json::fixUTF8(call.getCallee()) + "'";
  // Another dialect's loop over scalars.
  if (isa<LoopLikeOpInterface>(op) &&
      !op->walk([](Operation *nested) {
           return isa<linalg::LinalgOp, memref::CopyOp, func::CallOp,
                      LLVM::CallOp>(nested)
                      ? WalkResult::interrupt()
                      : WalkResult::advance();
         }).wasInterrupted())
    return op->getName().getStringRef().str();
  return "";
}

/// Returns the operation that started the collective of a ticket, also if it is
/// in a branch.
static Operation *findStart(Value ticket) {
  Operation *op = ticket.getDefiningOp();
  auto choice = dyn_cast_if_present<scf::IfOp>(op);
  if (!choice)
    return op;
  unsigned number = cast<OpResult>(ticket).getResultNumber();
  return choice.thenYield().getOperand(number).getDefiningOp();
}

/// Lists the operations around `op`, from the outside: "for, if".
static std::string describeWithin(Operation *op) {
  SmallVector<std::string> around;
  for (Operation *parent = op->getParentOp();
       parent && !isa<FunctionOpInterface>(parent);
       parent = parent->getParentOp()) {
    StringRef name = parent->getName().stripDialect();
    around.push_back(name.str());
  }
  return llvm::join(llvm::reverse(around), ", ");
}

/// The branches around an operation: condition and number of the region.
using Branches = SmallVector<std::pair<Value, unsigned>, 2>;

static Branches getBranches(Operation *op) {
  Branches branches;
  for (; op && !isa<FunctionOpInterface>(op); op = op->getParentOp())
    if (auto choice = dyn_cast_if_present<scf::IfOp>(op->getParentOp()))
      branches.emplace_back(choice.getCondition(),
                            op->getParentRegion()->getRegionNumber());
  return branches;
}

/// Returns true if no step runs both, as with phases of PowerSGD.
static bool excludeEachOther(const Branches &a, const Branches &b) {
  for (auto [condition, region] : a)
    for (auto [other, otherRegion] : b)
      if (condition == other && region != otherRegion)
        return true;
  return false;
}

namespace {
/// Equal work in one block.
struct Work {
  StringRef what;
  Branches branches;
};

/// Where a function runs a collective.
struct Call {
  std::string function, source, within;
  Branches branches;
  /// Positions among the function's work: where it starts, and where the step
  /// waits for it. Equal if the step waits at once.
  int64_t start = 0, wait = 0;
  json::Array beside;
};

/// Reads one function.
class ScheduleReader {
public:
  ScheduleReader(func::FuncOp function, std::map<int64_t, Call> &calls)
      : function(function), calls(calls) {}
  void read();

  /// The amount of work so far.
  int64_t getPlace() const { return static_cast<int64_t>(order.size()); }
  bool callsAny() const { return !found.empty(); }

private:
  void visitCall(Operation *op, StringRef name);
  void addWork();

  func::FuncOp function;
  /// By number of the collective.
  std::map<int64_t, Call> &calls;
  std::vector<Work> work;
  /// For each position, the index of its work.
  std::vector<size_t> order;
  /// Indices of work, by its block and description.
  llvm::DenseMap<std::pair<Block *, StringRef>, size_t> numbers;
  llvm::StringMap<char> names;
  llvm::DenseMap<Operation *, Call *> started;
  SmallVector<Call *> found;
};
} // namespace

void ScheduleReader::visitCall(Operation *op, StringRef name) {
  if (name == "wait") {
    auto it = started.find(findStart(op->getOperand(1)));
    if (it != started.end() && it->second->wait < it->second->start)
      it->second->wait = getPlace();
    return;
  }
  bool isStart = name.consume_back("_start");
  if (name != "collective")
    return;
  auto constant = op->getOperand(1).getDefiningOp<LLVM::ConstantOp>();
  auto number =
      constant ? dyn_cast<IntegerAttr>(constant.getValue()) : IntegerAttr();
  if (!number)
    return;
  Call &call = calls[number.getInt()];
  // A wait before its start is not known yet.
  call = {json::fixUTF8(function.getName()),
          describeLocation(op->getLoc()),
          describeWithin(op),
          getBranches(op),
          getPlace(),
          isStart ? getPlace() - 1 : getPlace(),
          {}};
  found.push_back(&call);
  if (isStart)
    started[op] = &call;
}

void ScheduleReader::addWork() {
  for (Call *call : found) {
    // The wait is in another function, or missing.
    if (call->wait < call->start)
      call->wait = getPlace();
    llvm::MapVector<StringRef, int64_t> counts;
    for (int64_t place = call->start; place < call->wait; ++place) {
      const Work &there = work[order[place]];
      if (!excludeEachOther(there.branches, call->branches))
        ++counts[there.what];
    }
    call->beside.clear();
    for (auto [what, count] : counts)
      call->beside.push_back(
          json::Object{{"what", what.str()}, {"count", count}});
  }
}

void ScheduleReader::read() {
  function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (StringRef name = getRuntimeFunction(op); !name.empty())
      visitCall(op, name);
    std::string what = describeWork(op);
    if (!what.empty()) {
      StringRef name = names.try_emplace(what, 0).first->getKey();
      auto [it, isNew] =
          numbers.try_emplace({op->getBlock(), name}, work.size());
      if (isNew)
        work.push_back({name, getBranches(op)});
      order.push_back(it->second);
    }
    return what.empty() || op->getNumRegions() == 0 ? WalkResult::advance()
                                                    : WalkResult::skip();
  });
  addWork();
}

void mlir::ddp::readSchedule(ModuleOp module, json::Object &report) {
  std::map<int64_t, Call> calls;
  json::Array functions, collectives;
  for (auto function : module.getOps<func::FuncOp>()) {
    ScheduleReader reader(function, calls);
    reader.read();
    if (reader.getPlace() != 0 || reader.callsAny())
      functions.push_back(
          json::Object{{"name", json::fixUTF8(function.getName())},
                       {"operations", reader.getPlace()}});
  }
  for (auto &[number, call] : calls)
    collectives.push_back(json::Object{{"number", number},
                                       {"function", call.function},
                                       {"source", call.source},
                                       {"within", call.within},
                                       {"start", call.start},
                                       {"wait", call.wait},
                                       {"beside", std::move(call.beside)}});
  report["functions"] = std::move(functions);
  report["collectives"] = std::move(collectives);
}
