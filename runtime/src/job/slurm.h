// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Slurm gives its tasks ranks, but no address at which to meet. All tasks of a
// step derive the same one from Slurm's variables.

#pragma once

#include <string>
#include <string_view>

namespace ddphook {

/// Returns the first host of a node list such as "gpu[001-003,007],login1", or
/// an empty string if the list is malformed.
std::string firstHostOf(std::string_view list);

/// Returns the port of a step's store, which is below the ports that Linux
/// gives to outgoing connections. Two steps of one job, or of jobs whose
/// numbers differ by at most 300, have different ports if the steps' numbers
/// differ by less than 54.
int portOfStep(unsigned long long job, unsigned long long step);

} // namespace ddphook
