// tessera cache: look into the cache tiers, verify them, prune, carry entries from one machine to another.
#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/shell.h"
#include "cli/cache_remote.h"
#include "cli/call.h"
#include "generator/selectors.h"
#include "tessera/cache_admin.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

std::string entries_text(std::int64_t count) { return counted(count, "entry", "entries"); }

std::string short_key(const EntryKeys& keys) { return (keys.entry.empty() ? keys.source : keys.entry).substr(0, 12); }

OrderedJson json_of(const CacheListing& entry) {
  OrderedJson json = {{"key", entry.keys.entry},
                      {"source_key", entry.keys.source},
                      {"op", entry.op},
                      {"arch", entry.arch},
                      {"entry", entry.kernel},
                      {"compiler", entry.compiler.name.empty() ? "unknown" : entry.compiler.to_string()},
                      {"tier", to_string(entry.tier)},
                      {"folder", entry.folder.string()},
                      {"bytes", entry.bytes}};
  if (!entry.damage.empty()) json["damage"] = entry.damage;
  return json;
}

OrderedJson json_of(const std::vector<CacheListing>& entries) {
  OrderedJson json = OrderedJson::array();
  for (const CacheListing& entry : entries) json.push_back(json_of(entry));
  return json;
}

OrderedJson json_of(const std::vector<CacheFault>& faults) {
  OrderedJson json = OrderedJson::array();
  for (const CacheFault& fault : faults) json.push_back({{"path", fault.path}, {"reason", fault.reason}});
  return json;
}

/// Says what was not looked into or not changed; the code of a call that did the rest.
ExitCode complain_of(const Call& call, const std::vector<CacheFault>& faults) {
  constexpr std::size_t kMaxShown = 20;
  for (std::size_t i = 0; i < std::min(kMaxShown, faults.size()); ++i) call.complain(faults[i].to_string());
  if (faults.size() > kMaxShown)
    call.complain(fmt::format("... and {} more", grouped(static_cast<std::int64_t>(faults.size() - kMaxShown))));
  return faults.empty() ? kOk : kDevice;
}

/// The machine code as nvdisasm prints it, through a temporary file.
std::string disassemble(const std::vector<std::byte>& cubin) {
  std::error_code code;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(code);
  std::string path = (folder / "tessera-sass-XXXXXX").string();
  const int descriptor = code ? -1 : mkstemp(path.data());
  if (descriptor < 0) throw Error(ErrorKind::io, "no temporary file can be made for nvdisasm: see TMPDIR");
  close(descriptor);
  write_file(path, std::span<const std::byte>(cubin));
  const std::string command = "PATH=\"$PATH:/usr/local/cuda/bin\"; command -v nvdisasm >/dev/null && nvdisasm -g " +
                              shell_quoted(path) + " 2>&1";
  std::string text;
  std::FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  while (pipe != nullptr) {
    const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe);
    if (count == 0) break;
    text.append(buffer.data(), count);
  }
  const int status = pipe == nullptr ? -1 : pclose(pipe);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  if (status != 0)
    throw Error(ErrorKind::unsupported,
                text.empty() ? "--sass needs nvdisasm of the CUDA toolkit, on PATH or in /usr/local/cuda/bin"
                             : "nvdisasm failed: " + text.substr(0, 400));
  return text;
}

class CacheCommand final : public Command {
 public:
  HelpPage help() const override {
    return {
        "tessera cache list|stat|verify|prune|gc [flags]\n"
        "       tessera cache show KEY [--ptx|--sass|--source|--log|--plan]\n"
        "       tessera cache export|import FILE [flags]\n"
        "       tessera cache push|pull --remote URL [flags]",
        "tessera cache: look into the cache, verify it, prune it, and carry entries to other machines",
        "list     one line an entry: key, compiler, bytes, kernel\n"
        "show     one entry by the first characters of its key (6 or more)\n"
        "stat     folders in the order of the search, with entries, bytes and limits\n"
        "verify   read every byte of every entry; exits 1 when one is damaged\n"
        "prune    remove entries of the user folder, least recently used first\n"
        "export   every entry into one archive (- is stdout); the same content gives the same bytes\n"
        "import   an archive (- is stdin) into the user folder; import only what you would run\n"
        "push     what the folders hold into the remote cache, whose credentials must allow it\n"
        "pull     the kernels of a shape list from the remote cache into the user folder; compiles nothing\n"
        "gc       prune to --cache-max-bytes now; a remote store keeps to limits of its own (docs/remote.md)\n"
        "A folder that does not exist (verify, prune, export) or cannot be read is named, and the call exits 5.\n",
        {"tessera cache list --op fmha", "tessera cache show 3f9a12 --ptx | less",
         "tessera cache export kernels.tar.zst --arch sm_90a", "tessera cache prune --max-bytes 1000000000",
         "tessera cache pull shapes.json --remote http://store/tessera"}};
  }
  void add_flags(FlagSet& flags) override {
    flags.positional("ACTION", action_);
    flags.positional("ARGUMENT", argument_);
    flags.group("Which entries (list, prune, export, push)");
    flags.text("--op", "OP", op_, "of this operator");
    flags.text("--arch", "ARCH", arch_, "for this target");
    flags.group("show");
    flags.toggle("--ptx", wants_ptx_, "print the PTX");
    flags.toggle("--sass", wants_sass_, "print the machine code (needs nvdisasm)");
    flags.toggle("--source", wants_source_, "print the CUDA source");
    flags.toggle("--log", wants_log_, "print the compiler's log");
    flags.toggle("--plan", wants_plan_, "print plan.json");
    flags.group("verify, prune");
    flags.toggle("--heal", heals_, "verify: move damaged entries aside, so that they are compiled again");
    flags.number("--max-bytes", "N", max_bytes_, 0, "prune: down to so many bytes");
    flags.number("--older-than", "DAYS", older_than_days_, 0, "prune: what was not loaded for so many days");
    flags.toggle("--all", all_, "prune: everything, quarantined entries too");
    flags.toggle("--dry-run", is_dry_run_, "prune: show what would go");
  }

  ExitCode run(Call& call) override {
    const bool takes_argument = action_ == "show" || action_ == "export" || action_ == "import" || action_ == "pull";
    if (!argument_.empty() && !takes_argument && !action_.empty())
      throw Error(ErrorKind::usage, fmt::format("cache {}: takes no argument, {} given", action_, argument_));
    check_flags();
    const CacheOptions& options = call.jit().cache().options();
    if (action_ == "list") return list(call, options);
    if (action_ == "show") return show(call, options);
    if (action_ == "stat") return stat(call, options);
    if (action_ == "verify") return verify(call, options);
    if (action_ == "prune") return prune(call, options);
    if (action_ == "export") return export_archive(call, options);
    if (action_ == "import") return import_archive(call, options);
    if (action_ == "push") return push_cache_entries(call, filter());
    if (action_ == "pull") return pull_cache_entries(call, need_argument("a shape list"));
    if (action_ == "gc") return prune_to_limit(call, options);
    static const std::vector<std::string_view> kActions = {"list",   "show",   "stat", "verify", "prune",
                                                           "export", "import", "push", "pull",   "gc"};
    throw Error(ErrorKind::usage,
                action_.empty()
                    ? "cache: say what to do: list, show, stat, verify, prune, export, import, push, pull or gc"
                    : fmt::format("cache has no action {}{}; there are list, show, stat, verify, prune, export, "
                                  "import, push, pull and gc",
                                  action_, suggestion(action_, kActions)));
  }

 private:
  // A flag that an action does not read would be obeyed by nobody, silently.
  void check_flags() const {
    struct Use {
      const char* flag;
      bool is_given;
      std::vector<std::string_view> actions;
    };
    const std::vector<Use> uses = {
        {"--op", !op_.empty(), {"list", "prune", "export", "push"}},
        {"--arch", !arch_.empty(), {"list", "prune", "export", "push"}},
        {"--ptx", wants_ptx_, {"show"}},
        {"--sass", wants_sass_, {"show"}},
        {"--source", wants_source_, {"show"}},
        {"--log", wants_log_, {"show"}},
        {"--plan", wants_plan_, {"show"}},
        {"--heal", heals_, {"verify"}},
        {"--max-bytes", max_bytes_ >= 0, {"prune"}},
        {"--older-than", older_than_days_ >= 0, {"prune"}},
        {"--all", all_, {"prune"}},
        {"--dry-run", is_dry_run_, {"prune"}},
    };
    for (const Use& use : uses)
      if (use.is_given && !action_.empty() &&
          std::find(use.actions.begin(), use.actions.end(), action_) == use.actions.end())
        throw Error(ErrorKind::usage,
                    fmt::format("{}: is for cache {}, not for {}", use.flag, fmt::join(use.actions, ", "), action_));
    const int parts = int{wants_ptx_} + int{wants_sass_} + int{wants_source_} + int{wants_log_} + int{wants_plan_};
    if (parts > 1) throw Error(ErrorKind::usage, "cache show: prints one of --ptx, --sass, --source, --log, --plan");
  }

  // A misspelt name would match nothing, silently.
  CacheFilter filter() const {
    CacheFilter filter;
    const std::vector<std::string_view> names = operator_names();
    if (!op_.empty()) index_of_word("--op", op_, names);
    if (!op_.empty()) filter.ops.push_back(op_);
    if (!arch_.empty()) filter.archs.push_back(Arch::parse(arch_).to_string());
    return filter;
  }
  const std::string& need_argument(const char* what) const {
    if (argument_.empty()) throw Error(ErrorKind::usage, fmt::format("cache {}: give {}", action_, what));
    return argument_;
  }

  ExitCode list(Call& call, const CacheOptions& options) const {
    std::vector<CacheFault> faults;
    std::vector<CacheListing> entries = list_cache(options, filter(), &faults);
    for (const CacheFault& fault : faults)
      if (fault.is_missing) call.note(fault.to_string());
    std::erase_if(faults, [](const CacheFault& fault) { return fault.is_missing; });
    const ExitCode code = complain_of(call, faults);
    std::stable_sort(entries.begin(), entries.end(),
                     [](const CacheListing& a, const CacheListing& b) { return a.kernel < b.kernel; });
    if (call.is_json()) {
      call.print_json({{"entries", json_of(entries)}, {"unreadable", json_of(faults)}});
      return code;
    }
    std::int64_t bytes = 0;
    for (const CacheListing& entry : entries) {
      bytes += entry.bytes;
      const CompilerIdentity& compiler = entry.compiler;  // empty where compile.json is damaged
      const std::string made_by = compiler.name.empty() ? "unknown"
                                                        : fmt::format("{} {}.{}", compiler.name, compiler.major_version,
                                                                      compiler.minor_version);
      call.print(fmt::format("{}  {:<10}  {:>9} B  {:<6}  {}\n", short_key(entry.keys), made_by, grouped(entry.bytes),
                             to_string(entry.tier), entry.damage.empty() ? entry.kernel : "damaged: " + entry.damage));
    }
    call.print(fmt::format("{}, {} bytes\n", entries_text(static_cast<std::int64_t>(entries.size())), grouped(bytes)));
    return code;
  }

  /// The matrix instruction, and each operand's type, scales and tensor-map element type, as the entry's plan has them.
  static void add_operands(const std::string& plan_json, OrderedJson& json) {
    const OrderedJson plan = OrderedJson::parse(plan_json, nullptr, false);
    if (!plan.is_object() || !plan.contains("operands")) return;
    json["mma_kind"] = plan.value("mma_kind", "");
    json["operands"] = OrderedJson::array();
    for (const OrderedJson& operand : plan["operands"]) {
      std::string text = fmt::format("{} {}", operand.value("name", ""), operand.value("dtype", ""));
      if (operand.contains("scale_type"))
        text += fmt::format(", {} scales, one for {} along k, {}", operand.value("scale_type", ""),
                            operand.value("scale_block", 0), operand.value("scale_form", ""));
      const std::string map = operand.value("tensor_map_type", "");
      json["operands"].push_back(text + (map.empty() ? "" : ", tensor map " + map));
    }
  }

  ExitCode show(Call& call, const CacheOptions& options) const {
    const CacheDetails details = show_cache_entry(options, need_argument("the first characters of an entry's key"));
    if (wants_source_ && details.source.empty())
      throw Error(ErrorKind::unsupported, "this entry was stored without its source");
    const auto print_part = [&](const char* key, const std::string& text) {
      if (call.is_json()) {
        call.print_json({{"key", details.listing.keys.entry}, {key, text}});
      } else {
        call.print(text);
      }
      return kOk;
    };
    // Of both kernels, one behind the other.
    if (wants_ptx_) return print_part("ptx", details.ptx + details.merge.ptx);
    if (wants_sass_)
      return print_part(
          "sass", disassemble(details.cubin) + (details.merge.cubin.empty() ? "" : disassemble(details.merge.cubin)));
    if (wants_log_) return print_part("log", details.report.log);
    if (wants_plan_) return print_part("plan", details.plan_json);
    if (wants_source_) return print_part("source", details.source);
    const CacheListing& entry = details.listing;
    OrderedJson json = json_of(entry);
    json["compile_ms"] = details.report.compile_ms;
    json["cubin_bytes"] = details.cubin.size();
    json["ptx_bytes"] = details.ptx.size();
    if (!details.merge.cubin.empty()) {
      json["merge_cubin_bytes"] = details.merge.cubin.size();
      json["merge_ptx_bytes"] = details.merge.ptx.size();
    }
    json["notes"] = details.report.notes;
    OrderedJson kernels = OrderedJson::array();
    for (const EntryReport& report : details.report.entries)
      kernels.push_back({{"name", report.name},
                         {"registers", report.registers},
                         {"spill_store_bytes", report.spill_store_bytes},
                         {"spill_load_bytes", report.spill_load_bytes},
                         {"static_smem_bytes", report.static_smem_bytes},
                         {"barriers", report.barriers}});
    json["kernels"] = kernels;
    add_operands(details.plan_json, json);
    if (call.is_json()) {
      call.print_json(json);
      return kOk;
    }
    for (const auto& [key, value] : json.items())
      call.print(fmt::format("{:<12} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump()));
    return kOk;
  }

  ExitCode stat(Call& call, const CacheOptions& options) const {
    const CacheUsage usage = cache_usage(options);
    const ExitCode code = complain_of(call, usage.faults);
    OrderedJson folders = OrderedJson::array(), groups = OrderedJson::array();
    for (const CacheUsage::Folder& folder : usage.folders) {
      folders.push_back({{"path", folder.path.string()},
                         {"tier", to_string(folder.tier)},
                         {"exists", folder.exists},
                         {"refused", folder.refused},
                         {"entries", folder.entries},
                         {"bytes", folder.bytes},
                         {"damaged", folder.damaged},
                         {"quarantined", folder.quarantined},
                         {"max_bytes", folder.max_bytes}});
      if (call.is_json()) continue;
      const std::string state = !folder.exists           ? "not there yet"
                                : folder.refused.empty() ? ""
                                                         : "refused: " + folder.refused;
      const std::string limit = folder.max_bytes > 0 ? fmt::format(" of at most {}", grouped(folder.max_bytes)) : "";
      call.print(fmt::format("{:<6} {}  {}, {} bytes{}{}{}\n", to_string(folder.tier), folder.path.string(),
                             entries_text(folder.entries), grouped(folder.bytes), limit, state.empty() ? "" : "  ",
                             state));
      if (folder.damaged + folder.quarantined > 0)
        call.print(fmt::format("       {} damaged, {} set aside\n", folder.damaged, folder.quarantined));
    }
    for (const CacheUsage::Group& group : usage.groups) {
      groups.push_back({{"op", group.op}, {"arch", group.arch}, {"entries", group.entries}, {"bytes", group.bytes}});
      if (!call.is_json())
        call.print(fmt::format("  {} {}: {}, {} bytes\n", group.op, group.arch, entries_text(group.entries),
                               grouped(group.bytes)));
    }
    const OrderedJson remote = remote_report(call);
    if (!call.is_json() && !remote.is_null()) call.print("remote " + remote_line(remote) + "\n");
    if (call.is_json())
      call.print_json({{"folders", folders},
                       {"remote", remote},
                       {"groups", groups},
                       {"entries", usage.entries},
                       {"bytes", usage.bytes},
                       {"unreadable", json_of(usage.faults)}});
    return code;
  }

  ExitCode verify(Call& call, const CacheOptions& options) const {
    const CacheVerification result = verify_cache(options, heals_);
    if (call.is_json()) {
      call.print_json({{"checked", result.checked},
                       {"damaged", json_of(result.damaged)},
                       {"healed", result.healed},
                       {"unreadable", json_of(result.faults)}});
      for (const CacheListing& entry : result.damaged)
        call.complain(fmt::format("damaged: {}: {}", entry.folder.string(), entry.damage));
    } else {
      for (const CacheListing& entry : result.damaged)
        call.print(fmt::format("damaged  {}: {}\n", entry.folder.string(), entry.damage));
      call.print(fmt::format("{} checked, {} damaged{}{}\n", entries_text(result.checked), result.damaged.size(),
                             heals_ ? fmt::format(", {} moved aside", result.healed) : "",
                             result.faults.empty() ? "" : "; not everything could be read"));
      if (!result.damaged.empty())
        call.complain(fmt::format("{} of {}: damaged", result.damaged.size(), entries_text(result.checked)));
    }
    const ExitCode code = complain_of(call, result.faults);
    return code != kOk ? code : result.damaged.empty() ? kOk : kWrong;
  }

  ExitCode prune_to_limit(Call& call, const CacheOptions& options) {
    // Without a limit nothing is too much; what writers left behind goes all the same.
    max_bytes_ = options.max_bytes > 0 ? options.max_bytes : std::numeric_limits<std::int64_t>::max();
    return prune(call, options);
  }

  ExitCode prune(Call& call, const CacheOptions& options) const {
    PruneRequest request;
    if (max_bytes_ >= 0) request.max_bytes = max_bytes_;
    constexpr std::int64_t kMaxDays = 100 * 366;
    if (older_than_days_ >= 0) request.older_than = std::chrono::hours(24 * std::min(older_than_days_, kMaxDays));
    request.all = all_;
    request.dry_run = is_dry_run_;
    request.filter = filter();
    const PruneResult result = prune_cache(options, request);
    const ExitCode code = complain_of(call, result.faults);
    if (result.stuck_entries > 0)
      call.complain(
          fmt::format("{} could not be removed: can the folder be written?", entries_text(result.stuck_entries)));
    for (const CacheListing& entry : result.damaged)
      call.complain(
          fmt::format("left alone, too damaged to tell what it is: {}: {}", entry.folder.string(), entry.damage));
    if (call.is_json()) {
      call.print_json({{"removed", json_of(result.removed)},
                       {"removed_bytes", result.removed_bytes},
                       {"kept_entries", result.kept_entries},
                       {"kept_bytes", result.kept_bytes},
                       {"damaged", json_of(result.damaged)},
                       {"foreign", result.foreign},
                       {"unreadable", json_of(result.faults)}});
      return code;
    }
    for (const CacheListing& entry : result.removed)
      call.print(
          fmt::format("{}  {}  {}\n", is_dry_run_ ? "would remove" : "removed", short_key(entry.keys), entry.kernel));
    call.print(fmt::format("{} {}, {} bytes; {}, {} bytes stay\n", is_dry_run_ ? "would remove" : "removed",
                           entries_text(static_cast<std::int64_t>(result.removed.size())),
                           grouped(result.removed_bytes), entries_text(result.kept_entries),
                           grouped(result.kept_bytes)));
    return code;
  }

  ExitCode export_archive(Call& call, const CacheOptions& options) const {
    const std::string& typed = need_argument("the archive to write");
    const std::string archive = typed == "-" ? "/dev/stdout" : typed;
    if (call.is_json() && archive == "/dev/stdout")
      throw Error(ErrorKind::usage, "cache export: the archive and --json cannot both go to stdout");
    if (archive == "/dev/stdout" && ::write(::fileno(call.host().out), "", 0) < 0)
      throw Error(ErrorKind::io, fmt::format("stdout cannot be written: {}", std::strerror(errno)));
    const CacheFilter chosen = filter();
    const ExportResult result = export_cache(options, archive, chosen);
    if (result.entries == 0 && result.damaged.empty())
      throw Error(ErrorKind::unsupported,
                  fmt::format("cache export: no entry{}{}{}{} is in any tier; nothing was written",
                              op_.empty() ? "" : " of ", op_, arch_.empty() ? "" : " for ", arch_));
    for (const CacheListing& entry : result.damaged)
      call.complain(fmt::format("left out, damaged: {}: {}", entry.folder.string(), entry.damage));
    const bool is_written = result.entries > 0;
    if (!is_written) call.complain(fmt::format("cache export: {} is not written: no entry for it is whole", archive));
    if (call.is_json()) {
      call.print_json({{"entries", result.entries}, {"bytes", result.bytes}, {"damaged", json_of(result.damaged)}});
    } else if (is_written) {
      // Not on stdout: that may be where the archive goes.
      call.note(fmt::format("{}: {}, {} bytes before compression", archive, entries_text(result.entries),
                            grouped(result.bytes)));
    }
    return result.damaged.empty() ? kOk : kWrong;
  }

  ExitCode import_archive(Call& call, const CacheOptions& options) const {
    const std::string& archive = need_argument("the archive to read");
    const ImportResult result = import_cache(options, archive == "-" ? "/dev/stdin" : archive);
    if (call.is_json()) {
      call.print_json({{"imported", result.imported}, {"present", result.present}, {"bytes", result.bytes}});
    } else {
      call.print(fmt::format("{} imported, {} there already, {} bytes\n", entries_text(result.imported), result.present,
                             grouped(result.bytes)));
    }
    return kOk;
  }

  std::string action_, argument_, op_, arch_;
  bool wants_ptx_ = false, wants_sass_ = false, wants_source_ = false, wants_log_ = false, wants_plan_ = false;
  bool heals_ = false, all_ = false, is_dry_run_ = false;
  std::int64_t max_bytes_ = -1, older_than_days_ = -1;
};

}  // namespace

std::unique_ptr<Command> make_cache_command() { return std::make_unique<CacheCommand>(); }

}  // namespace tessera::cli
