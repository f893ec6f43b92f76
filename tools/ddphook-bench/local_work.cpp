//===- local_work.cpp - timing of work in one thread ----------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See local_work.h.
//
//===----------------------------------------------------------------------===//
#include "local_work.h"

using namespace ddphook;
using namespace ddphook::bench;

static constexpr int kRepetitions = 6;

Status bench::measureWorks(std::string title, const std::vector<Work> &works,
                           const Options &options, TorchProcess *torch,
                           Report &report) {
  Section &section = report.addSection(std::move(title), {"PyTorch"});
  CacheFlusher flusher;
  for (Caches caches : {Caches::Cold, Caches::Warm}) {
    std::vector<Samples> ours(works.size()), theirs(works.size());
    for (int round = 0; round < options.rounds; ++round)
      for (size_t w = 0; w < works.size(); ++w) {
        for (int i = 0; i < kRepetitions; ++i) {
          if (caches == Caches::Cold)
            flusher.flush();
          const double begin = now();
          works[w].run();
          ours[w].add({now() - begin});
        }
        if (!torch || works[w].torchJob.empty())
          continue;
        TorchAnswer answer;
        DDPHOOK_RETURN_IF_ERROR(torch->run(works[w].torchJob,
                                           works[w].torchKind, caches,
                                           kRepetitions, &answer));
        theirs[w].add(answer.seconds);
      }
    auto medianOf = [&](const std::string &name) {
      for (size_t w = 0; w < works.size(); ++w)
        if (works[w].name == name)
          return ours[w].median();
      return 0.0;
    };
    for (size_t w = 0; w < works.size(); ++w) {
      Result &result = section.add(works[w].name, caches, works[w].bytes);
      result.samples = ours[w];
      if (!works[w].copy.empty())
        result.ofBestCopy = ours[w].median() / medianOf(works[w].copy);
      if (theirs[w].seconds.empty())
        continue;
      result.speedups.emplace_back("PyTorch",
                                   theirs[w].median() / ours[w].median());
      // Several of our works may be compared with one job; list it once.
      if (w > 0 && works[w].torchJob == works[w - 1].torchJob &&
          works[w].torchKind == works[w - 1].torchKind)
        continue;
      Result &baseline = section.add("  PyTorch: " + works[w].torchJob + " " +
                                         works[w].torchKind,
                                     caches, works[w].bytes);
      baseline.samples = theirs[w];
    }
  }
  report.print(section);
  return Status::ok();
}
