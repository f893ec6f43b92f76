// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A ddp.all_reduce has no channel: all ranks run the same program, and their
// n-th reductions over a group match.

#include "ImportSteps.h"
#include "StableHLO.h"
#include "ddphook/Dialect/DDP/IR/Remarks.h"

#include <map>

using namespace mlir;
using namespace mlir::ddp;

static constexpr StringRef kName = "channel_handle";

/// JAX's COLLECTIVE_CHANNEL_ID. XLA then numbers the channels itself.
static constexpr int64_t kCommonHandle = 1;

std::string mlir::ddp::judgeChannel(Operation *collective) {
  Attribute attribute = collective->getAttr(kName);
  if (!attribute)
    return "";
  std::optional<Channel> channel = readChannel(attribute);
  if (!channel)
    return "expected channel_handle to be #stablehlo.channel_handle<handle = "
           "N, type = T>, but got " +
           getText(attribute);
  if (channel->handle > 0 && channel->type != 0 && channel->type != 1)
    return "expected a channel between devices, of type 1, but got " +
           getText(attribute);
  return "";
}

/// Returns true if both operations may use one channel.
static bool isLike(Operation *first, Operation *second) {
  constexpr StringRef groups = "replica_groups";
  return first->getName() == second->getName() &&
         first->getAttr(groups) == second->getAttr(groups);
}

LogicalResult mlir::ddp::checkSharedChannels(ModuleOp module) {
  // Not a DenseMap: a program may use any number, including its reserved keys.
  std::map<int64_t, SmallVector<Operation *>> users;
  module.walk([&](Operation *op) {
    if (!isCollective(op))
      return;
    std::optional<Channel> channel = readChannel(op->getAttr(kName));
    if (channel && channel->handle > 0)
      users[channel->handle].push_back(op);
  });
  bool ok = true;
  for (auto &[handle, ops] : users) {
    Operation *first = ops[0];
    for (Operation *op : ArrayRef(ops).drop_front()) {
      if (handle == kCommonHandle || isLike(first, op))
        continue;
      InFlightDiagnostic diagnostic =
          op->emitOpError()
          << "expected collectives of one kind and over the same groups on "
             "channel "
          << handle << "; give it its own channel, or give all of them channel "
          << kCommonHandle << ", as JAX does";
      diagnostic.attachNote(first->getLoc())
          << "this '" << first->getName() << "' also has the channel";
      ok = false;
      break;
    }
    if (ops.size() == 1)
      continue;
    Location place = first->getLoc();
    // JAX's locations include the call stack, which fills a page.
    if (auto line = place->findInstanceOf<FileLineColLoc>())
      place = line;
    std::string text;
    llvm::raw_string_ostream(text)
        << "channel " << handle << " is shared by " << ops.size()
        << " collectives, the first at " << place
        << "; each is treated separately";
    remark::analysis(ops[1]->getLoc(),
                     remarkOf("Channel", "ddp-import-stablehlo"))
        << text;
  }
  return success(ok);
}
