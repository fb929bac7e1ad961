// How `run` feeds and judges the copy.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "cli/call.h"
#include "cli/run_operator.h"
#include "reference/copy2d.h"
#include "reference/random.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

/// "500,1024" to {500, 1024}. Throws Error{usage}.
std::vector<std::int64_t> parse_shape(std::string_view text) {
  std::vector<std::int64_t> shape;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data() + start, text.data() + end, value);
    if (error != std::errc() || stop != text.data() + end || value < 0)
      throw Error(ErrorKind::usage,
                  fmt::format("--shape = {}: must be whole numbers of at least 0, outermost first, like "
                              "500,1024",
                              text));
    shape.push_back(value);
    start = end + 1;
  }
  return shape;
}

class RunCopy2d final : public RunOperator {
 public:
  std::vector<GivenSize> sizes(const Plan& plan, const RunFlags& flags) const override {
    const auto rank = static_cast<std::size_t>(plan.problem.as<Copy2d>().rank);
    static constexpr std::int64_t kExample[] = {1024, 300, 7, 3, 2};
    std::vector<std::int64_t> shape;
    if (const auto x = flags.arrays.find("x"); x != flags.arrays.end()) {
      shape = x->second.shape;
      if (!flags.shape.empty() && parse_shape(flags.shape) != shape)
        throw Error(ErrorKind::usage,
                    fmt::format("--shape {}: --input x has the shape {}", flags.shape, fmt::join(shape, ",")));
    } else if (!flags.shape.empty()) {
      shape = parse_shape(flags.shape);
    } else {
      for (std::size_t d = rank; d-- > 0;) shape.push_back(kExample[std::min<std::size_t>(d, 4)]);
    }
    if (shape.size() != rank)
      throw Error(ErrorKind::usage,
                  fmt::format("the shape has {}, the kernel is for rank {}: pin --rank {}",
                              counted(static_cast<std::int64_t>(shape.size()), "dimension"), rank, shape.size()));
    std::vector<GivenSize> given;
    for (std::size_t d = 0; d < rank; ++d) given.push_back({fmt::format("dim{}", d), shape[rank - 1 - d]});
    for (const GivenSize& size : flags.given_sizes)
      if (!flags.shape.empty() && size.name.starts_with("dim"))
        throw Error(ErrorKind::usage, fmt::format("{} is given twice (--shape {}, --size {}={}): give it once",
                                                  size.name, flags.shape, size.name, size.value));
    return given;
  }

  std::vector<double> scalars(const Plan&, const RunFlags&) const override { return {}; }

  std::map<std::string, reference::Tensor> inputs(const Plan& plan, const LaunchSizes& launch,
                                                  const std::vector<std::int64_t>& sizes,
                                                  const RunFlags& flags) const override {
    std::vector<std::int64_t> shape;
    for (const BufferSpec& buffer : plan.launch.buffers) {
      if (buffer.name != "x") continue;
      for (const Expression& extent : buffer.shape) shape.push_back(launch.evaluate(extent, sizes));
    }
    reference::Tensor x(plan.problem.as<Copy2d>().dtype, shape);
    const reference::Fill fill = flags.inputs == "integer"    ? reference::Fill::integer
                                 : flags.inputs == "uniform"  ? reference::Fill::uniform
                                 : flags.inputs == "standard" ? reference::Fill::standard
                                                              : reference::Fill::normal;
    // Copied as tf32 the interesting inputs are fp32 numbers that tf32 lacks.
    const bool is_tf32 = x.dtype == DType::tf32;
    if (is_tf32) x.dtype = DType::f32;
    reference::fill(x, fill, static_cast<std::uint64_t>(flags.seed), 0);
    if (is_tf32) x.dtype = DType::tf32;
    std::map<std::string, reference::Tensor> all;
    all.emplace("x", std::move(x));
    for (const auto& [name, tensor] : flags.arrays) all[name] = tensor;
    return all;
  }

  reference::Comparison compare(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                const std::map<std::string, reference::Tensor>& outputs, const RunFlags&,
                                int) const override {
    const std::vector<std::uint32_t>& box = plan.launch.tensor_maps.front().box;
    const std::vector<std::int64_t> tiles(box.rbegin(), box.rend());
    return reference::check_copy2d(inputs.at("x").view(), outputs.at("y").view(), tiles);
  }
};

}  // namespace

std::unique_ptr<RunOperator> make_run_copy2d() { return std::make_unique<RunCopy2d>(); }

}  // namespace tessera::cli
