// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Low-rank compression without the device's functions: matrix lists, prepared
// when the module is loaded, and the random numbers of factors.

#include "module/module.h"

#include "base/random.h"
#include "job/context.h"
#include "module/device_call.h"

#include <optional>

using namespace ddphook;

static Status prepare(const Context &context, const PlanMatrixList &list,
                      ddphook_matrices_t **result) {
  const ddphook_matrix_list_t view = list.view();
  return context.call(&ddphook_backend_t::matrices_create, &view,
                      static_cast<int32_t>(list.dtype), result);
}

Status ddphook_module::createMatrices() {
  for (const PlanMatrixList &list : plan.matrixLists) {
    ddphook_matrices_t *created = nullptr;
    DDPHOOK_TRY(prepare(context, list, &created));
    matrices.push_back(created);
  }
  return Status::ok();
}

Status ddphook_module::assignMatrices() {
  auto preparePart = [&](const PlanMatrixList &list,
                         ddphook_matrices_t **result) {
    return list.matrices.empty() && list.pieces.empty()
               ? Status::ok()
               : prepare(context, list, result);
  };
  for (size_t number = 0; number < plan.matrixLists.size(); ++number) {
    const PlanMatrixList &list = plan.matrixLists[number];
    if (!list.assignment)
      continue;
    const ModuleGroup &group =
        groups[plan.buckets[list.assignment->bucket].group];
    if (group.nodeRanks() == 1)
      continue;
    const std::vector<int64_t> positions =
        plan.assignMembers(*list.assignment, group.nodeRanks());
    // Positions increase with members of a group, so this rank's are adjacent.
    int64_t first = list.begin, last = list.begin;
    for (const PlanAssignment::Part &part : list.assignment->parts) {
      const int64_t position = positions[part.member];
      first += position < group.nodePosition() ? part.count : 0;
      last += position <= group.nodePosition() ? part.count : 0;
    }
    AssignedMatrices &parts =
        assignedMatrices.try_emplace(number, AssignedMatrices{}).first->second;
    DDPHOOK_TRY(preparePart(list.cut(first, last), &parts.own));
    DDPHOOK_TRY(preparePart(list.cut(list.begin, first), &parts.before));
    DDPHOOK_TRY(preparePart(list.cut(last, list.end), &parts.after));
  }
  return Status::ok();
}

ddphook_matrices_t *ddphook_module::matricesOf(int32_t list,
                                               int32_t product) const {
  const auto parts = assignedMatrices.find(list);
  return parts == assignedMatrices.end() || product == DDPHOOK_MATMUL_M
             ? matrices[list]
             : parts->second.own;
}

void ddphook_module::reconstructOthers(int32_t list, const void *p,
                                       const void *q, const void *rest,
                                       void *out) {
  if (!checkCall(*this, "ddphook_rt_reconstruct_others",
                 role::Matrices{list, "list"}, role::In{p, "p"},
                 role::In{q, "q"}, role::Rest{rest, "rest"},
                 role::Out{out, "out"}))
    return;
  const auto parts = assignedMatrices.find(list);
  if (parts == assignedMatrices.end())
    return;
  DefaultFloatingPoint environment;
  const void *const noMatrix = nullptr;
  void *const noError = nullptr;
  for (ddphook_matrices_t *others : {parts->second.before, parts->second.after})
    if (others && stepFailure.isOk())
      failStep(context.call(&ddphook_backend_t::reconstruct, others, p, q, rest,
                            noMatrix, out, noError, int64_t{1}));
}

void ddphook_module::destroyMatrices() {
  for (const auto &[list, parts] : assignedMatrices)
    for (ddphook_matrices_t *part : {parts.own, parts.before, parts.after})
      if (part)
        context.backend().matrices_destroy(context.device(), part);
  assignedMatrices.clear();
  for (ddphook_matrices_t *list : matrices)
    context.backend().matrices_destroy(context.device(), list);
  matrices.clear();
}

/// Returns the number of elements of all draws; nullopt if it is invalid.
static std::optional<int64_t> countDraws(const int64_t *draws, int64_t count) {
  // The largest element type still has an address for each element.
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
    return failStep(
        invalid("%s: expected draws of at least 0 elements whose sum "
                "fits in memory, but one is negative or the sum is "
                "too large",
                call));
  if (!checkCall(*this, call, role::Count{*count, "count"},
                 role::Out{out, "out"}))
    return;
  DefaultFloatingPoint environment;
  // Draw the numbers on the host, which has the generator for every device.
  randomNumbers.resize(*count * dtypeSize(static_cast<Dtype>(dtype)));
  failStep(drawNormal(static_cast<int32_t *>(generator), draws, drawCount,
                      randomNumbers.data(), static_cast<Dtype>(dtype)));
  if (!stepFailure.isOk() || randomNumbers.empty())
    return;
  failStep(context.call(&ddphook_backend_t::memory_write, out,
                        randomNumbers.data(), randomNumbers.size()));
}
