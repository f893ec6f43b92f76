// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses the assignments of a plan's matrix lists and collectives, and computes
// the positions in a node to which a bucket's members are assigned.

#include "plan/plan_reader.h"

#include <algorithm>
#include <numeric>

using namespace ddphook;
using namespace ddphook::plan;

void plan::readAssignment(const Reader &at, const Names &buckets,
                          const Plan &plan, int64_t elements,
                          std::optional<PlanAssignment> *assignment) {
  if (!at.has("assignment"))
    return;
  const Reader from = at["assignment"];
  if (!from.expectFields("Assignment"))
    return;
  PlanAssignment result;
  result.bucket = buckets.find(from["bucket"]);
  if (!at.isOk())
    return;
  const PlanBucket &bucket = plan.buckets[result.bucket];
  if (!plan.processGroups[bucket.group].isHierarchical)
    return from["bucket"].fail("a bucket of a hierarchical process group");
  const auto members = static_cast<int64_t>(bucket.shapes.size());
  from["groups"].forEach([&](const Reader &first) {
    const int64_t least = result.groups.empty()
                              ? 0
                              : static_cast<int64_t>(result.groups.back()) + 1;
    const int64_t most = result.groups.empty() ? 0 : members - 1;
    result.groups.push_back(static_cast<size_t>(first.integer(least, most)));
  });
  if (result.groups.empty())
    from["groups"].fail("a first group");
  from["members"].forEach([&](const Reader &member) {
    result.parts.push_back(
        {static_cast<size_t>(member.integer(0, members - 1)), 0});
  });
  size_t counts = 0;
  int64_t sum = 0;
  from["counts"].forEach([&](const Reader &count) {
    if (counts == result.parts.size())
      return count.fail("a count for each member");
    result.parts[counts].count = count.integer(0, maxBytes / 8);
    sum += result.parts[counts++].count;
    if (sum > maxBytes / 8)
      count.fail(
          concat("counts of at most ", maxBytes / 8, " elements together"));
  });
  if (counts != result.parts.size())
    from["counts"].fail("a count for each member");
  if (at.isOk() && sum != elements)
    from["counts"].fail(concat("counts of ", elements, " elements together"));
  *assignment = std::move(result);
}

/// True if a range is empty or within one part.
static bool isWithinPart(const std::vector<int64_t> &ends, int64_t offset,
                         int64_t count) {
  const auto end = std::upper_bound(ends.begin(), ends.end(), offset);
  return count == 0 || (end != ends.end() && offset + count <= *end);
}

bool PlanAssignment::isOfOneGroup() const {
  for (size_t i = 1; i < parts.size(); ++i)
    if (parts[i].member != parts[i - 1].member + 1 ||
        std::binary_search(groups.begin(), groups.end(), parts[i].member))
      return false;
  return true;
}

void plan::checkAssignment(const Reader &at, const PlanMatrixList &list) {
  if (!list.assignment->isOfOneGroup())
    return at["assignment"]["members"].fail("adjacent members of one group");
  std::vector<int64_t> ends;
  int64_t end = list.begin;
  for (const PlanAssignment::Part &part : list.assignment->parts)
    ends.push_back(end += part.count);
  for (const ddphook_matrix_t &m : list.matrices)
    if (!isWithinPart(ends, m.offset, m.rows * m.columns))
      return at["assignment"]["counts"].fail(
          "parts that do not split a matrix");
  for (const ddphook_piece_t &piece : list.pieces)
    if (!isWithinPart(ends, piece.offset, piece.count))
      return at["assignment"]["counts"].fail("parts that do not split a piece");
}

PlanMatrixList PlanMatrixList::cut(int64_t first, int64_t last) const {
  PlanMatrixList result;
  result.dtype = dtype;
  result.begin = first;
  result.end = last;
  auto isWithin = [&](int64_t offset, int64_t count) {
    return count > 0 && offset >= first && offset < last;
  };
  for (const ddphook_matrix_t &matrix : matrices)
    if (isWithin(matrix.offset, matrix.rows * matrix.columns))
      result.matrices.push_back(matrix);
  for (const ddphook_piece_t &piece : pieces)
    if (isWithin(piece.offset, piece.count))
      result.pieces.push_back(piece);
  return result;
}

/// Assigns a member by the position of its middle in its group, so that
/// positions get about equally many elements.
std::vector<int64_t> Plan::assignMembers(const PlanAssignment &assignment,
                                         int64_t ranks) const {
  std::vector<int64_t> counts;
  for (const Shape &shape : buckets[assignment.bucket].shapes) {
    int64_t count = 1;
    for (int64_t size : shape)
      count *= size;
    counts.push_back(count);
  }
  std::vector<int64_t> positions;
  for (size_t group = 0; group < assignment.groups.size(); ++group) {
    const auto first =
        counts.begin() + static_cast<ptrdiff_t>(assignment.groups[group]);
    const auto last = group + 1 == assignment.groups.size()
                          ? counts.end()
                          : counts.begin() + static_cast<ptrdiff_t>(
                                                 assignment.groups[group + 1]);
    const int64_t all = std::accumulate(first, last, int64_t{0});
    int64_t begin = 0;
    for (auto count = first; count != last; begin += *count++) {
      const int64_t middle = 2 * begin + *count;
      const auto position = static_cast<int64_t>(
          all == 0 ? 0 : static_cast<__int128>(middle) * ranks / (2 * all));
      positions.push_back(std::min(position, ranks - 1));
    }
  }
  return positions;
}
