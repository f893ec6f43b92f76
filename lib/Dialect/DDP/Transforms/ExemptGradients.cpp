// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-exempt-gradients: gives gradients a hook by their names. Buckets of other
// gradients get the hook that the options name.

#include "../Analysis/ProgramWalk.h"
#include "Utils/GradientNames.h"
#include "ddphook/Dialect/DDP/IR/BucketOrigin.h"
#include "ddphook/Dialect/DDP/IR/Remarks.h"

#include "llvm/Support/Regex.h"

#define GEN_PASS_DEF_DDPEXEMPTGRADIENTSPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// The maximum number of names in an error.
constexpr size_t kMaxListed = 8;

/// The names of the gradients that `op` reduces.
static SmallVector<StringRef> getNames(Operation *op) {
  SmallVector<StringRef> names;
  auto reduction = dyn_cast<AllReduceOp>(op);
  if (ArrayAttr gradients = reduction ? reduction.getGradientsAttr() : nullptr)
    for (auto name : gradients.getAsRange<StringAttr>())
      names.push_back(name.getValue());
  else if (auto name = op->getAttrOfType<StringAttr>(DDPDialect::kNameAttrName))
    names.push_back(name.getValue());
  return names;
}

namespace {
struct ExemptGradientsPass
    : public ddp::impl::DDPExemptGradientsPassBase<ExemptGradientsPass> {
  using DDPExemptGradientsPassBase::DDPExemptGradientsPassBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    DDPExemptGradientsPassBase::getDependentDialects(registry);
    addDependentDialects(registry, exemptHook);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto error = [&] { return emitError(module.getLoc()); };
    FailureOr<HookAttrInterface> hook =
        parseHook(&getContext(), exemptHook, /*wrapper=*/"",
                  [&] { return std::move(error() << "in exempt-hook: "); });
    if (failed(hook))
      return signalPassFailure();
    llvm::Regex expression(exempt);
    std::string defect;
    if (exempt.empty() || !expression.isValid(defect)) {
      error() << "expected exempt to be a regular expression, but got '"
              << exempt.getValue() << "'"
              << (defect.empty() ? "" : ": " + defect);
      return signalPassFailure();
    }
    if (failed(nameGradients(module)))
      return signalPassFailure();

    SmallVector<StringRef> others;
    bool matchesAny = false, ok = true;
    walkProgram(module, [&](Operation *op) {
      if (!isa<AllReduceOp, ReduceScatterOp>(op))
        return;
      SmallVector<StringRef> names = getNames(op);
      auto matches = [&](StringRef name) { return expression.match(name); };
      size_t numMatches = llvm::count_if(names, matches);
      if (numMatches == 0) {
        llvm::append_range(others, names);
        return;
      }
      matchesAny = true;
      if (numMatches < names.size()) {
        StringRef other = *llvm::find_if_not(names, matches);
        op->emitOpError() << "expected exempt to match all gradients of a "
                             "bucket or none, but '"
                          << exempt.getValue() << "' does not match '" << other
                          << "'";
        ok = false;
        return;
      }
      if (!op->hasAttr(DDPDialect::kHookAttrName)) {
        op->setAttr(DDPDialect::kHookAttrName, *hook);
        markExempt(op, exempt);
        remark::passed(op->getLoc(), remarkOf("Exempt", "ddp-exempt-gradients"))
            << names.front() << remark::metric("hook", Attribute(*hook));
      }
    });
    if (ok && !matchesAny) {
      InFlightDiagnostic none = error();
      none << "expected exempt to match the name of a gradient, but '"
           << exempt.getValue() << "' matches none";
      if (!others.empty())
        none << " of '"
             << llvm::join(ArrayRef(others).take_front(kMaxListed), "', '")
             << "'" << (others.size() > kMaxListed ? ", …" : "");
      ok = false;
    }
    if (!ok)
      signalPassFailure();
  }
};
} // namespace
