// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A training program around a compiled step: it owns data, parameters and the
// loop, and leaves arithmetic and communication to step.mlir. It does not know
// which hook the step was compiled with. Every rank runs this program; each
// trains on its own share of the images.

#include "checkpoint.h"
#include "data.h"
#include "device_array.h"
#include "digits.h" // written by ddphook-cc

#include "ddphook/runtime/runtime.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// The shapes of step.mlir; ../wide has other layers.
#ifndef DIGITS_HIDDEN1
#define DIGITS_HIDDEN1 128
#define DIGITS_HIDDEN2 64
#endif
constexpr size_t batchSize = 32, testSize = 359;
constexpr size_t hidden1 = DIGITS_HIDDEN1, hidden2 = DIGITS_HIDDEN2;

constexpr uint32_t seed = 42;

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

// All parameters and then all velocities, one after another: in `values`, and
// in the memory of the device on which steps run.
struct Model {
  std::vector<float> values;
  DeviceArray<float> memory;
  float *w1, *b1, *w2, *b2, *w3, *b3;
  float *vw1, *vb1, *vw2, *vb2, *vw3, *vb3;

  explicit Model(ddphook_context_t *context)
      : values(2 *
               std::accumulate(std::begin(sizes), std::end(sizes), size_t(0))),
        memory(context, values.size()) {
    float **const arrays[] = {&w1,  &b1,  &w2,  &b2,  &w3,  &b3,
                              &vw1, &vb1, &vw2, &vb2, &vw3, &vb3};
    float *next = memory.data();
    for (size_t i = 0; i < std::size(arrays); ++i) {
      *arrays[i] = next;
      next += sizes[i % std::size(sizes)];
    }
  }

  size_t bytes() const { return values.size() * sizeof(float); }

  // Weights uniform in ±sqrt(6 / inputs), everything else zero.
  void initialize(std::mt19937 &generator) {
    float *next = values.data();
    for (size_t layer = 0; layer < std::size(sizes); layer += 2) {
      size_t inputs = sizes[layer] / sizes[layer + 1];
      float limit = std::sqrt(6.0f / inputs);
      for (size_t i = 0; i < sizes[layer]; ++i)
        next[i] = limit * (generator() / 2147483648.0f - 1.0f);
      next += sizes[layer] + sizes[layer + 1];
    }
  }

private:
  // Weights and biases of the layers.
  static constexpr size_t sizes[] = {pixels * hidden1, hidden1,
                                     hidden1 *hidden2, hidden2,
                                     hidden2 *classes, classes};
};

// Compares this rank's parameters with every rank's, bit by bit.
bool sameOnAllRanks(ddphook_context_t *context, const Model &model) {
  bool same = true;
  for (int32_t root = 0; root < ddphook_context_world_size(context); ++root) {
    std::vector<float> theirs = model.values;
    check(ddphook_broadcast(context, theirs.data(), model.bytes(), root),
          "comparing parameters");
    same &= !std::memcmp(theirs.data(), model.values.data(), model.bytes());
    if (ddphook_context_rank(context) == 0)
      std::printf("parameters of rank %d: %016llx\n", root,
                  static_cast<unsigned long long>(
                      digest(theirs.data(), model.bytes())));
  }
  return same;
}

//===----------------------------------------------------------------------===//
// Training
//===----------------------------------------------------------------------===//

ddphook_stats_t readStats() {
  ddphook_stats_t stats = {};
  stats.struct_size = sizeof(stats);
  check(ddphook_module_stats(&digits_module, &stats), "reading counters");
  return stats;
}

// One line per step of this process, in a file of rank 0: the loss of its
// images, and the bytes that it has sent so far.
class Log {
public:
  Log(const std::string &path, int32_t rank) {
    if (path.empty() || rank != 0)
      return;
    file.open(path);
    if (!file)
      throw std::runtime_error("cannot write '" + path + "'");
  }
  void add(float loss) {
    if (file.is_open())
      file << loss << ' ' << readStats().wire_bytes << '\n';
  }

private:
  std::ofstream file;
};

// A batch where steps read it, and the loss where they write it.
struct Batch {
  DeviceArray<float> images;
  DeviceArray<int32_t> labels;
  DeviceArray<float> loss;

  explicit Batch(ddphook_context_t *context)
      : images(context, batchSize * pixels), labels(context, batchSize),
        loss(context, 1) {}
};

// Goes over this rank's images in a new random order, batch by batch; what is
// left over at the end waits for the next epoch. Returns the mean loss.
float trainEpoch(const Samples &train, size_t batches, float rate,
                 std::mt19937 &generator, Model &m, Batch &memory,
                 std::vector<double> &milliseconds, Log &log) {
  std::vector<size_t> order(train.size());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[generator() % i]);

  std::vector<float> images(batchSize * pixels);
  std::vector<int32_t> labels(batchSize);
  float lossSum = 0;
  for (size_t batch = 0; batch < batches; ++batch) {
    for (size_t i = 0; i < batchSize; ++i) {
      size_t sample = order[batch * batchSize + i];
      std::copy_n(&train.images[sample * pixels], pixels, &images[i * pixels]);
      labels[i] = train.labels[sample];
    }
    memory.images.write(images.data());
    memory.labels.write(labels.data());
    auto start = std::chrono::steady_clock::now();
    check(digits_step(memory.images.data(), memory.labels.data(), rate, m.w1,
                      m.b1, m.w2, m.b2, m.w3, m.b3, m.vw1, m.vb1, m.vw2, m.vb2,
                      m.vw3, m.vb3, memory.loss.data()),
          "training step");
    std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - start;
    milliseconds.push_back(elapsed.count());
    float loss;
    memory.loss.read(&loss);
    lossSum += loss;
    log.add(loss);
  }
  return lossSum / batches;
}

double accuracy(ddphook_context_t *context, const Samples &test,
                const Model &m) {
  std::vector<float> logits(testSize * classes);
  DeviceArray<float> images(context, test.images.size());
  DeviceArray<float> results(context, logits.size());
  images.write(test.images.data());
  check(digits_predict(images.data(), m.w1, m.b1, m.w2, m.b2, m.w3, m.b3,
                       results.data()),
        "prediction");
  results.read(logits.data());
  size_t correct = 0;
  for (size_t i = 0; i < testSize; ++i) {
    const float *row = &logits[i * classes];
    correct += std::max_element(row, row + classes) - row == test.labels[i];
  }
  return 100.0 * correct / testSize;
}

struct Options {
  std::string data;
  std::string save, resume; // directories of checkpoints; empty: none
  std::string log;          // file with a line per step; empty: none
  int epochs = 60;
  int until = 0; // the epoch after which to stop; 0: the last one
};

// Returns whether all ranks ended with the same parameters.
bool run(const Options &options) {
  ddphook_context_t *created;
  check(ddphook_context_create(nullptr, &created), "joining the job");
  std::unique_ptr<ddphook_context_t, decltype(&ddphook_context_destroy)>
      context(created, ddphook_context_destroy);
  check(ddphook_module_load(created, &digits_module), "loading the step");
  int32_t rank = ddphook_context_rank(created);
  int32_t worldSize = ddphook_context_world_size(created);

  Data data = readData(options.data, rank, worldSize);
  if (data.test.size() != testSize)
    throw std::runtime_error("expected " + std::to_string(testSize) +
                             " test images, but got " +
                             std::to_string(data.test.size()));
  // All ranks take as many steps as the one with the fewest images can.
  size_t batches = data.smallestShare / batchSize;
  if (batches == 0)
    throw std::runtime_error("too few images for so many ranks");

  // Everybody starts from rank 0's parameters, and has its own shuffling.
  Model model(created);
  Batch batch(created);
  Progress progress;
  progress.epochs = options.epochs;
  progress.values = &model.values;
  progress.generator.seed(seed + rank);
  if (rank == 0)
    model.initialize(progress.generator);
  check(ddphook_broadcast(created, model.values.data(), model.bytes(), 0),
        "sending the initial parameters");
  if (!options.resume.empty())
    Checkpoints(created, &digits_module, options.resume).load(progress);
  model.memory.write(model.values.data());

  if (!options.save.empty())
    Checkpoints::makeDirectory(options.save);

  Log log(options.log, rank);
  std::vector<double> milliseconds;
  const int until = options.until ? options.until : options.epochs;
  while (progress.epoch < until) {
    float rate =
        0.05f * (1 - static_cast<float>(progress.epoch) / options.epochs);
    float loss = trainEpoch(data.train, batches, rate, progress.generator,
                            model, batch, milliseconds, log);
    int epoch = ++progress.epoch;
    if (epoch % 10 != 0 && epoch != until)
      continue;
    if (rank == 0)
      std::printf("epoch %d: loss %.4f\n", epoch, loss);
    if (options.save.empty())
      continue;
    model.memory.read(model.values.data());
    Checkpoints(created, &digits_module, options.save).save(progress);
  }

  ddphook_stats_t stats = readStats();
  // Nothing is left to do when the checkpoint is of the last epoch.
  double median = 0;
  if (!milliseconds.empty()) {
    auto middle = milliseconds.begin() + milliseconds.size() / 2;
    std::nth_element(milliseconds.begin(), middle, milliseconds.end());
    median = *middle;
  }
  double percent = accuracy(created, data.test, model);
  model.memory.read(model.values.data());
  bool same = sameOnAllRanks(created, model);
  if (rank == 0) {
    std::printf("test accuracy: %.2f %%\n", percent);
    std::printf("bytes on the wire a step: %llu\n",
                static_cast<unsigned long long>(
                    stats.wire_bytes / std::max<uint64_t>(stats.steps, 1)));
    std::printf("ms a step: %.3f\n", median);
    std::printf("same on all ranks: %s\n", same ? "yes" : "no");
  }
  check(ddphook_module_unload(&digits_module), "unloading the step");
  return same;
}

// Whether the arguments make sense.
bool parseArguments(int argc, char **argv, Options &options) {
  auto number = [](const char *text, int &result) {
    char *end;
    long value = std::strtol(text, &end, 10);
    result = static_cast<int>(value);
    return end != text && !*end && value >= 1 && value <= 100000;
  };
  auto startsWith = [](const std::string &text, const char *prefix) {
    return text.rfind(prefix, 0) == 0;
  };
  int position = 0;
  bool good = true;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (startsWith(argument, "--save="))
      good &= !(options.save = argument.substr(7)).empty();
    else if (startsWith(argument, "--resume="))
      good &= !(options.resume = argument.substr(9)).empty();
    else if (startsWith(argument, "--log="))
      good &= !(options.log = argument.substr(6)).empty();
    else if (startsWith(argument, "--until="))
      good &= number(argv[i] + 8, options.until);
    else if (++position == 1)
      options.data = argument;
    else
      good &= position == 2 && number(argv[i], options.epochs);
  }
  return good && position >= 1 && options.until <= options.epochs;
}

} // namespace

// Exit status: 0; 1 after an error; 2 if the ranks' parameters differ.
int main(int argc, char **argv) {
  Options options;
  if (!parseArguments(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: %s digits.txt [epochs] [--save=DIR] [--resume=DIR] "
                 "[--until=EPOCH] [--log=FILE]\n",
                 argv[0]);
    return 1;
  }
  try {
    return run(options) ? 0 : 2;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s: error: %s\n", argv[0], error.what());
    return 1;
  }
}
