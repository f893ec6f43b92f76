// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The base classes of passes. They make a pass's page from its parts, so that all
// pages have one form: text, then code before and after the pass.

#ifndef DDPHOOK_PASSBASE_TD
#define DDPHOOK_PASSBASE_TD

include "mlir/Pass/PassBase.td"

class DDP_PassBase<string passArgument, string base>
    : PassBase<passArgument, base> {
  /// The text of the page: describes the pass.
  string text = "";
  /// Code before the pass, and what it becomes.
  string before = "";
  string after = "";
  /// Words after "Before", such as ", with `hook=fp16`".
  string beforeWith = "";
  let description = text # "\n    Before" # beforeWith # ":\n\n    ```mlir" # before #
                    "  ```\n\n    After:\n\n    ```mlir" # after #
                    "  ```\n  ";

  /// The dialects of operations that the pass creates, such as "arith::Arith".
  list<string> dialects = [];
  let dependentDialects =
      !foreach(dialect, dialects, "::mlir::" # dialect # "Dialect");
}

class DDP_Pass<string passArgument, string operation = "">
    : DDP_PassBase<passArgument, "::mlir::OperationPass<" # operation # ">">;

class DDP_ModulePass<string passArgument>
    : DDP_Pass<passArgument, "::mlir::ModuleOp">;

class DDP_FunctionPass<string passArgument>
    : DDP_PassBase<passArgument,
                   "::mlir::InterfacePass<::mlir::FunctionOpInterface>">;

#endif // DDPHOOK_PASSBASE_TD
