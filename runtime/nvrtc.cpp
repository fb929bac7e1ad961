// One compile: sources by name from memory, PTX and cubin out, what ptxas said as data.
//
// Hermetic: no include path, `--no-source-include` (without it NVRTC looks for `#include "x"` in the working
// directory), and all sources have absolute virtual paths: with `-lineinfo` a relative one drags the working directory
// into PTX and cubin. The bundle's program name is such a path; headers keep the names that #include spells and begin
// with a #line directive. NVRTC compiles in parallel on several threads; nothing here is shared but the
// libraries (nvrtc_instances.h) and the list of architectures, which is made once.
#include "runtime/nvrtc.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/begun.h"
#include "runtime/compiler_suffix.h"
#include "runtime/kernel_pieces.h"
#include "runtime/nvrtc_instances.h"
#include "runtime/nvrtc_library.h"
#include "runtime/nvrtc_log.h"
#include "runtime/nvrtc_repro.h"
#include "runtime/own_stack.h"
#include "runtime/underway.h"
#include "tessera/error.h"

namespace tessera {

namespace {

class Program {
 public:
  Program(const NvrtcLibrary& library, const std::string& name, const std::string& text,
          const std::vector<SourceFile>& headers)
      : api_(library.api), guest_(library.guest) {
    std::vector<std::string> placed;
    for (const SourceFile& header : headers)
      placed.push_back(fmt::format("#line 1 \"{}{}\"\n{}", kHeaderRoot, header.path, header.text));
    std::vector<const char*> texts, paths;
    for (std::size_t i = 0; i < headers.size(); ++i) {
      texts.push_back(placed[i].c_str());
      paths.push_back(headers[i].path.c_str());
    }
    check(api_.create_program(&program_, text.c_str(), name.c_str(), static_cast<int>(headers.size()), texts.data(),
                              paths.data()),
          "nvrtcCreateProgram");
  }
  ~Program() { api_.destroy_program(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  nvrtcResult compile(const std::vector<std::string>& options) {
    std::vector<const char*> pointers;
    for (const std::string& option : options) pointers.push_back(option.c_str());
    const Underway underway;
    nvrtcResult result = 0;
    with_own_stack([&] {
      const GuestScope scope(guest_);
      result = api_.compile_program(program_, static_cast<int>(pointers.size()), pointers.data());
    });
    return result;
  }

  std::string log() const { return without_nul(fetch<std::string>(api_.log_size, api_.log, "nvrtcGetProgramLog")); }
  std::string ptx() const { return without_nul(fetch<std::string>(api_.ptx_size, api_.ptx, "nvrtcGetPTX")); }
  std::vector<std::byte> cubin() const {
    return fetch<std::vector<std::byte>>(api_.cubin_size, api_.cubin, "nvrtcGetCUBIN");
  }

 private:
  void check(nvrtcResult result, const char* call) const {
    if (result != 0)
      throw Error(ErrorKind::compile, fmt::format("{} failed: {} ({})", call, api_.error_string(result), result));
  }

  template <class Container>
  Container fetch(nvrtcResult (*size_of)(nvrtcProgram, std::size_t*), nvrtcResult (*get)(nvrtcProgram, char*),
                  const char* call) const {
    std::size_t bytes = 0;
    check(size_of(program_, &bytes), call);
    Container container(bytes, {});
    if (bytes > 0) check(get(program_, reinterpret_cast<char*>(container.data())), call);
    return container;
  }

  /// Texts come with their terminating zero.
  static std::string without_nul(std::string text) {
    while (!text.empty() && text.back() == '\0') text.pop_back();
    return text;
  }

  const NvrtcApi& api_;
  const GuestLibrary& guest_;
  nvrtcProgram program_ = nullptr;
};

bool spills(const Image& image) {
  return std::any_of(image.report.entries.begin(), image.report.entries.end(), [](const EntryReport& entry) {
    return entry.spill_store_bytes + entry.spill_load_bytes + entry.stack_bytes > 0;
  });
}

/// Options that every compile has, unless the bundle says the same thing in its own way. --no-cache: since 12.9 NVRTC
/// keeps a cache of its own on disk where a driver is present (seen on an H200 machine); a hit comes without the
/// assembler's report.
std::vector<std::string> all_options(const SourceBundle& bundle, const CompilerIdentity& nvrtc, bool makes_cubin) {
  // "compute_100a" gives PTX alone.
  const bool is_real = makes_cubin || bundle.arch.rfind("sm_", 0) != 0;
  const std::string arch = is_real ? bundle.arch : "compute_" + bundle.arch.substr(3);
  std::vector<std::string> options{"--gpu-architecture=" + arch, "--no-source-include", "--ptxas-options=-v"};
  const bool has_cache = nvrtc.major_version > 12 || (nvrtc.major_version == 12 && nvrtc.minor_version >= 9);
  if (has_cache) options.push_back("--no-cache");
  // No textures, no types of the runtime API: a hundredth of a kernel's compile.
  if (nvrtc.major_version >= 13 && !bundle.is_changed) options.push_back("--minimal");
  const auto sets_standard = [](const std::string& option) {
    return option.rfind("--std", 0) == 0 || option.rfind("-std", 0) == 0;
  };
  if (std::none_of(bundle.options.begin(), bundle.options.end(), sets_standard)) options.push_back("--std=c++20");
  for (const std::string& option : bundle.options)
    if (std::find(options.begin(), options.end(), option) == options.end()) options.push_back(option);
  return options;
}

class NvrtcCompiler final : public Compiler {
 public:
  explicit NvrtcCompiler(const NvrtcOptions& options)
      : options_(options), instances_(nvrtc_instances(options)), identity_(instances_.first().library().identity) {
    if (joins_pieces())
      identity_.build_id =
          first_id(instances_.second_id().empty() ? std::string(kAlone) : "+" + instances_.second_id());
  }

  const CompilerIdentity& identity() const override { return identity_; }

  const std::vector<std::string>& architectures() const override {
    std::call_once(architectures_once_, [&] { architectures_ = probe_architectures(); });
    return architectures_;
  }

  /// A merge on a thread of its own.
  Image compile(const SourceBundle& bundle) override {
    refuse_lasting(bundle.options);
    if (bundle.merge == nullptr) return compile_kernel(bundle);
    const auto start = std::chrono::steady_clock::now();
    std::future<Image> merge =
        begun([this, &bundle] { return compile_whole(*bundle.merge, kCompileTurn + kCompileTurn); });
    Image image = compile_kernel(bundle);  // where it throws, the future waits for the merge
    add_merge(image, merge.get());
    image.report.compile_ms = milliseconds_since(start);
    return image;
  }

 private:
  struct Piece {
    std::optional<Image> image;
    std::string problem;  ///< where there is none
  };

  /// The build id of the first NVRTC and what stands behind it.
  std::string first_id(std::string_view suffix) const {
    return instances_.first().library().identity.build_id + std::string(suffix);
  }

  /// NVRTC keeps what -Xnvvm says for all that the process compiles later, under keys that know nothing of it.
  static void refuse_lasting(const std::vector<std::string>& options) {
    for (const std::string& option : options)
      if (option.rfind("-Xnvvm", 0) == 0 || option.rfind("--Xnvvm", 0) == 0)
        throw Error(ErrorKind::usage,
                    fmt::format("NVRTC option {}: NVRTC would keep what follows it for all kernels that this process "
                                "compiles later",
                                option));
  }

  static double milliseconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }

  /// Cubins of 12.x are of another form (no .nv.compat): their pieces would be compiled for nothing.
  bool joins_pieces() const { return options_.makes_cubin && identity().major_version >= 13; }

  Image compile_kernel(const SourceBundle& bundle) const {
    if (bundle.pieces.empty() || !joins_pieces() || bundle.entries.size() != 1) return compile_whole(bundle);
    const auto start = std::chrono::steady_clock::now();
    std::string failed, refused;
    std::vector<Image> pieces = compile_pieces(bundle, failed);
    // Pieces that keep their values are without their option then, all of them.
    if (!failed.empty() && instances_.refuses_option()) pieces = compile_pieces(bundle, failed);
    std::optional<Image> image;
    if (failed.empty()) {
      const auto was_alone = [](const Image& piece) { return is_lesser(piece.report.compiler); };
      const bool is_alone = std::any_of(pieces.begin(), pieces.end(), was_alone);
      image = join_pieces(pieces, bundle.entries.front(), refused);
      if (!image) {
        image = compile_whole(bundle);
        image->report.log += fmt::format("tessera: compiled whole, as its pieces can't be joined: {}\n", refused);
      }
      image->report.compiler = compiler_of(bundle, identity_);
      if (is_alone) image->report.compiler.build_id = first_id(kAlone);
    } else {
      // What is wrong, or that there is too little memory for several, is what the whole kernel's compile says, or does
      // not.
      image = compile_whole(bundle);
      image->report.log += fmt::format("tessera: compiled whole, as a piece failed: {}\n", failed);
      image->report.compiler.build_id += kWhole;
    }
    image->report.compile_ms = milliseconds_since(start);
    return std::move(*image);
  }

  /// `failed`: what one said that failed; empty where none did.
  std::vector<Image> compile_pieces(const SourceBundle& bundle, std::string& failed) const {
    // The last one, which takes longest, here and first. Where one throws, the futures wait for the others.
    const std::size_t last = bundle.pieces.size() - 1;
    std::vector<std::future<Piece>> others;
    for (std::size_t i = 0; i < last; ++i)
      others.push_back(begun([this, &bundle, i] { return compile_piece(bundle, i, kCompileTurn); }));
    Piece longest = compile_piece(bundle, last);
    std::vector<Image> images;
    failed.clear();
    const auto take = [&](Piece piece) {
      if (piece.image)
        images.push_back(std::move(*piece.image));
      else
        failed = piece.problem;
    };
    for (std::future<Piece>& other : others) take(other.get());
    take(std::move(longest));
    return images;
  }

  /// The bundle that one piece is compiled from.
  static SourceBundle piece_of(const SourceBundle& bundle, std::size_t index) {
    SourceBundle piece = bundle;
    for (SourceFile& header : piece.headers)
      if (header.path == bundle.pieces[index].header.path) header.text = bundle.pieces[index].header.text;
    // The machine code of pieces has no line table, and lines are a twenty-fifth of a compile.
    if (!bundle.is_changed) std::erase(piece.options, "-lineinfo");
    return piece;
  }

  /// `turn`: how long it waits for others to begin: what takes longest should have an NVRTC for itself first
  /// (nvrtc_instances.h).
  Piece compile_piece(const SourceBundle& bundle, std::size_t index, std::chrono::milliseconds turn = {}) const {
    const SourceBundle source = piece_of(bundle, index);
    const bool keeps_values = bundle.pieces[index].keeps_values;
    SharedNvrtc* const for_kept_values = keeps_values ? instances_.for_kept_values() : nullptr;
    if (turn.count() > 0) std::this_thread::sleep_for(turn);
    const auto noted = [&](Piece piece, std::string_view how) {
      if (piece.image)
        piece.image->report.log +=
            fmt::format("tessera: piece {} {} {}\n", index + 1, how, fmt::join(kOptionsOfKept, " "));
      return piece;
    };
    std::string how;
    if (for_kept_values != nullptr) {
      const SharedNvrtc::Lease lease(*for_kept_values);
      Piece piece = compile_in(lease.library(), source, true, true);
      if (!piece.image || !spills(*piece.image)) return noted(std::move(piece), "with");
      how = "spills with, so it is compiled without,";  // in fewer registers
    } else if (keeps_values) {
      how = fmt::format("without, as no second NVRTC knows it ({}),", instances_.why_none());
    }
    const SharedNvrtc::Lease lease(instances_.first());
    Piece piece = compile_in(lease.library(), source, true);
    if (keeps_values && for_kept_values == nullptr && piece.image)
      piece.image->report.compiler.build_id = first_id(kAlone);
    return how.empty() ? std::move(piece) : noted(std::move(piece), how);
  }

  Image compile_whole(const SourceBundle& bundle, std::chrono::milliseconds turn = {}) const {
    if (turn.count() > 0) std::this_thread::sleep_for(turn);
    const SharedNvrtc::Lease lease(instances_.first());
    return *compile_in(lease.library(), bundle, false).image;
  }

  /// Throws where a whole kernel fails.
  Piece compile_in(const NvrtcLibrary& library, const SourceBundle& bundle, bool is_piece,
                   bool keeps_values = false) const {
    std::vector<std::string> options = all_options(bundle, identity(), options_.makes_cubin);
    if (keeps_values) options.insert(options.end(), kOptionsOfKept.begin(), kOptionsOfKept.end());
    const auto start = std::chrono::steady_clock::now();
    Program program(library, bundle.program, bundle.text, bundle.headers);
    const nvrtcResult result = program.compile(options);
    Image image;
    image.report.log = program.log();
    if (result != 0 && is_piece)
      return {.image = {},
              .problem = image.report.log.empty() ? library.api.error_string(result)
                                                  : image.report.log.substr(0, image.report.log.find('\n'))};
    if (result != 0) fail(bundle, options, result, image.report.log);
    image.ptx = program.ptx();
    if (options_.makes_cubin) image.cubin = program.cubin();
    if (options_.makes_cubin && image.cubin.empty()) refuse_arch(bundle.arch);  // "compute_90a" gives PTX alone
    image.report.compile_ms = milliseconds_since(start);
    image.report.compiler = instances_.first().library().identity;
    image.report.entries = parse_entry_reports(image.report.log);
    image.report.notes = parse_notes(image.report.log);
    return {.image = std::move(image), .problem = {}};
  }

  /// The library tells the numbers; which of them have an `a` or an `f` variant is found by trial: an `#error` is
  /// reached only for an arch that exists (7 ms each on the machine where it was measured, 0.05 ms for one that does
  /// not).
  std::vector<std::string> probe_architectures() const {
    int count = 0;
    const NvrtcApi& api = instances_.first().library().api;
    if (api.num_supported_archs(&count) != 0 || count <= 0) return {};
    std::vector<int> numbers(static_cast<std::size_t>(count));
    if (api.supported_archs(numbers.data()) != 0) return {};
    std::vector<std::string> known;
    for (const int number : numbers) {
      known.push_back(fmt::format("sm_{}", number));
      for (const char suffix : {'a', 'f'})
        if (std::string arch = fmt::format("sm_{}{}", number, suffix); is_known(arch)) known.push_back(std::move(arch));
    }
    return known;
  }

  bool is_known(const std::string& arch) const {
    Program program(instances_.first().library(), "/tessera/probe.cu", "#error tessera_probe\n", {});
    program.compile({"--gpu-architecture=" + arch});
    return program.log().find("tessera_probe") != std::string::npos;
  }

  [[noreturn]] void refuse_arch(const std::string& arch) const {
    throw Error(ErrorKind::unsupported, fmt::format("arch {}: {} generates code for {}", arch, identity().to_string(),
                                                    fmt::join(architectures(), ", ")));
  }

  [[noreturn]] void fail(const SourceBundle& bundle, const std::vector<std::string>& options, nvrtcResult result,
                         const std::string& log) const {
    // Nothing is wrong with the source then: NVRTC_ERROR_OUT_OF_MEMORY, or what its front end says of itself.
    constexpr nvrtcResult kOutOfMemory = 1;
    if (result == kOutOfMemory || log.find("catastrophic error: out of memory") != std::string::npos)
      throw Error(
          ErrorKind::device,
          fmt::format("{}: the compiler ran out of memory: this machine, or a limit of the process (ulimit -v), "
                      "gives no more",
                      bundle.entries.empty() ? bundle.program : bundle.entries.front()));
    const std::vector<std::string>& known = architectures();
    if (std::find(known.begin(), known.end(), bundle.arch) == known.end()) refuse_arch(bundle.arch);
    const std::vector<Diagnostic> errors = parse_errors(log, bundle);
    std::vector<std::string> notes;
    for (const Diagnostic& error : errors) notes.push_back(error.to_string());
    for (const SourceFile& header : bundle.headers)
      if (std::filesystem::path(header.path).filename() == "config.cuh")
        notes.push_back(fmt::format("{}:\n{}", header.path, indented(header.text)));
    notes.push_back(fmt::format("options: {}", fmt::join(options, " ")));
    try {
      const std::filesystem::path folder = write_repro(options_.repro_folder, bundle, options, log);
      notes.push_back(fmt::format("replay: {}", (folder / "run.sh").string()));
    } catch (const Error& error) {
      notes.push_back(fmt::format("the sources could not be kept: {}", error.what()));
    }
    if (errors.empty()) notes.push_back(fmt::format("log:\n{}", indented(log)));
    const std::string kernel = bundle.entries.empty() ? bundle.program : bundle.entries.front();
    const std::string reason =
        errors.empty() ? instances_.first().library().api.error_string(result) : first_line(errors.front());
    throw Error(ErrorKind::compile, fmt::format("{}: does not compile for {}: {}", kernel, bundle.arch, reason),
                std::move(notes));
  }

  static std::string indented(const std::string& text) {
    std::string out;
    for (std::size_t start = 0; start < text.size();) {
      const std::size_t end = std::min(text.find('\n', start), text.size());
      if (end > start) out += fmt::format("{}  {}", out.empty() ? "" : "\n", text.substr(start, end - start));
      start = end + 1;
    }
    return out;
  }

  static std::string first_line(const Diagnostic& diagnostic) {
    const std::string text = diagnostic.to_string();
    return text.substr(0, text.find('\n'));
  }

  NvrtcOptions options_;
  NvrtcInstances& instances_;
  CompilerIdentity identity_;
  mutable std::once_flag architectures_once_;
  mutable std::vector<std::string> architectures_;
};

}  // namespace

std::unique_ptr<Compiler> make_nvrtc_compiler(const NvrtcOptions& options) {
  return std::make_unique<NvrtcCompiler>(options);
}

}  // namespace tessera
