#include <cstdint>

namespace {

// SplitMix64 (Steele, Lea, Flood 2014) as a function of the position in its stream: any sample
// can be drawn without those before it, so every agent draws its own.
std::uint64_t draw(std::uint64_t key, std::uint64_t index) {
  std::uint64_t z = key + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

// Counts the samples start … stop-1 that fall into the quarter of a circle.
//
// A sample is one draw: the upper and the lower 31 bits are its coordinates. Whole numbers
// throughout, so every machine counts the same.
//
// @array inside[1]
extern "C" void hits(std::int64_t start, std::int64_t stop, std::int64_t seed,
                     std::int64_t *inside) {
  const std::uint64_t key = draw(0, static_cast<std::uint64_t>(seed));
  std::int64_t count = 0;
  for (std::int64_t i = start; i < stop; i++) {
    const std::uint64_t z = draw(key, static_cast<std::uint64_t>(i));
    const std::uint64_t x = z >> 33;
    const std::uint64_t y = z & 0x7FFFFFFFu;
    count += x * x + y * y < (std::uint64_t{1} << 62);
  }
  *inside = count;
}
