// Plays the fuzzer's inputs without a fuzzer: the same COUNT random ones every time, or the files named.
//
//   fuzz_seeds COUNT | FILE...
#include <stdio.h>
#include <stdlib.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  char* end = nullptr;
  const unsigned long count = argc == 2 ? strtoul(argv[1], &end, 10) : 0;
  if (argc < 2 || (argc == 2 && *end == 0 && count == 0)) return 98;
  if (count == 0) {
    for (int i = 1; i < argc; ++i) {
      std::ifstream file(argv[i], std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    }
    return 0;
  }
  for (unsigned long seed = 0; seed < count; ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    std::vector<uint8_t> bytes(random() % 4096);
    // Small and large numbers alike: a third of the inputs has mostly zeros, a third mostly ones.
    const uint32_t fill = random() % 3;
    for (uint8_t& byte : bytes) {
      byte = static_cast<uint8_t>(random());
      if (fill != 0 && random() % 4 != 0) byte = fill == 1 ? 0 : 0xff;
    }
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  printf("%lu inputs\n", count);
}
