// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds rank, world size and the store's address from options or from
// launchers' variables. It opens no connection, but asks the resolver whether
// the store's address is this machine's. docs/launching.md lists the variables.

#pragma once

#include "base/status.h"
#include "ddphook/runtime/runtime.h"
#include "trace/recording_options.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ddphook {

/// Returns the value of an environment variable, or null. Tests pass their own.
using Environment = std::function<const char *(const char *name)>;

/// Returns the process's environment; an empty value counts as not set.
Environment processEnvironment();

struct Bootstrap {
  int rank = 0;
  int worldSize = 1;
  int localRank = 0;
  /// True if the rank comes from a launcher, not from options or the default.
  bool isLaunched = false;
  /// The address at which rank 0's store listens; unused in a world of one.
  /// With a host's store only rank 0's options set it; empty and 0 let rank 0
  /// choose.
  std::string masterAddress;
  int masterPort = 0;
  /// The host program's store, through which ranks find that of rank 0. Valid
  /// only while the context is created.
  std::optional<ddphook_store_t> hostStore;
  /// Separates processes of different jobs that meet on one port.
  std::string runId;
  /// The secret that each rank must prove to have; empty means none.
  std::string secret;
  /// A name that replaces this machine's identity; usually empty.
  std::string nodeOverride;
  std::string backend = "host";
  std::string transport = "auto";
  std::string backendOptions;
  /// The host program's allocator for device memory.
  std::optional<ddphook_allocator_t> allocator;
  double timeoutSeconds = 300;
  /// Selects what is recorded.
  trace::RecordingOptions observation;
  /// The number of compute threads; 0: a share of the processors.
  int threads = 0;
};

/// Fills `result` from `options` (may be null) and `environment`.
Status findPlace(const ddphook_options_t *options,
                 const Environment &environment, Bootstrap *result);

// Slurm gives its tasks ranks, but no address at which to meet. All tasks of a
// step derive the same one from Slurm's variables.

/// Returns the first host of a node list such as "gpu[001-003,007],login1", or
/// an empty string if the list is malformed.
std::string firstHostOf(std::string_view list);

/// Returns the port of a step's store, which is below the ports that Linux
/// gives to outgoing connections. Two steps of one job, or of jobs whose
/// numbers differ by at most 300, have different ports if the steps' numbers
/// differ by less than 54.
int portOfStep(unsigned long long job, unsigned long long step);

} // namespace ddphook
