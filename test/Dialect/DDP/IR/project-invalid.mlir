// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// One case for every way in which ddp.project and ddp.reconstruct refuse what
// they are given, under the number of the constraint.

//===----------------------------------------------------------------------===//
// project
//===----------------------------------------------------------------------===//

func.func @project_too_few(%g: !ddp.bucket<f32, [4x3, 5]>,
                           %q: !ddp.bucket<f32, [3x2]>) {
  // C1
  // expected-error @+1 {{expected 2 results, but got 1}}
  %0 = ddp.project %g members [0] by %q
      : (!ddp.bucket<f32, [4x3, 5]>, !ddp.bucket<f32, [3x2]>)
      -> !ddp.bucket<f32, [4x2]>
  return
}

// -----

func.func @project_too_many(%g: !ddp.bucket<f32, [4x3]>,
                            %q: !ddp.bucket<f32, [3x2]>) {
  // C1
  // expected-error @+1 {{expected 1 results, but got 2}}
  %0:2 = ddp.project %g members [0] by %q
      : (!ddp.bucket<f32, [4x3]>, !ddp.bucket<f32, [3x2]>)
      -> (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, []>)
  return
}

// -----

func.func @project_on_memory(%m: memref<17xf32>, %q: memref<6xf32>,
                             %p: memref<8xf32>) {
  // C1
  // expected-error @+1 {{expected 2 'into' operands, but got 1}}
  ddp.flat.project %m by %q
      layout <0 to 17, [0, 0, 0, 4, 3, 2], [12, 0, 5]> into (%p)
      : memref<17xf32>, memref<6xf32>, memref<8xf32>
  return
}

// -----

func.func @project_sum(%g: !ddp.bucket<f32, [4x3, 5]>,
                       %q: !ddp.bucket<f32, [3x2]>) {
  // C1
  // expected-error @+1 {{expected the sum to have the operand's type}}
  %0:3 = ddp.project %g plus %g members [0] by %q
      : (!ddp.bucket<f32, [4x3, 5]>, !ddp.bucket<f32, [4x3, 5]>,
         !ddp.bucket<f32, [3x2]>)
      -> (!ddp.bucket<f32, [5, 4x3]>, !ddp.bucket<f32, [4x2]>,
          !ddp.bucket<f32, [5]>)
  return
}

// -----

func.func @project_rest(%g: !ddp.bucket<f32, [4x3, 5]>,
                        %q: !ddp.bucket<f32, [3x2]>) {
  // C1
  // expected-error @+1 {{expected the rest to be '!ddp.bucket<f32, [5]>', but got '!ddp.bucket<f32, [5x1]>'}}
  %0:2 = ddp.project %g members [0] by %q
      : (!ddp.bucket<f32, [4x3, 5]>, !ddp.bucket<f32, [3x2]>)
      -> (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [5x1]>)
  return
}

// -----

func.func @project_packed_rest(%g: !ddp.bucket<f32, [4x3, 5]>,
                               %q: !ddp.bucket<f32, [3x2]>) {
  // C1
  // expected-error @+1 {{expected the rest to be '!ddp.bucket<f32, [5]>', but got '!ddp.bucket<f32, []>'}}
  %0 = ddp.project %g members [0] by %q packed
      : (!ddp.bucket<f32, [4x3, 5]>, !ddp.bucket<f32, [3x2]>)
      -> !ddp.bucket<f32, [4x2]>
  return
}

// -----

func.func @project_packed_in_two(%g: !ddp.bucket<f32, [4x3, 5]>,
                                 %q: !ddp.bucket<f32, [3x2]>) {
  // C1
  // expected-error @+1 {{expected 1 results, but got 2}}
  %0:2 = ddp.project %g members [0] by %q packed
      : (!ddp.bucket<f32, [4x3, 5]>, !ddp.bucket<f32, [3x2]>)
      -> (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [5]>)
  return
}

// -----

func.func @project_error(%g: !ddp.bucket<f32, [4x3, 5]>,
                         %q: !ddp.bucket<f32, [3x2]>,
                         %e: !ddp.bucket<f32, [17]>) {
  // C2
  // expected-error @+1 {{expected an error of the operand's type, but got '!ddp.bucket<f32, [17]>'}}
  %0:3 = ddp.project %g plus %e members [0] by %q
      : (!ddp.bucket<f32, [4x3, 5]>, !ddp.bucket<f32, [17]>,
         !ddp.bucket<f32, [3x2]>)
      -> (!ddp.bucket<f32, [4x3, 5]>, !ddp.bucket<f32, [4x2]>,
          !ddp.bucket<f32, [5]>)
  return
}

// -----

func.func @project_factor(%g: !ddp.bucket<f32, [4x3, 5]>,
                          %q: !ddp.bucket<f32, [4x2]>) {
  // C3
  // expected-error @+1 {{expected factors of a 4x3 matrix, but got 4x2 and 4x2}}
  %0:2 = ddp.project %g members [0] by %q
      : (!ddp.bucket<f32, [4x3, 5]>, !ddp.bucket<f32, [4x2]>)
      -> (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [5]>)
  return
}

// -----

func.func @project_number_of_factors(%g: !ddp.bucket<f32, [4x3, 5]>,
                                     %q: !ddp.bucket<f32, [3x2, 3x2]>) {
  // C3
  // expected-error @+1 {{expected one member of each factor per matrix, that is 1, but got 1 and 2}}
  %0:2 = ddp.project %g members [0] by %q
      : (!ddp.bucket<f32, [4x3, 5]>, !ddp.bucket<f32, [3x2, 3x2]>)
      -> (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [5]>)
  return
}

// -----

func.func @project_outside(%g: !ddp.bucket<f32, [4x3, 5]>,
                           %q: !ddp.bucket<f32, [3x2]>) {
  // C3
  // expected-error @+1 {{expected distinct members below 2, but got 2}}
  %0:2 = ddp.project %g members [2] by %q
      : (!ddp.bucket<f32, [4x3, 5]>, !ddp.bucket<f32, [3x2]>)
      -> (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [5]>)
  return
}

// -----

func.func @project_twice(%g: !ddp.bucket<f32, [4x3, 4x3]>,
                         %q: !ddp.bucket<f32, [3x2, 3x2]>) {
  // C3
  // expected-error @+1 {{expected distinct members below 2, but got 1}}
  %0 = ddp.project %g members [1, 1] by %q
      : (!ddp.bucket<f32, [4x3, 4x3]>, !ddp.bucket<f32, [3x2, 3x2]>)
      -> !ddp.bucket<f32, [4x2, 4x2]>
  return
}

// -----

func.func @project_elements(%g: !ddp.bucket<f32, [4x3, 5]>,
                            %q: !ddp.bucket<f64, [3x2]>) {
  // C3
  // expected-error @+1 {{expected buckets of one element type}}
  %0:2 = ddp.project %g members [0] by %q
      : (!ddp.bucket<f32, [4x3, 5]>, !ddp.bucket<f64, [3x2]>)
      -> (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [5]>)
  return
}

// -----

//===----------------------------------------------------------------------===//
// reconstruct
//===----------------------------------------------------------------------===//

func.func @reconstruct_too_few(%p: !ddp.bucket<f32, [4x2]>,
                               %q: !ddp.bucket<f32, [3x2]>,
                               %m: !ddp.bucket<f32, [4x3]>) {
  // C1
  // expected-error @+1 {{expected 2 results, but got 1}}
  %0 = ddp.reconstruct %p, %q members [0] from %m
      : (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [3x2]>,
         !ddp.bucket<f32, [4x3]>) -> !ddp.bucket<f32, [4x3]>
  return
}

// -----

func.func @reconstruct_too_many(%p: !ddp.bucket<f32, [4x2]>,
                                %q: !ddp.bucket<f32, [3x2]>) {
  // C1
  // expected-error @+1 {{expected 1 results, but got 2}}
  %0:2 = ddp.reconstruct %p, %q members [0]
      : (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [3x2]>)
      -> (!ddp.bucket<f32, [4x3]>, !ddp.bucket<f32, [4x3]>)
  return
}

// -----

func.func @reconstruct_on_memory(%p: memref<8xf32>, %q: memref<6xf32>,
                                 %m: memref<12xf32>) {
  // C1
  // expected-error @+1 {{expected 2 'into' operands, but got 1}}
  ddp.flat.reconstruct %p, %q from %m
      layout <0 to 12, [0, 0, 0, 4, 3, 2], []> into (%m)
      : memref<8xf32>, memref<6xf32>, memref<12xf32>, memref<12xf32>
  return
}

// -----

func.func @reconstruct_no_rest(%p: !ddp.bucket<f32, [4x2]>,
                               %q: !ddp.bucket<f32, [3x2]>) {
  // C1
  // expected-error @+1 {{expected the rest to be '!ddp.bucket<f32, [5]>'}}
  %0 = ddp.reconstruct %p, %q members [0]
      : (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [3x2]>)
      -> !ddp.bucket<f32, [4x3, 5]>
  return
}

// -----

func.func @reconstruct_other_rest(%p: !ddp.bucket<f32, [4x2]>,
                                  %q: !ddp.bucket<f32, [3x2]>,
                                  %r: !ddp.bucket<f32, [4]>) {
  // C1
  // expected-error @+1 {{expected the rest to be '!ddp.bucket<f32, [5]>'}}
  %0 = ddp.reconstruct %p, %q members [0] rest %r
      : (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [3x2]>,
         !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4x3, 5]>
  return
}

// -----

func.func @reconstruct_rest_of_nothing(%p: !ddp.bucket<f32, [4x2]>,
                                       %q: !ddp.bucket<f32, [3x2]>,
                                       %r: !ddp.bucket<f32, [4]>) {
  // C1
  // expected-error @+1 {{expected the rest to be '!ddp.bucket<f32, []>'}}
  %0 = ddp.reconstruct %p, %q members [0] rest %r
      : (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [3x2]>,
         !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4x3]>
  return
}

// -----

func.func @reconstruct_matrix(%p: !ddp.bucket<f32, [4x2]>,
                              %q: !ddp.bucket<f32, [3x2]>,
                              %m: !ddp.bucket<f32, [3x4]>) {
  // C2
  // expected-error @+1 {{expected matrix and error to have the type '!ddp.bucket<f32, [4x3]>'}}
  %0:2 = ddp.reconstruct %p, %q members [0] from %m
      : (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [3x2]>,
         !ddp.bucket<f32, [3x4]>)
      -> (!ddp.bucket<f32, [4x3]>, !ddp.bucket<f32, [4x3]>)
  return
}

// -----

func.func @reconstruct_error(%p: !ddp.bucket<f32, [4x2]>,
                             %q: !ddp.bucket<f32, [3x2]>,
                             %m: !ddp.bucket<f32, [4x3]>) {
  // C2
  // expected-error @+1 {{expected matrix and error to have the type '!ddp.bucket<f32, [4x3]>'}}
  %0:2 = ddp.reconstruct %p, %q members [0] from %m
      : (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [3x2]>,
         !ddp.bucket<f32, [4x3]>)
      -> (!ddp.bucket<f32, [4x3]>, !ddp.bucket<f32, [12]>)
  return
}

// -----

func.func @reconstruct_factors(%p: !ddp.bucket<f32, [4x2]>,
                               %q: !ddp.bucket<f32, [3x1]>) {
  // C3
  // expected-error @+1 {{expected factors of a 4x3 matrix, but got 4x2 and 3x1}}
  %0 = ddp.reconstruct %p, %q members [0]
      : (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [3x1]>)
      -> !ddp.bucket<f32, [4x3]>
  return
}

// -----

func.func @reconstruct_outside(%p: !ddp.bucket<f32, [4x2]>,
                               %q: !ddp.bucket<f32, [3x2]>) {
  // C3
  // expected-error @+1 {{expected distinct members below 1, but got 70}}
  %0 = ddp.reconstruct %p, %q members [70]
      : (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [3x2]>)
      -> !ddp.bucket<f32, [4x3]>
  return
}

// -----

func.func @reconstruct_negative(%p: !ddp.bucket<f32, [4x2]>,
                                %q: !ddp.bucket<f32, [3x2]>) {
  // C3
  // expected-error @+1 {{expected distinct members below 1, but got -1}}
  %0 = ddp.reconstruct %p, %q members [-1]
      : (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [3x2]>)
      -> !ddp.bucket<f32, [4x3]>
  return
}

// -----

func.func @reconstruct_group(%p: !ddp.bucket<f32, [4x2]>,
                             %q: !ddp.bucket<f32, [3x2]>) {
  // C5
  // expected-error @+1 {{expected a process group only with a matrix}}
  %0 = ddp.reconstruct %p, %q members [0] by_world_of @dp
      : (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [3x2]>)
      -> !ddp.bucket<f32, [4x3]>
  return
}

// -----

func.func @reconstruct_no_group(%p: !ddp.bucket<f32, [4x2]>,
                                %q: !ddp.bucket<f32, [3x2]>,
                                %m: !ddp.bucket<f32, [4x3]>) {
  // C5
  // expected-error @+1 {{expected process group @dp to be declared}}
  %0:2 = ddp.reconstruct %p, %q members [0] from %m by_world_of @dp
      : (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [3x2]>,
         !ddp.bucket<f32, [4x3]>)
      -> (!ddp.bucket<f32, [4x3]>, !ddp.bucket<f32, [4x3]>)
  return
}
