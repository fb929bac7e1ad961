// tessera run: real inputs through the compiled kernel on a device, compared with the reference, timed.
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/npy.h"
#include "cli/call.h"
#include "cli/device_run.h"
#include "cli/run_operator.h"

namespace tessera::cli {

namespace {

/// "q=file.npy"
std::pair<std::string, std::string> parse_binding(const char* flag, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw Error(ErrorKind::usage, fmt::format("{} {}: must be NAME=FILE.npy, like {} q=q.npy", flag, text, flag));
  return {text.substr(0, equals), text.substr(equals + 1)};
}

reference::Tensor read_array(const Plan& plan, const std::string& name, const std::string& file) {
  for (const BufferSpec& buffer : plan.launch.buffers) {
    if (buffer.name != name || buffer.role == BufferRole::output) continue;
    NpyArray array = read_npy(file);
    if (array.descr != npy_descr_of(buffer.dtype))
      throw Error(ErrorKind::usage, fmt::format("{}: holds {}, {} is {}: {} expected", file, array.descr, name,
                                                buffer.dtype, npy_descr_of(buffer.dtype)));
    reference::Tensor tensor;
    tensor.dtype = *reference::dtype_from_name(buffer.dtype);
    tensor.shape = array.shape;
    tensor.bytes = std::move(array.data);
    return tensor;
  }
  throw Error(ErrorKind::usage, fmt::format("--input {}: {} has no input of that name", name, plan.op));
}

/// Arrays must fit the sizes of the launch, which may come from flags or from other arrays.
void check_shapes(const Plan& plan, const LaunchSizes& launch, const std::vector<std::int64_t>& sizes,
                  const RunFlags& flags) {
  for (const BufferSpec& buffer : plan.launch.buffers) {
    const auto given = flags.arrays.find(buffer.name);
    if (given == flags.arrays.end()) continue;
    std::vector<std::int64_t> expected;
    for (const Expression& extent : buffer.shape) expected.push_back(launch.evaluate(extent, sizes));
    if (given->second.shape != expected)
      throw Error(ErrorKind::usage, fmt::format("--input {}: shape [{}] given, [{}] expected", buffer.name,
                                                fmt::join(given->second.shape, ", "), fmt::join(expected, ", ")));
  }
}

/// A number, or null: JSON has neither infinity nor NaN.
OrderedJson number(double value) { return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr); }

class RunCommand final : public Command {
 public:
  HelpPage help() const override {
    return {
        "tessera run OP [selectors] [sizes] [flags]",
        "tessera run: launch a kernel and compare it with a float64 reference",
        "Outputs are poisoned before the launch and the memory around every buffer is guarded. Every element is "
        "looked\n"
        "at for poison; rows are compared with a float64 reference, all of them or, for large problems, whole rows:\n"
        "first and last, every tile edge, random ones. The allowed error is derived from the roundings of the\n"
        "hardware (reference/fmha_bound.h). With --device auto and no GPU the kernel is compiled and nothing runs.\n",
        {"tessera run fmha --head-dim 128 --mask causal --batch 4 --heads-q 32 --heads-kv 8 --seqlen-q 4096",
         "tessera run fmha --input q=q.npy --input k=k.npy --input v=v.npy --save o=o.npy",
         "tessera run fmha --output unnormalized --inputs integer   (exact: no rounding is allowed)",
         "tessera run copy2d --dtype u8 --shape 333,4096 --swizzle 64B"}};
  }
  void add_flags(FlagSet& flags, CLI::App& app) override {
    app.add_option("OP", subject_);
    flags.group("Flags");
    flags.text("--device", "WORD", device_, "gpu, emulator or auto: the GPU where there is one (default)");
    flags.text("--inputs", "WORD", run_.inputs, "normal (default), uniform, or integer: small whole numbers");
    flags.number("--seed", "N", run_.seed, 0, "of the inputs");
    flags.list("--input", "NAME=FILE", input_files_, "an input from a .npy file; repeatable");
    flags.list("--save", "NAME=FILE", output_files_, "write an output as a .npy file; repeatable");
    flags.text("--softmax-scale", "X", scale_, "fmha: factor of the scores (default: 1 / sqrt(head_dim))");
    flags.text("--shape", "N,N", run_.shape, "copy2d: extents, outermost first");
    flags.number("--repeat", "N", repeat_, 0, "timed launches, their median counts; 0: no timing (default: 20)");
    selectors_.add_to(flags);
  }

  ExitCode run(Call& call) override {
    check_flags();
    const ProblemList list = read_problems(subject_, selectors_);
    const bool is_single = list.count() == 1;
    if (!is_single && !output_files_.empty())
      throw Error(ErrorKind::usage, fmt::format("--save keeps one run's outputs: there are {} problems", list.count()));
    std::string reason;
    const std::unique_ptr<Device> gpu = call.host().open_gpu ? call.host().open_gpu(reason) : nullptr;
    if (!gpu && device_ == "gpu") throw Error(ErrorKind::device, "no GPU here: " + reason);
    OrderedJson results = OrderedJson::array();
    ExitCode code = kOk;
    std::int64_t rejected = 0;
    list.for_each([&](const Problem& problem, std::size_t) {
      try {
        OrderedJson result = run_one(call, problem, gpu.get(), reason);
        if (result["pass"] == false) code = graver(code, kWrong);
        results.push_back(std::move(result));
      } catch (const Error& error) {
        if (is_single || error.kind() != ErrorKind::unsupported) throw;
        ++rejected;
        call.note(fmt::format("rejected: {}: {}", describe(problem), error.what()));
      }
    });
    if (call.is_json())
      call.print_json(
          is_single ? results.front()
                    : OrderedJson{{"pass", gpu ? OrderedJson(code == kOk) : OrderedJson(nullptr)}, {"runs", results}});
    return rejected == list.count() ? kUnsupported : code;
  }

 private:
  void check_flags() {
    if (subject_.empty()) throw Error(ErrorKind::usage, "run: name an operator, like `tessera run fmha`");
    if (device_ == "emulator")
      throw Error(ErrorKind::unsupported, "--device emulator: there is no emulator in this version; take gpu or auto");
    if (device_ != "gpu" && device_ != "auto")
      throw Error(ErrorKind::usage, fmt::format("--device = {}: must be one of gpu, emulator, auto", device_));
    if (run_.inputs != "normal" && run_.inputs != "uniform" && run_.inputs != "integer")
      throw Error(ErrorKind::usage, fmt::format("--inputs = {}: must be one of normal, uniform, integer", run_.inputs));
    if (!run_.shape.empty() && subject_ == "fmha")
      throw Error(ErrorKind::usage, "--shape: is for copy2d; fmha has --batch, --heads-q, --seqlen-q and others");
    if (!scale_.empty() && subject_ == "copy2d") throw Error(ErrorKind::usage, "--softmax-scale: is for fmha");
    if (scale_.empty()) return;
    const auto [stop, error] = std::from_chars(scale_.data(), scale_.data() + scale_.size(), run_.softmax_scale);
    if (error != std::errc() || stop != scale_.data() + scale_.size() || !std::isfinite(run_.softmax_scale) ||
        run_.softmax_scale == 0)
      throw Error(ErrorKind::usage, fmt::format("--softmax-scale = {}: must be a finite number other than 0", scale_));
  }

  OrderedJson run_one(Call& call, const Problem& problem, Device* gpu, const std::string& reason) {
    const std::unique_ptr<RunOperator> op = operator_name(problem) == "fmha" ? make_run_fmha() : make_run_copy2d();
    RunFlags flags = run_;
    const Plan plan = make_plan(problem);
    for (const std::string& text : input_files_) {
      const auto [name, file] = parse_binding("--input", text);
      flags.arrays[name] = read_array(plan, name, file);
    }
    for (const std::string& text : output_files_) check_save(plan, parse_binding("--save", text).first);
    const LaunchSizes launch(plan.launch);
    std::vector<GivenSize> given = op->sizes(problem, flags);
    if (gpu != nullptr && std::any_of(plan.launch.sizes.begin(), plan.launch.sizes.end(),
                                      [](const SizeSpec& size) { return size.name == "num_sms"; }))
      given.push_back({"num_sms", gpu->info().num_sms});
    const auto sizes = launch.complete(given);
    if (!sizes) throw Error(ErrorKind::usage, fmt::format("not all sizes of {} are known", plan.op));
    if (const auto problems = launch.problems(*sizes); !problems.empty())
      throw Error(ErrorKind::usage, problems.front(), {problems.begin() + 1, problems.end()});
    check_shapes(plan, launch, *sizes, flags);
    const std::shared_ptr<Kernel> kernel = call.jit().kernel(problem);
    if (gpu == nullptr) return not_run(call, plan, reason);
    return run_on(call, *op, *kernel, *gpu, launch, *sizes, flags);
  }

  static OrderedJson not_run(Call& call, const Plan& plan, const std::string& reason) {
    if (!call.is_json())
      call.print(
          fmt::format("{}: compiled; not run: no GPU here ({})\n", plan.kernel, reason.empty() ? "none" : reason));
    return {{"pass", nullptr},    {"rel_error", nullptr},  {"max_abs_error", nullptr},
            {"cosine", nullptr},  {"rows_checked", 0},     {"device", nullptr},
            {"time_us", nullptr}, {"kernel", plan.kernel}, {"not_run", "no GPU here: " + reason}};
  }

  OrderedJson run_on(Call& call, const RunOperator& op, Kernel& kernel, Device& gpu, const LaunchSizes& launch,
                     const std::vector<std::int64_t>& sizes, const RunFlags& flags) const {
    const Plan& plan = kernel.plan();
    const std::map<std::string, reference::Tensor> inputs = op.inputs(plan, launch, sizes, flags);
    DeviceRun run(gpu, kernel, sizes, op.scalars(plan, flags), inputs);
    std::vector<std::string> problems;
    run.launch();
    const std::map<std::string, reference::Tensor> outputs = run.read_outputs(problems);
    double time_us = 0;
    if (repeat_ > 0) {
      time_us = run.time_us(static_cast<int>(std::min<std::int64_t>(repeat_, 100000)));
      for (const auto& [name, again] : run.read_outputs(problems))
        if (again.bytes != outputs.at(name).bytes)
          problems.push_back(fmt::format("{}: another launch with the same inputs gave other bits", name));
    }
    save(outputs);
    reference::Comparison result = op.compare(plan, inputs, outputs, flags, call.jobs());
    problems.insert(problems.end(), result.problems.begin(), result.problems.end());
    const bool pass = problems.empty();
    if (!call.is_json()) print_text(call, plan, gpu, result, problems, time_us);
    return {{"pass", pass},
            {"rel_error", number(result.rel_error)},
            {"max_abs_error", number(result.max_abs_error)},
            {"cosine", number(result.cosine)},
            {"rows_checked", result.rows_checked},
            {"device", gpu.info().name},
            {"time_us", repeat_ > 0 ? number(time_us) : OrderedJson(nullptr)},
            {"kernel", plan.kernel},
            {"rows_total", result.rows_total},
            {"rel_bound", number(result.rel_bound)},
            {"problems", problems}};
  }

  void print_text(Call& call, const Plan& plan, const Device& gpu, const reference::Comparison& result,
                  const std::vector<std::string>& problems, double time_us) const {
    call.print(fmt::format(
        "{} on {}\n  {}: relative error {:.3g} (explained by rounding: {:.3g}), largest {:.3g}, "
        "cosine {:.9f}, {} of {} rows\n",
        plan.kernel, gpu.info().name, problems.empty() ? "pass" : "FAIL", result.rel_error, result.rel_bound,
        result.max_abs_error, result.cosine, grouped(result.rows_checked), grouped(result.rows_total)));
    for (const std::string& problem : problems) call.print("  " + problem + "\n");
    if (repeat_ > 0)
      call.print(fmt::format("  time {:.1f} us (median of {}, L2 overwritten before each)\n", time_us, repeat_));
  }

  static void check_save(const Plan& plan, const std::string& name) {
    const bool is_output =
        std::any_of(plan.launch.buffers.begin(), plan.launch.buffers.end(),
                    [&](const BufferSpec& buffer) { return buffer.name == name && buffer.role != BufferRole::input; });
    if (!is_output)
      throw Error(ErrorKind::usage, fmt::format("--save {}: {} has no output of that name", name, plan.op));
  }

  void save(const std::map<std::string, reference::Tensor>& outputs) const {
    for (const std::string& text : output_files_) {
      const auto [name, file] = parse_binding("--save", text);
      const reference::Tensor& tensor = outputs.at(name);
      write_npy(file, {std::string(npy_descr_of(reference::dtype_name(tensor.dtype))), tensor.shape, tensor.bytes});
    }
  }

  std::string subject_, device_ = "auto", scale_;
  std::vector<std::string> input_files_, output_files_;
  std::int64_t repeat_ = 20;
  RunFlags run_;
  SelectorFlags selectors_;
};

}  // namespace

std::unique_ptr<Command> make_run_command() { return std::make_unique<RunCommand>(); }

}  // namespace tessera::cli
