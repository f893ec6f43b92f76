// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads digits.txt, whose format make_data.py documents, and says who trains on
// what. Nothing here has to do with ddphook.

#ifndef DDPHOOK_EXAMPLES_DIGITS_DATA_H
#define DDPHOOK_EXAMPLES_DIGITS_DATA_H

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

constexpr size_t pixels = 64, classes = 10;

struct Samples {
  std::vector<float> images; // rows of 64 pixels, 0 to 1
  std::vector<int32_t> labels;

  size_t size() const { return labels.size(); }
};

struct Data {
  Samples train;        // this rank's
  Samples test;         // the same on all ranks
  size_t smallestShare; // training images of the rank that has the fewest
};

// Every fifth image is for testing; the others are assigned to the ranks in
// turn.
inline Data readData(const std::string &path, size_t rank, size_t worldSize) {
  std::ifstream file(path);
  if (!file)
    throw std::runtime_error("cannot read '" + path + "'");
  Data data;
  std::vector<float> image(pixels);
  size_t number = 0, trainNumber = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#')
      continue;
    bool good = line.size() == pixels + 2 && line[pixels] == ' ' &&
                line.back() >= '0' && line.back() <= '9';
    for (size_t i = 0; good && i < pixels; ++i) {
      size_t value = std::string("0123456789abcdefg").find(line[i]);
      good = value != std::string::npos;
      image[i] = static_cast<float>(value) / 16;
    }
    if (!good)
      throw std::runtime_error("expected an image and its label in '" + path +
                               "', but got '" + line + "'");
    bool isTest = number++ % 5 == 4;
    if (!isTest && trainNumber++ % worldSize != rank)
      continue;
    Samples &samples = isTest ? data.test : data.train;
    samples.images.insert(samples.images.end(), image.begin(), image.end());
    samples.labels.push_back(line.back() - '0');
  }
  data.smallestShare = trainNumber / worldSize;
  return data;
}

#endif // DDPHOOK_EXAMPLES_DIGITS_DATA_H
