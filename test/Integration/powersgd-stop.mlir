// PowerSGD from iteration 2 to 3 and not later: its results there, and those of
// the plain all-reduce before and after, on two ranks. Also where branches are
// merged and collectives overlap, and for the batched hook, which gets it from the
// same definition.

// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-run %s --entry=step --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/plain.{rank}.{step}"
// RUN: ddphook-run %s --entry=step --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/powersgd.{rank}.{step}" --ddp-pipeline="hook=powersgd start_powerSGD_iter=2"
// RUN: ddphook-run %s --entry=step --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/stopped.{rank}.{step}" --ddp-pipeline="hook=powersgd start_powerSGD_iter=2 Stop_PowerSGD_Iter=4 verify-order=true"
// RUN: ddphook-run %s --entry=step --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/overlapped.{rank}.{step}" --ddp-pipeline="hook=powersgd start_powerSGD_iter=2 stop-powersgd-iter=4 overlap=true bucket-cap-mb=0 verify-order=true"
// RUN: ddphook-run %s --entry=step --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/apart.{rank}.{step}" --ddp-pipeline="hook=powersgd start_powerSGD_iter=2 bucket-cap-mb=0"
// RUN: ddphook-run %s --entry=step --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/batched.{rank}.{step}" --ddp-pipeline="hook='#ddp.batched_powersgd<start_powerSGD_iter = 0, stop_powerSGD_iter = 1, use_error_feedback = false, warm_start = false>'"

// RUN: cmp %t/stopped.0.1 %t/plain.0.1
// RUN: cmp %t/stopped.0.2 %t/powersgd.0.2
// RUN: cmp %t/stopped.1.3 %t/powersgd.1.3
// RUN: not cmp %t/stopped.0.3 %t/plain.0.3
// RUN: cmp %t/stopped.0.4 %t/plain.0.4
// RUN: cmp %t/stopped.1.5 %t/plain.1.5
// RUN: cmp %t/overlapped.0.1 %t/plain.0.1
// RUN: cmp %t/overlapped.1.3 %t/apart.1.3
// RUN: cmp %t/overlapped.0.4 %t/plain.0.4
// RUN: not cmp %t/batched.0.0 %t/plain.0.0
// RUN: cmp %t/batched.0.1 %t/plain.0.1
// RUN: cmp %t/batched.1.5 %t/plain.1.5

ddp.process_group @dp
func.func @step(%a: tensor<20x31xf32>, %b: tensor<31xf32>,
                %c: tensor<31x18xf32>)
    -> (tensor<20x31xf32>, tensor<31xf32>, tensor<31x18xf32>) {
  %0 = ddp.all_reduce mean %a on @dp : tensor<20x31xf32>
  %1 = ddp.all_reduce mean %b on @dp : tensor<31xf32>
  %2 = ddp.all_reduce mean %c on @dp : tensor<31x18xf32>
  return %0, %1, %2 : tensor<20x31xf32>, tensor<31xf32>, tensor<31x18xf32>
}
