//===- module_lowrank.cpp - low-rank calls of compiled code ---------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What low-rank compression needs beside the device's functions: matrix lists
// that are prepared when the module is loaded, and the random numbers that
// factors begin with.
//
//===----------------------------------------------------------------------===//
#include "module/module.h"

#include "base/random.h"
#include "job/context.h"
#include "module/device_call.h"

#include <optional>

using namespace ddphook;

Status ddphook_module::createMatrices() {
  for (const PlanMatrixList &list : plan.matrixLists) {
    const ddphook_matrix_list_t view = list.view();
    ddphook_matrices_t *created = nullptr;
    DDPHOOK_RETURN_IF_ERROR(
        context.call(&ddphook_backend_t::matrices_create, &view,
                     static_cast<int32_t>(list.dtype), &created));
    matrices.push_back(created);
  }
  return Status::ok();
}

void ddphook_module::destroyMatrices() {
  for (ddphook_matrices_t *list : matrices)
    context.backend().matrices_destroy(context.device(), list);
  matrices.clear();
}

/// The number of elements of all draws together; nothing when that cannot be.
static std::optional<int64_t> countDraws(const int64_t *draws, int64_t count) {
  // The largest element type still has an address for each of them.
  constexpr int64_t most = int64_t(1) << 58;
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (draws[i] < 0 || draws[i] > most - sum)
      return std::nullopt;
    sum += draws[i];
  }
  return sum;
}

void ddphook_module::randomNormal(void *generator, const int64_t *draws,
                                  int64_t drawCount, void *out, int32_t dtype) {
  const char *call = "ddphook_rt_random_normal";
  if (!checkCall(*this, call, role::Count{drawCount, "draw_count"},
                 role::In{draws, "draws"}, role::ElementType{dtype, "dtype"}) ||
      !checkCall(*this, call, role::Out{generator, "generator"}))
    return;
  const std::optional<int64_t> count = countDraws(draws, drawCount);
  if (!count)
    return failStep(error(DDPHOOK_INVALID_ARGUMENT,
                          "%s: expected draws of at least 0 elements whose sum "
                          "fits in memory, but one is negative or the sum is "
                          "too large",
                          call));
  if (!checkCall(*this, call, role::Count{*count, "count"},
                 role::Out{out, "out"}))
    return;
  DefaultFloatingPoint environment;
  // The numbers are drawn on the host, where the generator is on every device.
  randomNumbers.resize(
      static_cast<size_t>(*count * dtypeSize(static_cast<Dtype>(dtype))));
  failStep(drawNormal(static_cast<int32_t *>(generator), draws, drawCount,
                      randomNumbers.data(), static_cast<Dtype>(dtype)));
  if (!stepFailure.isOk() || randomNumbers.empty())
    return;
  failStep(context.call(&ddphook_backend_t::memory_write, out,
                        randomNumbers.data(), randomNumbers.size()));
}
