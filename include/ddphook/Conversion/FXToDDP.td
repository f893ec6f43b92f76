// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the pass from PyTorch's functional collectives to ddp's.

include "ddphook/PassBase.td"

def DDPImportFXPass : DDP_ModulePass<"ddp-import-fx"> {
  let summary = "turn PyTorch's functional all-reduces into ddp.all_reduce";
  let text = [{
    Takes the graph of a PyTorch training step in which
    `_c10d_functional.all_reduce` starts a reduction and
    `_c10d_functional.wait_tensor` ends it. Both, and `all_reduce_coalesced`, whose
    results are awaited one by one, may have two forms:

    - Calls of private functions without a body whose attribute `fx` names the
      operator. `ddphook.torch.export` writes whole steps like this, because calls
      survive any compiler between PyTorch and here.
    - Operations of no dialect, named after PyTorch's operators, with the attributes
      `reduce_op` and `group_name`: `"torch._c10d_functional.all_reduce"(%g) {…}`. A
      few lines of code print a graph of FX like this. The rest of such a graph stays
      as it is.

    They are imported as follows:

    - A start with `reduce_op` `"sum"` or `"avg"` and its waits become one
      `ddp.all_reduce sum` or `mean`. It is not asynchronous: `ddp-overlap` later
      splits the expanded reduction into start and wait.
    - A sum becomes a `mean`, and the division is removed, if its operand or all uses
      of its result are divided by the size of the group: by an operation of linalg,
      or of arith on tensors, that divides each element by it, or multiplies by its
      inverse. A remark reports other constants. A mean in ddp divides before it adds,
      so a division after a sum is rounded differently unless the size is a power of
      two. A sum of f16 that is divided afterwards stays, because small numbers would
      be lost.
    - `group_name` is the symbol of a `ddp.process_group` of the module.
    - Tensors of rank 0, such as the loss, are reduced exactly: they get the hook
      `#ddp.allreduce`.
    - The strings in the attribute `names`, one for each operand, become `ddp.name`
      unless they are empty.

    Other collectives, other reductions, integers, and groups that the module does
    not declare are errors that name the operator, at the line of the Python program
    if the module has it as a location; with `keep-others` they stay, together with
    their waits. A start that is not awaited, a use of its result other than a wait,
    and a wait for anything else are errors. So is a reduction of a value computed
    only from a reduction over the same group and constants, because the sum would be
    too large; `allow-repeated` allows it.

    Pre-condition: tensors of static shape. Post-condition: no functional collective
    is left (without `keep-others`), and no unused function that represents one.
  }];
  let before = [{
    ddp.process_group @"0" size 2
    func.func private @start(tensor<4xf32>) -> tensor<4xf32> attributes {
        fx = {target = "_c10d_functional.all_reduce", reduce_op = "avg",
              group_name = "0", names = ["fc.bias"]}}
    func.func private @wait(tensor<4xf32>) -> tensor<4xf32> attributes {
        fx = {target = "_c10d_functional.wait_tensor"}}
    func.func @step(%g: tensor<4xf32>) -> tensor<4xf32> {
      %started = call @start(%g) : (tensor<4xf32>) -> tensor<4xf32>
      %0 = call @wait(%started) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }];
  let after = [{
    ddp.process_group @"0" size 2
    func.func @step(%g: tensor<4xf32>) -> tensor<4xf32> {
      %0 = ddp.all_reduce mean %g on @"0" {ddp.name = "fc.bias"} : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }];
  let options = [
    Option<"allowRepeated", "allow-repeated", "bool", /*default=*/"false",
           "Allow values to be reduced again over the same group">,
    Option<"keepOthers", "keep-others", "bool", /*default=*/"false",
           "Leave operations without an equivalent in ddp unchanged">,
    Option<"keepAccumulators", "keep-accumulators", "bool",
           /*default=*/"false",
           "Sum 16-bit numbers in 16 bits, as the program's linalg does">,
  ];
  let dialects = ["ddp::DDP"];
}
