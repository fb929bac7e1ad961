// Launches scale.ptx, out = factor * in, on the CPU with the installed emulator, and prints what it finds.
#include <tessera/emulator/device.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

int main(int argc, char** argv) {
  std::ifstream file(argc > 1 ? argv[1] : "scale.ptx");
  const std::string ptx((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  tessera::emulator::EmulatedDevice device({.seed = 7, .schedule = tessera::emulator::Schedule::adversarial});
  const auto image = device.load_ptx(ptx, "scale.ptx");

  std::uint32_t rows = 20, columns = 100;
  std::vector<float> in(rows * columns, 1.5F), out(rows * columns);
  const std::size_t bytes = in.size() * sizeof(float);
  const tessera::DevicePointer in_pointer = device.allocate(bytes);
  tessera::DevicePointer out_pointer = device.allocate(bytes);
  device.copy_to_device(in_pointer, in.data(), bytes);

  tessera::ResolvedTensorMap map;
  map.type = tessera::TensorMapType::f32;
  map.rank = 2;
  map.address = in_pointer;
  map.dims = {columns, rows};
  map.strides_bytes = {columns * sizeof(float)};
  map.box = {32, 8};
  tessera::TensorMapObject in_map;
  device.encode(map, in_map);

  float factor = 2;
  void* parameters[] = {&in_map, &out_pointer, &factor, &rows, &columns};
  device.launch({.entry = image->entry("scale"), .grid = {4, 3, 1}, .block = {256, 1, 1}, .parameters = parameters},
                {});
  for (const tessera::Finding& finding : device.synchronize()) std::puts(finding.message.c_str());
  device.copy_to_host(out.data(), out_pointer, bytes);
  std::printf("%td of %zu outputs are 3\n", std::count(out.begin(), out.end(), 3.0F), out.size());
}
