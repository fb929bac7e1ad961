#include "cli/sampled_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "cli/device_run.h"
#include "cli/emulation.h"
#include "cli/strided.h"
#include "generator/facts.h"
#include "reference/poison.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

constexpr std::int64_t kFar = std::int64_t{1} << 31;
constexpr std::uint64_t kClusters = 12;
constexpr std::size_t kPage = 4096;

/// A size along which the output is cut, and into what.
struct Cut {
  std::string name;
  std::int64_t unit = 1;
};

/// Its number along each cut.
using Tile = std::vector<std::int64_t>;

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::unsupported,
              "tensors of more than 2^31 elements are looked at by sampled tiles in the emulator, " + why);
}

struct Extent {
  std::vector<std::int64_t> shape, strides;
};

Extent extent_of(const BufferSpec& spec, const LaunchSizes& launch, const std::vector<std::int64_t>& sizes) {
  Extent extent;
  for (const Expression& each : spec.shape) extent.shape.push_back(launch.evaluate(each, sizes));
  for (const Expression& each : spec.strides) extent.strides.push_back(launch.evaluate(each, sizes));
  if (extent.strides.size() != extent.shape.size()) extent.strides = reference::dense_strides(extent.shape);
  return extent;
}

/// How an operator's output is cut.
std::vector<Cut> cuts_of(const Plan& plan, const std::map<std::string, std::int64_t>& sizes) {
  if (const auto* const gemm = plan.problem.get_if<Gemm>()) {
    const ProductFacts facts = product_facts(*gemm);
    if (facts.grouping != Grouping::none || facts.gate != Gate::none) refuse("without groups and gates");
    const ProductTiles tiles = product_tiles(plan);
    return {{"l", 1}, {"m", tiles.tile_m}, {"n", tiles.tile_n}};
  }
  if (const auto* const fmha = plan.problem.get_if<Fmha>()) {
    if (fmha->format) refuse("of attention without block scales");
    if (attention_facts(*fmha).kv_pools != KvPools::dense) refuse("without pools of keys");
    if (attention_facts(*fmha).kv_layout != KvLayout::dense) refuse("of attention with dense keys");
    const std::int64_t tile_m = plan.number("tile_m"), packed = plan.number("pack_gqa");
    if (sizes.at("seqlen_q") * packed > tile_m) refuse(fmt::format("of attention with one tile of {} rows", tile_m));
    const std::int64_t ratio = sizes.at("heads_q") / std::max<std::int64_t>(sizes.at("heads_kv"), 1);
    if (ratio != packed) refuse("with as many key heads as query heads (packed ones aside)");
    return {{"batch", 1}, {"heads_q", ratio}};
  }
  if (plan.op == "gemv") return {{"l", 1}, {"m", 1}};
  if (plan.op == "quantize" || plan.op == "dequantize") return {{"l", 1}, {"rows", 1}};
  refuse(fmt::format("not of {}", plan.op));
}

class SampledRun {
 public:
  SampledRun(emulator::EmulatedDevice& device, Kernel& kernel, const RunOperator& op, std::vector<std::int64_t> sizes,
             const RunFlags& flags)
      : device_(device),
        kernel_(kernel),
        plan_(kernel.plan()),
        launch_(plan_.launch),
        op_(op),
        sizes_(std::move(sizes)),
        flags_(flags) {
    if (!flags.arrays.empty()) refuse("with inputs of its own (--input)");
    if (plan_.launch.steps.size() != 1) refuse("of kernels that are launched alone");
    // A CTA for each tile, as far as that goes.
    const bool is_given = std::any_of(flags.given_sizes.begin(), flags.given_sizes.end(),
                                      [](const GivenSize& size) { return size.name == "num_sms"; });
    for (std::size_t i = 0; i < sizes_.size(); ++i)
      if (plan_.launch.sizes[i].name == "num_sms" && !is_given) sizes_[i] = plan_.launch.sizes[i].max;
    cuts_ = cuts_of(plan_, launch_.by_name(sizes_));
    for (const BufferSpec& spec : plan_.launch.buffers) {
      const Extent extent = extent_of(spec, launch_, sizes_);
      const DType dtype = *reference::dtype_from_name(spec.dtype);
      const auto bytes = static_cast<std::size_t>(strided_elements(spec.name, extent.shape, extent.strides)) *
                         static_cast<std::size_t>(dtype_bytes(dtype));
      buffers_.push_back({&spec, dtype, extent, bytes, DeviceMemory(device, bytes)});
      if (output_ == nullptr && spec.role == BufferRole::output) {
        output_ = &spec;
        output_number_ = buffers_.size() - 1;
      }
      pointers_.push_back(buffers_.back().memory.address());
    }
    fill();
  }

  SampledVerdict run(int jobs) {
    SampledVerdict verdict;
    LaunchArguments arguments;
    arguments.sizes = sizes_;
    const std::vector<double> scalars = op_.scalars(plan_, flags_);
    arguments.scalars = scalars;
    arguments.buffers = pointers_;
    if (kernel_.launcher(device_).workspace_bytes(arguments) > 0) refuse("without a workspace");
    device_.sample_clusters(kClusters);
    kernel_.launch(device_, Stream{}, arguments);
    device_.sample_clusters(0);
    verdict.clusters = device_.last_sample();
    verdict.is_stopped = merge_findings(verdict.findings, device_.take_findings());
    if (!verdict.is_stopped) compare(verdict, jobs);
    return verdict;
  }

 private:
  struct Buffer {
    const BufferSpec* spec = nullptr;
    DType dtype = DType::f32;
    Extent extent;
    std::size_t bytes = 0;
    DeviceMemory memory;
  };

  std::size_t number_of(const std::string& name) const {
    const auto& specs = plan_.launch.sizes;
    const auto found =
        std::find_if(specs.begin(), specs.end(), [&](const SizeSpec& spec) { return spec.name == name; });
    return static_cast<std::size_t>(found - specs.begin());
  }
  std::int64_t size(const std::vector<std::int64_t>& sizes, const std::string& name) const {
    return sizes[number_of(name)];
  }
  std::int64_t full(const std::string& name) const { return size(sizes_, name); }
  /// Sizes with other values along the cuts. Key heads go with the query heads.
  std::vector<std::int64_t> with(const std::vector<std::int64_t>& along_cuts) const {
    std::vector<std::int64_t> sizes = sizes_;
    for (std::size_t i = 0; i < cuts_.size(); ++i) {
      sizes[number_of(cuts_[i].name)] = along_cuts[i];
      if (cuts_[i].name == "heads_q") sizes[number_of("heads_kv")] = along_cuts[i] / cuts_[i].unit;
    }
    return sizes;
  }
  bool is_cut(const Expression& extent) const {
    return std::any_of(cuts_.begin(), cuts_.end(), [&](const Cut& cut) { return depends(extent, cut); });
  }
  static bool depends(const Expression& extent, const Cut& cut) {
    const auto has = [&](const char* name) {
      return std::find(extent.names().begin(), extent.names().end(), name) != extent.names().end();
    };
    return has(cut.name.c_str()) || (cut.name == "heads_q" && has("heads_kv"));
  }

  /// Inputs are those of a small problem, repeated with a period that no power of two is a multiple of: an address that
  /// is wrong by 2^32 bytes finds others. Its rows fill tiles of scales, so that no padding gets among scales. Outputs
  /// are poisoned.
  void fill() {
    std::vector<std::int64_t> few;
    for (const Cut& cut : cuts_) {
      const bool is_of_rows = cut.name == "m" || cut.name == "n" || cut.name == "rows";
      few.push_back(std::min<std::int64_t>(
          full(cut.name), is_of_rows ? round_up(13 * std::max<std::int64_t>(cut.unit, 48), kTileRows) : 4 * cut.unit));
    }
    const std::vector<std::int64_t> sizes = with(few);
    const auto inputs = op_.inputs(plan_, launch_, sizes, flags_);
    for (const Buffer& buffer : buffers_) {
      if (buffer.spec->role == BufferRole::output) {
        device_.poison(buffer.memory.address(), reference::kPoisonByte, buffer.bytes);
        continue;
      }
      std::vector<std::byte> pattern = inputs.at(buffer.spec->name).bytes;
      if (pattern.empty() || buffer.bytes == 0) continue;
      if (pattern.size() >= buffer.bytes) {
        device_.copy_to_device(buffer.memory.address(), pattern.data(), buffer.bytes);
        continue;
      }
      const std::size_t once = pattern.size();
      while (pattern.size() < 3 * kPage)
        pattern.insert(pattern.end(), pattern.begin(), pattern.begin() + static_cast<std::ptrdiff_t>(once));
      const std::size_t pages = pattern.size() / kPage;
      pattern.resize((pages % 2 == 1 ? pages : pages - 1) * kPage);
      device_.fill_pattern(buffer.memory.address(), pattern, buffer.bytes);
    }
  }

  /// Tiles of the first output that somebody wrote to, and how many elements of each.
  std::map<Tile, std::int64_t> written_tiles() const {
    const Buffer& output = buffers_[output_number_];
    const std::size_t rank = output.extent.shape.size();
    std::vector<std::int64_t> units;
    for (const Cut& cut : cuts_) units.push_back(cut.unit);
    const std::vector<std::int64_t> of_unit = extent_of(*output.spec, launch_, with(units)).shape;
    std::vector<std::size_t> by_stride(rank);
    std::iota(by_stride.begin(), by_stride.end(), std::size_t{0});
    std::sort(by_stride.begin(), by_stride.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(output.extent.strides[a], b) > std::pair(output.extent.strides[b], a);
    });
    std::map<Tile, std::int64_t> tiles;
    const auto element_bytes = static_cast<std::size_t>(dtype_bytes(output.dtype));
    for (const emulator::ByteRange& range : device_.written(output.memory.address(), output.bytes))
      for (std::size_t byte = range.first / element_bytes * element_bytes; byte < range.first + range.bytes;
           byte += element_bytes) {
        auto left = static_cast<std::int64_t>(byte / element_bytes);
        Tile tile(cuts_.size(), 0);
        bool is_element = true;
        for (const std::size_t d : by_stride) {
          const std::int64_t stride = std::max<std::int64_t>(output.extent.strides[d], 1), at = left / stride;
          left %= stride;
          is_element = is_element && at < output.extent.shape[d];
          for (std::size_t i = 0; i < cuts_.size(); ++i)
            if (depends(output.spec->shape[d], cuts_[i])) tile[i] = at / std::max<std::int64_t>(of_unit[d], 1);
        }
        if (is_element) ++tiles[tile];
      }
    return tiles;
  }

  /// A tile's scales, in tiles of 128 rows of their own. Behind its rows: zeros, or what is behind the last row of all
  /// where a cluster writes that too.
  reference::Tensor scales_part(const Buffer& buffer, const std::vector<std::int64_t>& first,
                                const std::vector<std::int64_t>& sizes) const {
    const std::vector<std::int64_t>& shape = buffer.extent.shape;
    reference::Tensor tensor(buffer.dtype, extent_of(*buffer.spec, launch_, sizes).shape);
    const auto begin_of = [&](std::size_t d) {
      return is_cut(buffer.spec->shape[d]) ? launch_.evaluate(buffer.spec->shape[d], first) : 0;
    };
    std::int64_t first_row = 0, rows = tensor.shape[1] * kTileRows, all_rows = shape[1] * kTileRows;
    for (const Cut& cut : cuts_)
      if (depends(buffer.spec->shape[1], cut)) {
        first_row = size(first, cut.name);
        rows = size(sizes, cut.name);
        all_rows = full(cut.name);
      }
    for (std::int64_t matrix = 0; matrix < tensor.shape[0]; ++matrix)
      for (std::int64_t row = 0; row < tensor.shape[1] * kTileRows; ++row) {
        const std::int64_t from = first_row + row;
        if ((row >= rows && (rows == 1 || from < all_rows)) || from >= shape[1] * kTileRows) continue;
        for (std::int64_t k_tile = 0; k_tile < tensor.shape[2]; ++k_tile) {
          const auto place = [](std::int64_t tile, std::int64_t of_row) {
            return tile * kTileBytes + scale_offset_in_tile(static_cast<int>(of_row % kTileRows), 0);
          };
          const std::int64_t tile = (matrix * tensor.shape[1] + row / kTileRows) * tensor.shape[2] + k_tile;
          const std::int64_t source =
              ((begin_of(0) + matrix) * shape[1] + from / kTileRows) * shape[2] + begin_of(2) + k_tile;
          device_.copy_to_host(tensor.bytes.data() + place(tile, row),
                               buffer.memory.address() + static_cast<DevicePointer>(place(source, from)), kTileBlocks);
        }
      }
    return tensor;
  }

  /// A buffer's part of a tile, dense.
  reference::Tensor part(const Buffer& buffer, const std::vector<std::int64_t>& first,
                         const std::vector<std::int64_t>& sizes) const {
    if (buffer.extent.shape.size() == 6) return scales_part(buffer, first, sizes);
    const std::vector<std::int64_t> shape = extent_of(*buffer.spec, launch_, sizes).shape;
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < shape.size(); ++d)
      if (is_cut(buffer.spec->shape[d]))
        offset += launch_.evaluate(buffer.spec->shape[d], first) * buffer.extent.strides[d];
    reference::Tensor tensor(buffer.dtype, shape);
    const std::int64_t bytes = dtype_bytes(buffer.dtype), run = shape.empty() ? 1 : shape.back();
    std::vector<std::int64_t> at(shape.size(), 0);
    for (std::int64_t i = 0; i < tensor.elements(); i += run) {
      std::int64_t place = offset, rest = i / run;
      for (std::size_t d = shape.size(); d-- > 1;) {
        place += rest % shape[d - 1] * buffer.extent.strides[d - 1];
        rest /= shape[d - 1];
      }
      device_.copy_to_host(tensor.bytes.data() + i * bytes,
                           buffer.memory.address() + static_cast<DevicePointer>(place * bytes),
                           static_cast<std::size_t>(run * bytes));
    }
    return tensor;
  }

  void compare(SampledVerdict& verdict, int jobs) const {
    reference::Comparison& all = verdict.comparison;
    const Buffer& output = buffers_[output_number_];
    const std::vector<std::int64_t>& shape = output.extent.shape;
    all.rows_total =
        reference::element_count(shape) / (shape.size() == 2 ? 1 : std::max<std::int64_t>(shape.back(), 1));
    // Rows of one CTA need not be whole tiles; of products and attention a CTA's tile is one.
    const bool takes_whole_ones = cuts_.back().name == "m" || cuts_.back().name == "rows";
    for (const auto& [tile, elements] : written_tiles()) {
      std::vector<std::int64_t> first, count;
      std::string name;
      for (std::size_t i = 0; i < cuts_.size(); ++i) {
        first.push_back(tile[i] * cuts_[i].unit);
        count.push_back(std::min(cuts_[i].unit, full(cuts_[i].name) - first.back()));
        name += fmt::format("{}{} {}", i == 0 ? "" : ", ", cuts_[i].name, first.back());
      }
      const std::vector<std::int64_t> places = with(first), sizes = with(count);
      std::map<std::string, reference::Tensor> inputs, outputs;
      for (const Buffer& buffer : buffers_)
        (buffer.spec->role == BufferRole::output ? outputs : inputs)
            .emplace(buffer.spec->name, part(buffer, places, sizes));
      if (takes_whole_ones && elements < outputs.at(output.spec->name).elements()) continue;
      ++verdict.tiles;
      RunFlags flags = flags_;
      flags.sizes = launch_.by_name(sizes);
      merge(all, op_.compare(plan_, inputs, outputs, flags, jobs), name);
    }
    // A cluster has as many as all have on average, or one less; at the edges, and where rows are cut, fewer.
    std::int64_t tiles = 1;
    for (const Cut& cut : cuts_) tiles *= (full(cut.name) + cut.unit - 1) / cut.unit;
    const auto clusters = static_cast<std::int64_t>(verdict.clusters.run);
    const std::int64_t least = clusters * (tiles / static_cast<std::int64_t>(verdict.clusters.of_grid)) * 3 / 4;
    if (verdict.tiles < std::max(least, clusters))
      all.problems.push_back(fmt::format("{} clusters ran, and wrote {} whole tiles of {}: at least {} are theirs",
                                         clusters, verdict.tiles, output.spec->name, std::max(least, clusters)));
    all.pass = all.problems.empty();
  }

  static void merge(reference::Comparison& all, const reference::Comparison& tile, const std::string& name) {
    for (const std::string& problem : tile.problems)
      if (all.problems.size() < 8) all.problems.push_back(fmt::format("tile at {}: {}", name, problem));
    all.rows_checked += tile.rows_checked;
    all.rel_error = std::max(all.rel_error, tile.rel_error);
    all.rel_bound = std::max(all.rel_bound, tile.rel_bound);
    all.max_abs_error = std::max(all.max_abs_error, tile.max_abs_error);
    all.cosine = std::min(all.cosine, tile.cosine);
  }

  emulator::EmulatedDevice& device_;
  Kernel& kernel_;
  const Plan& plan_;
  LaunchSizes launch_;
  const RunOperator& op_;
  std::vector<std::int64_t> sizes_;
  const RunFlags& flags_;
  std::vector<Cut> cuts_;
  std::vector<Buffer> buffers_;
  std::vector<DevicePointer> pointers_;
  const BufferSpec* output_ = nullptr;
  std::size_t output_number_ = 0;
};

}  // namespace

bool reaches_far(const Plan& plan, const LaunchSizes& launch, const std::vector<std::int64_t>& sizes) {
  if (run_row(plan.op).only_moves) return false;
  return std::any_of(plan.launch.buffers.begin(), plan.launch.buffers.end(), [&](const BufferSpec& spec) {
    const Extent extent = extent_of(spec, launch, sizes);
    const std::int64_t per_byte = spec.dtype == "u8" ? 2 : 1;  // elements of four bits
    return strided_elements(spec.name, extent.shape, extent.strides) * per_byte > kFar;
  });
}

SampledVerdict run_sampled(emulator::EmulatedDevice& device, Kernel& kernel, const RunOperator& op,
                           std::vector<std::int64_t> sizes, const RunFlags& flags, int jobs) {
  return SampledRun(device, kernel, op, std::move(sizes), flags).run(jobs);
}

}  // namespace tessera::cli
