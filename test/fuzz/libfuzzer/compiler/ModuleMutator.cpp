// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// libFuzzer's hooks for mutation and crossover. Everything follows from the
// seed, so a run can be repeated.

#include "ModuleMutator.h"

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

using namespace mlir;
using llvm::StringRef;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);

namespace {
using Strings = std::vector<std::string>;
using Random = std::minstd_rand;

Strings operationNames;

/// Types, attributes and numbers at which something changes.
const Strings words = {"@dp",
                       "#ddp.fp16",
                       "#ddp.bf16",
                       "#ddp.noop",
                       "#ddp.allreduce",
                       "#ddp.powersgd<matrix_approximation_rank = 2>",
                       "#ddp.batched_powersgd<start_powerSGD_iter = 2>",
                       "#ddp.wrap<f16, #ddp.powersgd>",
                       "#ddp.wrap<bf16, #ddp.fp16>",
                       "#ddp.post_local_sgd",
                       "ddp.hook",
                       "mean",
                       "sum",
                       "on",
                       "into",
                       "as",
                       "private",
                       "public",
                       "f16",
                       "bf16",
                       "f32",
                       "f64",
                       "i1",
                       "i32",
                       "index",
                       "tensor<f32>",
                       "tensor<0xf32>",
                       "tensor<4x8xf32>",
                       "tensor<8xbf16>",
                       "tensor<?xf32>",
                       "tensor<*xf32>",
                       "tensor<2x0x3xf16>",
                       "tensor<4611686018427387904xf64>",
                       "memref<8xf32>",
                       "memref<4x8xf32, strided<[8, 1], offset: ?>>",
                       "!ddp.bucket<f32, [4x8, 8]>",
                       "!ddp.bucket<bf16, [8]>",
                       "!ddp.bucket<f32, []>",
                       "!ddp.future<!ddp.bucket<f32, [8]>>",
                       "dense<0.0>",
                       "loc(unknown)",
                       "stablehlo.all_reduce",
                       "stablehlo.add",
                       "stablehlo.divide",
                       "stablehlo.multiply",
                       "stablehlo.reshape",
                       "stablehlo.convert",
                       "stablehlo.constant",
                       "stablehlo.while",
                       "stablehlo.case",
                       "stablehlo.return",
                       "sdy.manual_computation",
                       "sdy.return",
                       "replica_groups",
                       "dense<[[0, 1]]>",
                       "dense<[[0, 2], [1, 3]]>",
                       "#sdy.mesh<[\"x\"=2, \"y\"=2]>",
                       "shard.all_reduce",
                       "shard.reduce_scatter",
                       "shard.all_gather",
                       "grid_axes",
                       "mpi.allreduce",
                       "MPI_MAX",
                       "torch._c10d_functional.all_reduce",
                       "torch._c10d_functional.wait_tensor",
                       "\"avg\"",
                       "\"sum\""};

const Strings numbers = {"0",          "1",
                         "2",          "3",
                         "8",          "32",
                         "-1",         "255",
                         "65536",      "2147483648",
                         "0.0",        "1.5",
                         "0x7F800000", "9223372036854775807"};

const Strings options = {
    "hook=allreduce", "hook=fp16", "hook=bf16", "hook=noop", "hook=powersgd",
    "hook=batched_powersgd", "hook=post_local_sgd", "wrapper=fp16",
    "wrapper=bf16", "bucket-cap-mb=0", "bucket-cap-mb=0.0001",
    "first-bucket-mb=0", "order=forward", "order=reverse",
    "pack-collectives=false", "fuse=false", "group-mb=0.0001", "overlap=false",
    "overlap-depth=1", "overlap-depth=3", "memory=device",
    "require-no-copy=true", "matrix-approximation-rank=1",
    "matrix-approximation-rank=4", "start-powersgd-iter=0",
    "start-powersgd-iter=3", "use-error-feedback=false", "warm-start=false",
    "min-compression-rate=0.5", "orthogonalization-epsilon=0.001",
    "random-seed=7", "numerics=improved", "lower", "unregistered",
    "verify-order=true", "all-functions=true", "then", "xla", "num-ranks=2",
    // Imports.
    "ddp-import-fx", "ddp-import-fx{keep-others=true}",
    "ddp-import-fx{allow-repeated=true}", "ddp-import-mpi",
    "ddp-import-mpi{keep-others=true}", "ddp-import-shard",
    "ddp-import-shard{keep-others=true}", "ddp-import-shard{gradient-axes=0}",
    "ddp-import-shard{allow-repeated=true}", "ddp-import-stablehlo",
    "ddp-import-stablehlo{keep-others=true}",
    "ddp-import-stablehlo{gradient-axes=x}",
    "ddp-import-stablehlo{allow-repeated=true}",
    "ddp-convert-stablehlo-control-flow", "ddp-verify-stablehlo-order",
    // Exports.
    "ddp-inline-collectives", "ddp-export-stablehlo",
    "ddp-export-stablehlo{num-ranks=2}",
    // Passes by themselves.
    "ddp-isolate-collectives", "ddp-verify-sync", "ddp-verify-order",
    "ddp-set-topology", "ddp-expand-averages", "ddp-bucketize",
    "ddp-expand-hooks", "ddp-pack-collectives", "ddp-fuse",
    "ddp-merge-branches", "ddp-overlap", "ddp-flatten", "ddp-thread-states",
    "ddp-prepare-entries", "ddp-fold-results", "ddp-fold-packs",
    "ddp-split-empty-tensors", "ddp-legalize-for-bufferization",
    "ddp-assign-destinations", "ddp-yield-in-place", "ddp-pin-block-arguments",
    "ddp-materialize-buckets", "ddp-check-bufferizable",
    "ddp-results-to-out-params", "ddp-bufferize", "ddp-plan-arena",
    "ddp-fold-branches", "ddp-fold-copies", "ddp-check-no-alloc",
    "convert-ddp-to-runtime", "ddp-emit-entry-points", "ddp-expand-arith",
    "ddp-expand-copies", "ddp-outline-linalg-ops", "ddp-tile-contractions",
    "ddp-order-loops", "ddp-outline-gpu-kernels", "ddp-launch-kernels",
    "ddp-check-device-memory", "ddp-check-mpi", "ddp-check-lowered",
    "canonicalize", "cse"};

size_t below(Random &random, size_t end) {
  return std::uniform_int_distribution<size_t>(0, end - 1)(random);
}

const std::string &pick(Random &random, const Strings &list) {
  return list[below(random, list.size())];
}

Strings splitLines(StringRef text) {
  llvm::SmallVector<StringRef> lines;
  text.split(lines, '\n');
  return Strings(lines.begin(), lines.end());
}

/// One token of a line.
struct Token {
  size_t begin;
  size_t end;
};

bool isWordCharacter(char c) {
  return llvm::isAlnum(c) || StringRef("_.$%@#!^-").contains(c);
}

/// Words (with what marks them as values, symbols, attributes or types),
/// strings, and all other characters one by one.
std::vector<Token> findTokens(StringRef line) {
  std::vector<Token> tokens;
  for (size_t at = 0; at < line.size();) {
    size_t end = at + 1;
    if (line[at] == ' ') {
      at = end;
      continue;
    }
    if (line[at] == '"')
      end = std::min(line.find('"', end), line.size() - 1) + 1;
    else if (isWordCharacter(line[at]))
      while (end < line.size() && isWordCharacter(line[end]))
        ++end;
    tokens.push_back({at, end});
    at = end;
  }
  return tokens;
}

bool isNumber(StringRef token) {
  return llvm::isDigit(token[0]) ||
         (token.size() > 1 && token[0] == '-' && llvm::isDigit(token[1]));
}

/// A token that may stand where `token` stands: of the same kind, from the same
/// text, or one of the lists.
std::string replacementOf(StringRef token, const Strings &lines,
                          Random &random) {
  if (isNumber(token) && below(random, 2))
    return pick(random, numbers);
  if (token.starts_with("ddp.") && below(random, 2))
    return pick(random, operationNames);
  if (below(random, 6) == 0)
    return pick(random, words);
  for (int tries = 0; tries < 20; ++tries) {
    const std::string &line = pick(random, lines);
    std::vector<Token> tokens = findTokens(line);
    if (tokens.empty())
      continue;
    Token other = tokens[below(random, tokens.size())];
    StringRef found =
        StringRef(line).substr(other.begin, other.end - other.begin);
    bool isSameKind = found[0] == token[0] ||
                      (llvm::isAlpha(found[0]) && llvm::isAlpha(token[0]));
    if (isSameKind && found != token)
      return found.str();
  }
  return pick(random, words);
}

void mutateToken(Strings &lines, Random &random) {
  std::string &line = lines[below(random, lines.size())];
  std::vector<Token> tokens = findTokens(line);
  if (tokens.empty())
    return;
  Token token = tokens[below(random, tokens.size())];
  size_t length = token.end - token.begin;
  std::string old = line.substr(token.begin, length);
  switch (below(random, 8)) {
  case 0:
    line.erase(token.begin, length);
    return;
  case 1:
    line.insert(token.end, " " + replacementOf(old, lines, random));
    return;
  default: {
    // In all of the text, so that definitions and types stay in step.
    std::string replacement = replacementOf(old, lines, random);
    if (below(random, 3) != 0) {
      line.replace(token.begin, length, replacement);
      return;
    }
    for (std::string &each : lines) {
      std::string changed;
      size_t copied = 0;
      for (Token other : findTokens(each)) {
        if (StringRef(each).substr(other.begin, other.end - other.begin) != old)
          continue;
        changed += each.substr(copied, other.begin - copied) + replacement;
        copied = other.end;
      }
      each = changed + each.substr(copied);
    }
  }
  }
}

/// The lines of the region that begins in `line`, or that line alone.
size_t endOfBlock(const Strings &lines, size_t line) {
  int depth = 0;
  for (size_t end = line; end < lines.size(); ++end) {
    for (char c : lines[end])
      depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (depth <= 0)
      return end + 1;
  }
  return line + 1;
}

void mutateLines(Strings &lines, Random &random) {
  size_t line = below(random, lines.size());
  size_t end = below(random, 2) ? endOfBlock(lines, line) : line + 1;
  Strings block(lines.begin() + line, lines.begin() + end);
  size_t kind = below(random, 3);
  if (kind != 0) // 0: copied
    lines.erase(lines.begin() + line, lines.begin() + end);
  if (kind != 1) // 1: removed; 2: moved
    lines.insert(lines.begin() + below(random, lines.size() + 1), block.begin(),
                 block.end());
  if (lines.empty())
    lines.emplace_back();
}

/// Changes one word of the first line.
void mutateRequest(Strings &lines, Random &random) {
  if (!StringRef(lines[0]).starts_with(ddp::kRequestPrefix))
    lines.insert(lines.begin(), ddp::kRequestPrefix.str());
  llvm::SmallVector<StringRef> parts;
  StringRef(lines[0])
      .drop_front(ddp::kRequestPrefix.size())
      .split(parts, ' ', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  Strings request(parts.begin(), parts.end());
  size_t kind = below(random, 4);
  if (!request.empty() && kind < 3)
    request.erase(request.begin() + below(random, request.size()));
  if (kind > 0)
    request.insert(request.begin() + below(random, request.size() + 1),
                   pick(random, options));
  lines[0] = ddp::kRequestPrefix.str();
  for (const std::string &word : request)
    lines[0] += " " + word;
}

size_t store(const Strings &lines, uint8_t *data, size_t maxSize) {
  std::string text = llvm::join(lines, "\n");
  size_t size = std::min(text.size(), maxSize);
  std::memcpy(data, text.data(), size);
  return size;
}
} // namespace

void mlir::ddp::setMutatorWords(const DialectRegistry &registry) {
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadDialect<DDPDialect>();
  // Not getRegisteredOperationsByDialect(), which searches a list for another
  // order than it has and finds nothing.
  for (RegisteredOperationName name : context.getRegisteredOperations())
    if (name.getDialectNamespace() == DDPDialect::getDialectNamespace())
      operationNames.push_back(name.getStringRef().str());
  llvm::sort(operationNames);
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size,
                                          size_t maxSize, unsigned seed) {
  Random random(seed + 1);
  if (size == 0 || below(random, 16) == 0)
    return LLVMFuzzerMutate(data, size, maxSize);
  Strings lines = splitLines({reinterpret_cast<const char *>(data), size});
  for (size_t count = 1 + below(random, 3); count > 0; --count) {
    switch (below(random, 8)) {
    case 0:
    case 1:
      mutateRequest(lines, random);
      break;
    case 2:
    case 3:
      mutateLines(lines, random);
      break;
    default:
      mutateToken(lines, random);
    }
  }
  return store(lines, data, maxSize);
}

/// Some lines of one module in the middle of another.
extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t *first,
                                            size_t firstSize,
                                            const uint8_t *second,
                                            size_t secondSize, uint8_t *out,
                                            size_t maxOutSize, unsigned seed) {
  Random random(seed + 1);
  Strings lines =
      splitLines({reinterpret_cast<const char *>(first), firstSize});
  Strings others =
      splitLines({reinterpret_cast<const char *>(second), secondSize});
  size_t begin = below(random, others.size());
  size_t end = endOfBlock(others, begin);
  lines.insert(lines.begin() + below(random, lines.size() + 1),
               others.begin() + begin, others.begin() + end);
  return store(lines, out, maxOutSize);
}
