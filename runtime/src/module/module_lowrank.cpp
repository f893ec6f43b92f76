//===- module_lowrank.cpp - low-rank calls of compiled code ---------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The calls of a step that work on matrix lists, and the random numbers that
// factors begin with. As in module.cpp, failures are kept until the step ends.
//
//===----------------------------------------------------------------------===//
#include "module/module.h"

#include "base/floating_point.h"
#include "base/random.h"
#include "job/context.h"

#include <optional>

using namespace ddphook;

Status ddphook_module::createMatrices() {
  for (const PlanMatrixList &list : plan.matrixLists) {
    const ddphook_matrix_list_t view = list.view();
    ddphook_backend_error_t message = {};
    ddphook_matrices_t *created = nullptr;
    DDPHOOK_RETURN_IF_ERROR(fromBackendError(
        context.backend().matrices_create(context.device(), &view,
                                          static_cast<int32_t>(list.dtype),
                                          &created, &message),
        message));
    matrices.push_back(created);
  }
  return Status::ok();
}

void ddphook_module::destroyMatrices() {
  for (ddphook_matrices_t *list : matrices)
    context.backend().matrices_destroy(context.device(), list);
  matrices.clear();
}

ddphook_matrices_t *
ddphook_module::beginLowRank(const char *call, int32_t list,
                             std::initializer_list<const void *> arrays) {
  if (!canRun(call))
    return nullptr;
  if (list < 0 || static_cast<size_t>(list) >= matrices.size()) {
    failStep(error(DDPHOOK_INVALID_ARGUMENT,
                   "%s: expected one of %zu matrix lists, but got %d", call,
                   matrices.size(), list));
    return nullptr;
  }
  for (const void *array : arrays)
    if (!array) {
      failStep(error(DDPHOOK_INVALID_ARGUMENT,
                     "%s: expected %zu arrays, but got a null pointer", call,
                     arrays.size()));
      return nullptr;
    }
  return matrices[static_cast<size_t>(list)];
}

bool ddphook_module::checkRest(const char *call, int32_t list,
                               const void *rest) {
  for (const ddphook_piece_t &piece :
       plan.matrixLists[static_cast<size_t>(list)].pieces)
    if (piece.count > 0 && !rest) {
      failStep(error(DDPHOOK_INVALID_ARGUMENT,
                     "%s: expected an array of the rest, but got a null "
                     "pointer",
                     call));
      return false;
    }
  return true;
}

bool ddphook_module::checkPair(const char *call, const void *first,
                               const void *second) {
  if (!first == !second)
    return true;
  failStep(error(DDPHOOK_INVALID_ARGUMENT,
                 "%s: expected both arrays of error feedback or none, but got "
                 "one",
                 call));
  return false;
}

void ddphook_module::matmul(int32_t list, int32_t kind, void *matrix, void *p,
                            void *q) {
  const char *call = "ddphook_rt_matmul";
  ddphook_matrices_t *handle = beginLowRank(call, list, {matrix, p, q});
  if (!handle)
    return;
  if (kind < DDPHOOK_MATMUL_P || kind > DDPHOOK_MATMUL_M)
    return failStep(error(DDPHOOK_INVALID_ARGUMENT,
                          "%s: expected a product from 0 to 2, but got %d",
                          call, kind));
  DefaultFloatingPoint environment;
  ddphook_backend_error_t message = {};
  finishCall(context.backend().matmul(context.device(), handle, kind, matrix, p,
                                      q, &message),
             message);
}

void ddphook_module::orthogonalize(int32_t list, int32_t factor, const void *in,
                                   void *out, double epsilon) {
  const char *call = "ddphook_rt_orthogonalize";
  ddphook_matrices_t *handle = beginLowRank(call, list, {in, out});
  if (!handle)
    return;
  if (factor < 0 || factor > (DDPHOOK_FACTOR_Q | DDPHOOK_UNIT_COLUMNS))
    return failStep(error(DDPHOOK_INVALID_ARGUMENT,
                          "%s: expected the factor 0 or 1, or 2 more, but got "
                          "%d",
                          call, factor));
  DefaultFloatingPoint environment;
  ddphook_backend_error_t message = {};
  finishCall(context.backend().orthogonalize(context.device(), handle, factor,
                                             in, out, epsilon, &message),
             message);
}

void ddphook_module::project(int32_t list, const void *g, const void *e,
                             const void *q, void *m, void *p, void *rest) {
  const char *call = "ddphook_rt_project";
  ddphook_matrices_t *handle = beginLowRank(call, list, {g, q, p});
  if (!handle || !checkPair(call, e, m) || !checkRest(call, list, rest))
    return;
  DefaultFloatingPoint environment;
  ddphook_backend_error_t message = {};
  finishCall(context.backend().project(context.device(), handle, g, e, q, m, p,
                                       rest, &message),
             message);
}

void ddphook_module::reconstruct(int32_t list, const void *p, const void *q,
                                 const void *rest, const void *m, void *out,
                                 void *err, int32_t group) {
  const char *call = "ddphook_rt_reconstruct";
  ddphook_matrices_t *handle = beginLowRank(call, list, {p, q, out});
  if (!handle || !checkPair(call, m, err) || !checkRest(call, list, rest))
    return;
  if (group != -1 && !checkGroup(call, group))
    return;
  const int64_t divisor =
      group < 0 ? 1 : groups[static_cast<size_t>(group)].size();
  DefaultFloatingPoint environment;
  ddphook_backend_error_t message = {};
  finishCall(context.backend().reconstruct(context.device(), handle, p, q, rest,
                                           m, out, err, divisor, &message),
             message);
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
  if (!canRun(call) || !checkArrays(call, draws, generator, drawCount) ||
      !checkDtype(call, dtype))
    return;
  const std::optional<int64_t> count = countDraws(draws, drawCount);
  if (!count)
    return failStep(error(DDPHOOK_INVALID_ARGUMENT,
                          "%s: expected numbers of elements, but they are "
                          "negative or too large",
                          call));
  if (!checkArrays(call, generator, generator, 1) ||
      !checkArrays(call, generator, out, *count))
    return;
  DefaultFloatingPoint environment;
  // The numbers are drawn on the host, where the generator is on every device.
  randomNumbers.resize(
      static_cast<size_t>(*count * dtypeSize(static_cast<Dtype>(dtype))));
  failStep(drawNormal(static_cast<int32_t *>(generator), draws, drawCount,
                      randomNumbers.data(), static_cast<Dtype>(dtype)));
  if (!stepFailure.isOk() || randomNumbers.empty())
    return;
  ddphook_backend_error_t message = {};
  finishCall(context.backend().memory_write(context.device(), out,
                                            randomNumbers.data(),
                                            randomNumbers.size(), &message),
             message);
}
