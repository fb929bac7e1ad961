// A toy server around one attention kernel: ragged queries over keys in pages. Each step is one launch, of chunks of
// prompts and of single queries together; lengths, places and pages change from step to step, sizes of the launch never
// do, so one captured graph would serve all steps. Every row of a step is compared with attention in float64 over its
// sequence's own history, of which the device's memory is no part. Exit code: 0, or 1 where a row was wrong.
#include <tessera/cuda_device.h>
#include <tessera/emulator/device.h>
#include <tessera/jit.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "model.h"
#include "scheduler.h"

namespace server {

struct Options {
  std::string_view device = "auto", arch = "sm_90a";
  std::int64_t steps = 0;        ///< 0: 400 on a GPU, 200 in the emulator
  std::int64_t check_every = 0;  ///< steps; 0: 10 on a GPU, 1 in the emulator
  std::int64_t seed = 1;
  std::int64_t break_step = -1;  ///< where two pages of a table change places, which the comparison must see
};

/// Device memory of what a launch reads and writes.
class Cache {
 public:
  Cache(tessera::Device& device, const Shape& shape, const Limits& limits)
      : device_(device), limits_(limits), key_bytes_(2 * static_cast<std::size_t>(shape.heads_kv * shape.head_dim)) {
    const std::size_t row = 2 * static_cast<std::size_t>(shape.heads_q * shape.head_dim);
    arguments.q = device.allocate(row * static_cast<std::size_t>(limits.budget));
    arguments.o = device.allocate(row * static_cast<std::size_t>(limits.budget));
    device.set_bytes(arguments.q, 0, row * static_cast<std::size_t>(limits.budget));  // rows behind a step's are read
    const std::size_t pool = page_bytes() * static_cast<std::size_t>(limits.pages);
    arguments.k = device.allocate(pool);
    arguments.v = device.allocate(pool);
    for (const tessera::DevicePointer each : {arguments.k, arguments.v}) device.set_bytes(each, 0xFF, pool);
    const auto places = static_cast<std::size_t>(limits.places);
    arguments.cu_seqlens_q = device.allocate(4 * (places + 1));
    arguments.seqused_k = device.allocate(4 * places);
    arguments.block_table = device.allocate(4 * places * static_cast<std::size_t>(limits.most_pages()));
    arguments.batch = limits.places;
    arguments.heads_q = shape.heads_q;
    arguments.heads_kv = shape.heads_kv;
    arguments.seqlen_q = limits.budget;
    arguments.seqlen_k = limits.most_pages() * limits.page_size;
    arguments.pages = limits.pages;
    arguments.max_pages = limits.most_pages();
  }

  /// Key number `key` of a sequence with these pages.
  void write(const std::vector<int>& pages, std::size_t key, const std::vector<std::uint16_t>& k,
             const std::vector<std::uint16_t>& v) {
    const auto page_size = static_cast<std::size_t>(limits_.page_size);
    const std::size_t offset =
        static_cast<std::size_t>(pages[key / page_size]) * page_bytes() + key % page_size * key_bytes_;
    device_.copy_to_device(arguments.k + offset, k.data(), key_bytes_);
    device_.copy_to_device(arguments.v + offset, v.data(), key_bytes_);
  }
  /// NaNs in a page that is nobody's: whoever reads it still is wrong.
  void forget(int page) {
    for (const tessera::DevicePointer pool : {arguments.k, arguments.v})
      device_.set_bytes(pool + static_cast<std::size_t>(page) * page_bytes(), 0xFF, page_bytes());
  }

  tessera::FmhaArguments arguments;

 private:
  std::size_t page_bytes() const { return key_bytes_ * static_cast<std::size_t>(limits_.page_size); }
  tessera::Device& device_;
  Limits limits_;
  std::size_t key_bytes_;
};

class Server {
 public:
  Server(tessera::Device& device, tessera::Jit& jit, const Shape& shape, const Limits& limits, const Options& options)
      : device_(device),
        limits_(limits),
        options_(options),
        model_(shape, static_cast<std::uint64_t>(options.seed)),
        scheduler_(limits, shape.vocabulary, static_cast<std::uint64_t>(options.seed)),
        cache_(device, shape, limits),
        kernel_(jit.kernel(tessera::Fmha{.arch = tessera::Arch::parse(options.arch),
                                         .head_dim = shape.head_dim,
                                         .mask = tessera::Mask::causal,
                                         .q_layout = tessera::QueryLayout::ragged,
                                         .kv_layout = tessera::KvLayout::paged,
                                         .page_size = limits.page_size,
                                         .batch = limits.places,
                                         .heads_q = shape.heads_q,
                                         .heads_kv = shape.heads_kv,
                                         .seqlen_q = limits.budget,
                                         .seqlen_k = limits.most_pages() * limits.page_size})),
        stream_(device.create_stream()),
        table_(static_cast<std::size_t>(limits.places * limits.most_pages()), -1),
        q_row_(static_cast<std::size_t>(shape.heads_q * shape.head_dim)) {
    tessera::FmhaArguments& arguments = cache_.arguments;
    arguments.workspace_bytes = kernel_.workspace_bytes(device, arguments);
    if (arguments.workspace_bytes > 0)
      arguments.workspace = device.allocate(static_cast<std::size_t>(arguments.workspace_bytes));
    std::printf("%s\n", kernel_.kernel().plan().kernel.c_str());
  }

  void step(std::int64_t number) {
    const std::vector<Chunk> plan = scheduler_.next_step();
    for (const int page : scheduler_.take_freed()) cache_.forget(page);
    const std::vector<std::uint16_t> q = upload(plan, number);
    const std::vector<std::uint16_t> o = launch();
    const bool is_checked = number % options_.check_every == 0;
    std::size_t row = 0;
    for (const Chunk& chunk : plan) {
      for (int i = 0; i < chunk.count; ++i, ++row)
        if (is_checked) check(number, chunk, i, rows_of(q, row), rows_of(o, row));
      scheduler_.finish(chunk, model_.next_token(rows_of(o, row - 1)));
    }
  }

  /// 0, or 1 where something was wrong.
  int conclude(std::int64_t steps) const {
    const Scheduler::Counts& counts = scheduler_.counts();
    std::printf(
        "%lld steps on %s, %d of them with prompts and single queries: %d sequences, %d preempted, %lld queries of "
        "prompts and "
        "%lld single ones, at most %d sequences and %d of %d pages; %lld rows checked, %lld wrong, largest error %.3f "
        "of its bound, "
        "%lld findings\n",
        static_cast<long long>(steps), device_.info().name.c_str(), counts.mixed_steps, counts.finished,
        counts.preempted, static_cast<long long>(counts.prefilled), static_cast<long long>(counts.decoded),
        counts.most_places, counts.most_pages, limits_.pages, static_cast<long long>(rows_),
        static_cast<long long>(wrong_), worst_, static_cast<long long>(findings_));
    return rows_ > 0 && wrong_ == 0 && findings_ == 0 ? 0 : 1;
  }

 private:
  std::span<const std::uint16_t> rows_of(const std::vector<std::uint16_t>& rows, std::size_t row) const {
    return std::span(rows).subspan(row * q_row_, q_row_);
  }

  /// Queries of the step, new keys into their pages, and what says where all of them are.
  std::vector<std::uint16_t> upload(const std::vector<Chunk>& plan, std::int64_t number) {
    std::vector<std::uint16_t> q;
    std::vector<std::int32_t> queries(static_cast<std::size_t>(limits_.places)), ends{0}, keys(queries.size());
    for (const Chunk& chunk : plan) {
      const Sequence& sequence = *chunk.sequence;
      const auto place = static_cast<std::size_t>(sequence.place);
      for (std::size_t at = sequence.computed; at < sequence.computed + static_cast<std::size_t>(chunk.count); ++at) {
        const int token = sequence.tokens[at], position = static_cast<int>(at);
        const auto row = model_.q(token, position);
        q.insert(q.end(), row.begin(), row.end());
        cache_.write(sequence.pages, at, model_.k(token, position), model_.v(token, position));
      }
      queries[place] = chunk.count;
      keys[place] = static_cast<std::int32_t>(sequence.computed) + chunk.count;
      // What stands behind is a former sequence's.
      const auto table = table_.begin() + static_cast<std::ptrdiff_t>(place) * limits_.most_pages();
      std::copy(sequence.pages.begin(), sequence.pages.end(), table);
      if (number >= options_.break_step && options_.break_step >= 0 && sequence.pages.size() > 1)
        std::swap(table[0], table[1]);
    }
    for (const std::int32_t count : queries) ends.push_back(ends.back() + count);
    const tessera::FmhaArguments& to = cache_.arguments;
    device_.copy_to_device(to.q, q.data(), 2 * q.size());
    device_.copy_to_device(to.cu_seqlens_q, ends.data(), 4 * ends.size());
    device_.copy_to_device(to.seqused_k, keys.data(), 4 * keys.size());
    device_.copy_to_device(to.block_table, table_.data(), 4 * table_.size());
    return q;
  }

  std::vector<std::uint16_t> launch() {
    std::vector<std::uint16_t> o(static_cast<std::size_t>(limits_.budget) * q_row_);
    device_.set_bytes(cache_.arguments.o, 0xFF, 2 * o.size(), stream_);
    kernel_.launch(device_, stream_, cache_.arguments);
    for (const tessera::Finding& finding : device_.synchronize(stream_)) {
      if (++findings_ <= 5) std::printf("%s\n", finding.message.c_str());
    }
    device_.copy_to_host(o.data(), cache_.arguments.o, 2 * o.size());
    return o;
  }

  /// Query number i of a chunk sees its sequence's keys up to its own.
  void check(std::int64_t number, const Chunk& chunk, int i, std::span<const std::uint16_t> q,
             std::span<const std::uint16_t> o) {
    const Sequence& sequence = *chunk.sequence;
    const std::size_t keys = sequence.computed + static_cast<std::size_t>(i) + 1;
    if (i == 0) {
      k_.clear();
      v_.clear();
    }
    for (std::size_t at = k_.size() / key_row(); at < keys; ++at) {
      const auto k = model_.k(sequence.tokens[at], static_cast<int>(at)),
                 v = model_.v(sequence.tokens[at], static_cast<int>(at));
      k_.insert(k_.end(), k.begin(), k.end());
      v_.insert(v_.end(), v.begin(), v.end());
    }
    const double error = error_of(model_.shape(), q, k_, v_, keys, o);
    ++rows_;
    if (!(error <= worst_) && !std::isnan(worst_)) worst_ = error;
    if (error <= 1) return;
    if (++wrong_ <= 5)
      std::printf("step %lld, place %d: query %zu of %zu keys is wrong: %.3g of its bound\n",
                  static_cast<long long>(number), sequence.place, keys - 1, keys, error);
  }
  std::size_t key_row() const { return static_cast<std::size_t>(model_.shape().heads_kv * model_.shape().head_dim); }

  tessera::Device& device_;
  Limits limits_;
  Options options_;
  Model model_;
  Scheduler scheduler_;
  Cache cache_;
  tessera::FmhaKernel kernel_;
  tessera::Stream stream_;
  std::vector<std::int32_t> table_;
  std::size_t q_row_;
  std::vector<std::uint16_t> k_, v_;  ///< of the sequence that is checked
  std::int64_t rows_ = 0, wrong_ = 0, findings_ = 0;
  double worst_ = 0;
};

/// --name VALUE; false where there is no such name, or no number.
bool read(int count, char** words, Options& options) {
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view name = words[i], value = words[i + 1];
    std::int64_t* const number = name == "--steps"         ? &options.steps
                                 : name == "--check-every" ? &options.check_every
                                 : name == "--seed"        ? &options.seed
                                 : name == "--break-step"  ? &options.break_step
                                                           : nullptr;
    if (name == "--device" && (value == "auto" || value == "gpu" || value == "emulator")) {
      options.device = value;
    } else if (name == "--arch") {
      options.arch = value;
    } else if (number == nullptr ||
               std::from_chars(value.data(), value.data() + value.size(), *number).ptr != value.data() + value.size()) {
      return false;
    }
  }
  return count % 2 == 1;
}

int serve(const Options& given) {
  Options options = given;
  const std::string reason = options.device == "emulator" ? "not asked for" : tessera::cuda_unavailable_reason();
  if (options.device == "gpu" && !reason.empty()) throw tessera::Error(tessera::ErrorKind::device, reason);
  const bool is_emulated = !reason.empty();
  Shape shape;
  Limits limits;
  if (!is_emulated) {
    shape = {.heads_q = 32, .heads_kv = 8, .head_dim = 128, .vocabulary = 997};
    limits = {.places = 48,
              .budget = 512,
              .chunk = 256,
              .page_size = 16,
              .pages = 1000,
              .most_prompt = 900,
              .most_answer = 200,
              .arrivals = 0.9};
  }
  if (options.steps <= 0) options.steps = is_emulated ? 200 : 400;
  if (options.check_every <= 0) options.check_every = is_emulated ? 1 : 10;
  const std::unique_ptr<tessera::Device> device =
      is_emulated ? std::make_unique<tessera::emulator::EmulatedDevice>(
                        tessera::emulator::DeviceOptions{.arch = std::string(options.arch)})
                  : tessera::make_cuda_device();
  tessera::Jit jit{tessera::JitOptions::from_environment()};
  Server server(*device, jit, shape, limits, options);
  for (std::int64_t step = 0; step < options.steps; ++step) server.step(step);
  return server.conclude(options.steps);
}

}  // namespace server

int main(int count, char** words) try {
  server::Options options;
  if (server::read(count, words, options)) return server::serve(options);
  std::fprintf(stderr,
               "usage: server [--device auto|gpu|emulator] [--arch sm_90a] [--steps N] [--check-every N] [--seed N] "
               "[--break-step N]\n");
  return 2;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "server: %s\n", error.what());
  return 1;
}
