// By default ddphook-opt verifies what the last pass leaves. (The substitution of lit for
// its name has --verify-each.)

// RUN: not %default-opt %s --load-pass-plugin=%testhook-plugin --pass-pipeline="builtin.module(test-break-module)" -o %t.none 2>&1 | FileCheck %s --check-prefix=BROKEN
// RUN: not test -e %t.none
// RUN: not %default-opt %s --load-pass-plugin=%testhook-plugin --pass-pipeline="builtin.module(test-break-module)" --ddp-plan-report=%t.html 2>&1 | FileCheck %s --check-prefix=BROKEN
// RUN: not test -e %t.html
// RUN: %default-opt %s --load-pass-plugin=%testhook-plugin --pass-pipeline="builtin.module(test-break-module,test-break-module)" | FileCheck %s
// RUN: not %default-opt %s --load-pass-plugin=%testhook-plugin --verify-each --pass-pipeline="builtin.module(test-break-module,test-break-module)" 2>&1 | FileCheck %s --check-prefix=BROKEN
// RUN: %default-opt %s --load-pass-plugin=%testhook-plugin --verify-each=false --pass-pipeline="builtin.module(test-break-module)" | FileCheck %s --check-prefix=UNVERIFIED

// BROKEN: verify-each.mlir:[[@LINE+8]]:8: error: {{.*}}dp
// CHECK: ddp.process_group @dp
// CHECK: ddp.all_reduce mean %{{.*}} on @dp
// Upstream prints a wrong module in its generic form.
// UNVERIFIED: "ddp.process_group"() <{sym_name = "lost_dp"
ddp.process_group @dp
func.func @step(%grad: tensor<4xf32>) -> tensor<4xf32> {
  %mean =
       ddp.all_reduce mean %grad on @dp : tensor<4xf32>
  return %mean : tensor<4xf32>
}
