// Candidates are the tiles that keep two warpgroups' accumulators in registers, and narrower ones for few rows, with
// and without a cluster that shares operands, and with the K of a tile split over a cluster where there are few tiles.
// Where the sizes are known, those widths come besides that fill a few rounds of the multiprocessors. Pins replace the
// table's values.
#include "generator/products/gemm_candidates.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

#include "generator/facts.h"
#include "generator/model_device.h"
#include "generator/products/gemm_operator.h"

namespace tessera::gemm {

Config gemm_facts(const Gemm& p, SwapAb swap_ab) {
  Config c{.facts = product_facts(p)};
  c.swap_ab = swap_ab;
  return c;
}

Gemm product_of_group(const Gemm& p) {
  Gemm group = p;
  if (p.grouping == Grouping::contiguous && p.m > 0 && p.l > 0) group.m = ceil_div(p.m, p.l);
  return group;
}

namespace {

constexpr int kFewRows[] = {32, 16};  // boxes of A where at most so many rows are expected
constexpr int kFewestRows = 8;        // the same of A as wgmma's B: half of the narrowest instruction's columns
constexpr int kRowsOfOneTile = 128;   // up to here tiles of 192 columns with factors of blocks have smaller boxes too
constexpr int kJoinedWidth = 192;     // see gemm::joins_factors
constexpr int kColumns[] = {256, 224, 192, 160, 128, 112, 96, 64};
constexpr int kNarrow = 64;
constexpr int kNarrowColumns[] = {48, 32, 16};  // where pinned stages leave room for none of these

// As a Config has it: tile_m are the matrix instruction's rows.
struct Shape {
  int tile_m, tile_n, cluster_m, cluster_n, split_k;
  KernelSchedule kernel_schedule;
  SwapAb swap_ab = SwapAb::off;
};

/// Configs of one problem, each once, in the order in which they came.
class ConfigList {
 public:
  ConfigList() {
    first_.fill(kNone);
    configs.reserve(kUsual);
    before_.reserve(kUsual);
  }
  void add(const Config& c) {
    std::int16_t& first = first_[place_of(c)];
    for (std::int16_t i = first; i != kNone; i = before_[static_cast<std::size_t>(i)])
      if (configs[static_cast<std::size_t>(i)] == c) return;
    before_.push_back(first);
    first = static_cast<std::int16_t>(configs.size());
    configs.push_back(c);
  }

  std::vector<Config> configs;

 private:
  // By what tells apart the Configs of one problem.
  static std::size_t place_of(const Config& c) {
    std::uint32_t hash = 0;
    for (const int value : {c.tile_m, c.tile_n, c.cluster_m, c.cluster_n, c.split_k,
                            static_cast<int>(c.kernel_schedule), static_cast<int>(c.swap_ab)})
      hash = hash * 0x9E3779B1u + static_cast<std::uint32_t>(value);
    return hash >> 23;
  }

  static constexpr std::int16_t kNone = -1;
  static constexpr std::size_t kUsual = 512;
  std::array<std::int16_t, 512> first_;
  std::vector<std::int16_t> before_;  ///< with the same place
};

/// gemm::most_stages, by the bytes of one stage.
int stages_that_fit(Config c, int bytes = kMaxSmemBytes) {
  c.stages = 0;
  const int beside = gemm::smem_layout(c).total_bytes;
  c.stages = 1;
  const int of_stage = gemm::smem_layout(c).total_bytes - beside;
  return std::clamp((bytes - beside) / of_stage, 2, gemm::kMaxStages);
}

// Of two CTAs of a multiprocessor: each has a kilobyte more than it asks for.
constexpr int kHalfSmemBytes = (kMaxSmemBytes - 1024) / 2;
constexpr int kSlotsOfFewRows = 4;

/// Whether a CTA of the next launch, which gets ready while this one runs, is to find room beside one of this: where
/// half of the slots keep memory busy, as those of few rows of D transposed do, or have all steps of a tile of 64 rows.
/// On an H200 products of 1 and 8 rows took up to 12 % less time so, 64 x 32,768 x 512 4 to 9 %.
bool has_room_for_next(const Config& c, Hint k) {
  if (!gemm::has_scale_blocks(c) || gemm::is_grouped(c) || gemm::multicast_size(c) > 1) return false;
  const int slots = stages_that_fit(c, kHalfSmemBytes);
  if (gemm::is_swapped(c) && c.tile_n < kNarrow) return slots >= kSlotsOfFewRows;
  return gemm::consumer_warpgroups(c) == 1 && k >= 0 &&
         ceil_div(ceil_div(k, Hint{gemm::tile_k(c)}), c.split_k) <= slots;
}

constexpr Hint kMostFewRows = 128;

/// The slots of up to 128 rows, see ring_is_short.
int slots_of_few_rows(const Gemm& p, const Config& c) {
  if (p.m < 0 || p.m > kMostFewRows || !ring_is_short(c)) return gemm::kMaxStages;
  return std::max(kShortRingBytes / std::max(gemm::a_slot_bytes(c) + gemm::b_slot_bytes(c), 1), 2);
}

constexpr int kWholeBoxRows = 256;
constexpr int kManyRows = 1024;

/// Whether many rows with factors of blocks are whole tiles: one copy may load all of an operand's, since none reaches
/// behind the matrix. On an H200 products of 4,096 rows took 0.5 to 2 % less time so.
bool is_whole(const Gemm& p, const Config& c) {
  return gemm::joins_factors(c) && p.grouping == Grouping::none && p.m >= kManyRows && p.n > 0 && c.tile_m > 0 &&
         c.tile_n > 0 && p.m % c.tile_m == 0 && p.n % c.tile_n == 0;
}

/// Of a group with factors of blocks: one raster where the L2 keeps its rows of a, so that each next column of tiles
/// finds them there and b is read once. On an H200 a launch of 8 x 4,096 x 7,168 x 3,072 and 2,048 took 0.99 and 0.98
/// of the time.
constexpr std::int64_t kRasterBytes = 16 << 20;
int raster_of_short_k(const Gemm& p, std::int64_t tile_rows, int usual) {
  const std::int64_t tiles = ceil_div(p.m, tile_rows);
  return tiles > usual && p.k > 0 && p.m < kRasterBytes / p.k ? static_cast<int>(tiles) : usual;
}

/// Of a group of three warpgroups' tiles, which make rasters of equal height, near the usual one: 22 make two of 11,
/// where 10, 10 and 2 read all of b once more for the last two.
int raster_of_groups(const Gemm& p, std::int64_t tile_rows, int usual) {
  const std::int64_t tiles = ceil_div(p.m, tile_rows);
  const std::int64_t rasters = std::max<std::int64_t>((tiles + usual / 2) / usual, 1);
  return tiles > usual && tiles % rasters == 0 ? static_cast<int>(tiles / rasters) : usual;
}

void add(const Gemm& p, const Shape& shape, ConfigList& list) {
  if (p.swap_ab && *p.swap_ab != shape.swap_ab) return;
  if (p.gather != Gather::none && shape.cluster_n > 1 && !p.cluster_n) return;
  // A pin to the contrary is refused by its rule.
  if (p.grouping != Grouping::none &&
      ((shape.swap_ab == SwapAb::on && !p.swap_ab) || (shape.split_k > 1 && !p.split_k)))
    return;
  if (p.gate != Gate::none && ((shape.swap_ab == SwapAb::on && !p.swap_ab) || (shape.split_k > 1 && !p.split_k) ||
                               (shape.tile_n % gemm::unit_of_gate(gemm_facts(p)) != 0 && !p.tile_n)))
    return;
  Config c = gemm_facts(p, shape.swap_ab);
  // Pins are of the product.
  const bool is_swapped = gemm::is_swapped(c);
  c.tile_m = (is_swapped ? p.tile_n : p.tile_m).value_or(shape.tile_m);
  c.tile_n = (is_swapped ? p.tile_m : p.tile_n).value_or(shape.tile_n);
  c.cluster_m = (is_swapped ? p.cluster_n : p.cluster_m).value_or(shape.cluster_m);
  c.cluster_n = (is_swapped ? p.cluster_m : p.cluster_n).value_or(shape.cluster_n);
  c.split_k = p.split_k.value_or(shape.split_k);
  c.kernel_schedule = p.kernel_schedule.value_or(shape.kernel_schedule);
  const std::int64_t rows = is_swapped ? std::int64_t{c.tile_n} * c.cluster_n
                                       : std::int64_t{c.tile_m} * c.cluster_m;  // pins may be any number
  c.raster = p.raster.value_or(rows > 0 ? static_cast<int>(std::max<std::int64_t>(1, kGemmRasterRows / rows)) : 1);
  // Only a Config whose extents are sane is completed: completing evaluates products of them.
  const bool is_sane =
      c.tile_m >= 0 && c.tile_n >= 0 && c.tile_m <= 1024 && c.tile_n <= 1024 && c.split_k >= 1 && c.split_k <= 16;
  // MN-major boxes are a swizzle span wide whatever the rows. Beside three consumer warpgroups the producer has no
  // registers for twelve boxes (it spills), and those that find products of factors none for factors that come with
  // boxes of few rows.
  const bool has_registers = is_sane && !(gemm::joins_factors(c) && gemm::consumer_warpgroups(c) == 3);
  if (gemm::a_layout(c) == Layout::k_major && p.m >= 0 && !is_swapped && has_registers)
    for (const int few : kFewRows) c.box_m = p.m <= few && c.tile_m / few < 12 ? few : c.box_m;
  if (is_swapped && gemm::has_scale_blocks(c) && p.m >= 0 && p.m <= kFewestRows) c.box_m = kFewestRows;
  if (!is_swapped && gemm::has_scale_blocks(c) && c.tile_m == kRowsOfOneTile && c.tile_n == kJoinedWidth && p.m >= 0 &&
      p.m <= kRowsOfOneTile && p.grouping == Grouping::none && p.gate == Gate::none)
    c.box_m = std::min(c.box_m, kFewRows[0]);
  if (is_sane && is_whole(p, c)) c.box_m = kWholeBoxRows;
  if (is_sane && rows > 0 && !p.raster && p.grouping == Grouping::contiguous && p.m > 0 && gemm::joins_factors(c)) {
    const int usual = c.raster;
    c.raster = raster_of_short_k(p, rows, usual);
    if (c.raster == usual && gemm::consumer_warpgroups(c) == 3) c.raster = raster_of_groups(p, rows, usual);
  }
  c.stages = p.stages ? *p.stages : is_sane ? stages_that_fit(c) : 4;
  if (!p.stages && is_sane && has_room_for_next(c, p.k))
    c.stages = std::min(c.stages, stages_that_fit(c, kHalfSmemBytes));
  if (!p.stages && is_sane) c.stages = std::min(c.stages, slots_of_few_rows(p, c));
  list.add(c);
}

constexpr KernelSchedule kCooperative = KernelSchedule::cooperative, kPingPong = KernelSchedule::ping_pong;

// Of each width from tile_n on. Among equals the first: clusters only where they were measured to pay.
constexpr Shape kEveryWidth[] = {{128, 0, 1, 1, 1, kCooperative}, {128, 112, 2, 1, 1, kCooperative},
                                 {64, 0, 1, 1, 1, kCooperative},  {64, 0, 1, 1, 2, kCooperative},
                                 {128, 0, 1, 1, 2, kCooperative}, {64, 0, 1, 1, 4, kCooperative},
                                 {128, 0, 1, 1, 4, kCooperative}};

// The same where copies weigh more than products, of every width that the matrix instruction takes.
constexpr Shape kEveryWidthShared[] = {
    {64, 96, 1, 1, 1, kPingPong},     {64, 96, 2, 1, 1, kPingPong},      {64, 96, 4, 1, 1, kPingPong},
    {64, 64, 1, 4, 1, kCooperative},  {64, 96, 4, 1, 2, kCooperative},   {128, 64, 1, 1, 1, kCooperative},
    {128, 80, 2, 1, 1, kCooperative}, {128, 128, 1, 2, 1, kCooperative}, {128, 80, 2, 2, 1, kCooperative},
    {128, 80, 2, 1, 1, kPingPong},    {128, 64, 2, 2, 1, kPingPong},     {128, 80, 1, 4, 1, kPingPong},
    {192, 80, 1, 1, 1, kCooperative}, {192, 80, 2, 1, 1, kCooperative},  {192, 80, 1, 2, 1, kCooperative},
    {192, 80, 1, 4, 1, kCooperative}, {256, 96, 1, 2, 1, kCooperative},  {256, 96, 1, 4, 1, kCooperative}};

constexpr Shape kShapes[] = {
    {256, 128, 1, 2, 1, kCooperative}, {256, 128, 2, 1, 1, kCooperative}, {256, 128, 1, 1, 1, kCooperative},
    {128, 128, 2, 1, 1, kPingPong},    {128, 128, 1, 1, 1, kPingPong},    {128, 160, 1, 1, 1, kPingPong},
    {128, 176, 1, 1, 1, kPingPong},    {128, 192, 1, 1, 1, kPingPong},    {128, 192, 1, 2, 1, kPingPong},
    {64, 128, 2, 1, 2, kCooperative},  {128, 128, 1, 2, 2, kCooperative}, {128, 128, 1, 2, 4, kCooperative},
    {128, 192, 2, 1, 2, kCooperative}};

// The same of products with factors of blocks, where a warpgroup's sums leave registers beside those of a step.
constexpr Shape kShapesScaled[] = {{192, 128, 1, 1, 1, kCooperative}};

// With swap_ab; tile_n follows from the rows of D.
constexpr Shape kSwapped[] = {
    {128, 0, 1, 1, 1, kCooperative}, {64, 0, 1, 1, 1, kCooperative},  {64, 0, 1, 1, 2, kCooperative},
    {64, 0, 1, 1, 3, kCooperative},  {64, 0, 1, 1, 4, kCooperative},  {64, 0, 1, 1, 5, kCooperative},
    {128, 0, 1, 1, 2, kCooperative}, {128, 0, 1, 1, 4, kCooperative}, {128, 0, 1, 2, 1, kCooperative},
    {128, 0, 1, 1, 1, kPingPong},    {192, 0, 1, 1, 1, kCooperative}, {256, 0, 1, 1, 1, kCooperative}};

// The same where copies weigh more than products, of every width.
constexpr Shape kSwappedShared[] = {
    {64, 64, 1, 1, 1, kCooperative},  {64, 64, 4, 1, 1, kCooperative},  {64, 64, 1, 4, 1, kCooperative},
    {64, 64, 2, 1, 4, kCooperative},  {64, 64, 4, 1, 2, kCooperative},  {64, 64, 1, 1, 1, kPingPong},
    {64, 64, 2, 1, 1, kPingPong},     {64, 64, 4, 1, 1, kPingPong},     {128, 64, 2, 1, 1, kCooperative},
    {128, 64, 1, 2, 1, kCooperative}, {128, 64, 2, 2, 1, kCooperative}, {128, 64, 1, 1, 1, kPingPong},
    {128, 64, 1, 2, 1, kPingPong},    {128, 64, 2, 2, 1, kPingPong},    {192, 80, 1, 1, 1, kCooperative},
    {192, 80, 2, 1, 1, kCooperative}, {192, 80, 1, 2, 1, kCooperative}, {192, 80, 1, 4, 1, kCooperative},
    {256, 64, 1, 2, 1, kCooperative}, {256, 64, 1, 4, 1, kCooperative}};

// Of widths that fill a few rounds, which follow from the sizes.
constexpr Shape kFilling[] = {{128, 0, 1, 1, 1, kCooperative},
                              {128, 0, 1, 1, 1, kPingPong},
                              {128, 0, 2, 1, 1, kCooperative},
                              {192, 0, 1, 1, 1, kCooperative},
                              {64, 0, 1, 1, 1, kCooperative}};
constexpr Shape kFillingSwapped[] = {{128, 0, 1, 1, 1, kCooperative},
                                     {128, 0, 1, 1, 1, kPingPong},
                                     {192, 0, 1, 1, 1, kCooperative},
                                     {256, 0, 1, 1, 1, kCooperative},
                                     {64, 0, 1, 1, 1, kCooperative}};
// And of few rows: CTAs that share more of D's rows wait for each other, 1.3 to 1.5 of the time. With factors of blocks
// two of up to 16 rows do too, 1.02 to 1.07.
constexpr Shape kSwappedFew[] = {{128, 0, 2, 1, 1, kCooperative}, {64, 0, 2, 1, 1, kCooperative}};
// And of 64 rows with factors of blocks: each CTA loads as much of a as of b, unless four share it.
constexpr Shape kScaledShared = {64, 64, 1, 4, 1, kCooperative};
constexpr int kFilledRounds = 6;  // of more rounds the last one's gap is less than a tenth
constexpr std::size_t kMostWidths = 4;
constexpr int kWidest = 256;

/// What widths are a multiple of where CTAs share the rows of B, or D's columns.
constexpr int kSharedWidthUnit = 16;
constexpr int kLeastWidth = 16;

/// And elsewhere: the matrix instruction takes any multiple of 8.
int unit_of_widths(const Gemm& p) { return gemm::unit_of_columns(gemm_facts(p)); }

/// Widths of tiles of D transposed, those first that have the fewest rows behind D's last one.
std::vector<int> swapped_widths(const Gemm& p, std::int64_t m) {
  const int unit = unit_of_widths(p);
  std::vector<std::pair<std::int64_t, int>> found;  // rows in all, width
  if (m < kNarrow) found.emplace_back(m, std::max(kLeastWidth, static_cast<int>(round_up(m, unit))));
  for (int width = kWidest; m >= kNarrow && width >= kNarrow; width -= unit)
    if (width == kNarrow || ceil_div(m, width - unit) > ceil_div(m, width))
      found.emplace_back(round_up(m, width), width);
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (found.size() > kMostWidths) found.resize(kMostWidths);
  std::vector<int> widths;
  for (const auto& [rows, width] : found) widths.push_back(width);
  return widths;
}

std::int64_t extent_or(Hint hint, std::int64_t otherwise) {
  return hint < 0 ? otherwise : std::max<std::int64_t>(hint, 1);
}

/// All of them that are no wider than the matrix, the widest first; only the narrowest where that is narrow.
std::vector<int> every_width(std::int64_t extent) {
  const auto needed = static_cast<int>(std::min<std::int64_t>(round_up(extent, kSharedWidthUnit), kWidest));
  std::vector<int> widths;
  for (int width = needed; width >= kNarrow; width -= kSharedWidthUnit) widths.push_back(width);
  if (widths.empty()) widths.push_back(needed);
  return widths;
}

/// The narrowest widths with which a shape's tiles need one round of the multiprocessors, two, and so on: of all that
/// need as many rounds, the least work. `rows`, `columns`: of the matrix, as the matrix instruction has them.
std::vector<int> filling_widths(const Shape& shape, std::int64_t rows, std::int64_t columns, const Gemm& p) {
  std::vector<int> widths;
  const int unit = shape.cluster_m > 1 ? kSharedWidthUnit : unit_of_widths(p);
  const std::int64_t at_once = static_cast<std::int64_t>(kHopper.sms) / shape.cluster_m;
  const std::int64_t of_matrix = ceil_div(rows, shape.tile_m * shape.cluster_m), matrices = extent_or(p.l, 1);
  if (std::max(of_matrix, matrices) > kFilledRounds * at_once) return widths;  // and no product overflows
  const std::int64_t tiles_along = of_matrix * matrices;
  for (int round = 1; round <= kFilledRounds; ++round) {
    const std::int64_t tiles_across = round * at_once / tiles_along;
    if (tiles_across == 0) continue;
    const std::int64_t width = round_up(ceil_div(columns, tiles_across), unit);
    if (width < kNarrow) break;
    if (width <= kWidest && (widths.empty() || widths.back() != width)) widths.push_back(static_cast<int>(width));
  }
  return widths;
}

void add_filling(const Gemm& p, ConfigList& list) {
  if (p.m < 1 || p.n < kNarrow) return;
  const auto add_widths = [&](Shape shape, SwapAb swap_ab) {
    shape.swap_ab = swap_ab;
    const bool is_swapped = swap_ab == SwapAb::on;
    for (const int width : filling_widths(shape, is_swapped ? p.n : p.m, is_swapped ? p.m : p.n, p)) {
      shape.tile_n = width;
      add(p, shape, list);
    }
  };
  for (const Shape& shape : kFilling)
    if (shape.tile_m - kNarrow < p.m) add_widths(shape, SwapAb::off);  // no block of 64 rows without one of D's
  if (dtype_bytes(p.d_dtype) != 2 || p.m < kNarrow) return;
  for (const Shape& shape : kFillingSwapped) add_widths(shape, SwapAb::on);
}

/// Of more than 160 sums a thread the registers leave none for an epilogue that reads, nor for transposing, other types
/// of D and descriptors of MN-major operands (ptxas spills). Beside three warpgroups 80 are too many where there are
/// 8-bit types and D is more than the product. Two blocks of promoted sums, three tiles' worth while the next is
/// summed, leave none for a bias and D of 8 bits. The warp that loads factors of 256 rows by a list has too many
/// numbers.
bool leaves_registers(const Config& c) {
  const bool has_epilogue =
      c.facts.c != Addend::none || c.facts.bias != Bias::none || c.facts.activation != Activation::none;
  if (gemm::consumer_warpgroups(c) == 3 && c.tile_n > 160)
    return !has_epilogue || !(gemm::is_8_bit(c.facts.d_dtype) || gemm::is_8_bit(gemm::a_dtype(c)));
  if (gemm::is_gathered(c) && gemm::has_scale_blocks(c) && c.tile_m > 192) return false;
  const bool is_promoted = c.facts.accumulation == Accumulation::promoted;
  if (gemm::blocks(c) == 2 && is_promoted && c.tile_n >= 128 && c.facts.bias != Bias::none &&
      gemm::is_8_bit(c.facts.d_dtype))
    return false;
  // Nor for 128 columns that share a factor, nor do parts of k leave any.
  if (gemm::has_d_factors(c) && ((gemm::blocks(c) == 2 && is_promoted) || c.split_k > 1)) return false;
  if (gemm::blocks(c) != 2 || c.tile_n <= 160) return true;
  return !gemm::is_swapped(c) && dtype_bytes(c.facts.d_dtype) == 2 && gemm::a_layout(c) == Layout::k_major &&
         gemm::b_layout(c) == Layout::k_major && !has_epilogue;
}

bool has_legal(const std::vector<Config>& list) {
  return std::any_of(list.begin(), list.end(), [](const Config& c) { return why_invalid(c).ok(); });
}

/// Leaves out what the assembler finds no registers for, unless pins allow nothing else.
std::vector<Config> without_spills(std::vector<Config> list) {
  std::vector<Config> kept;
  std::copy_if(list.begin(), list.end(), std::back_inserter(kept), leaves_registers);
  return has_legal(kept) ? kept : list;
}

/// Where rows of 128 bytes lie in two lines of memory, a copy costs up to twice as much; where k is short, the walk
/// along it is not what a tile takes. There more ways to share operands were measured to pay; else they gave less than
/// 0.1 %.
bool pays_sharing(const Gemm& p) {
  constexpr Hint kShortSteps = 8;
  if (p.a_layout == Layout::mn_major || p.b_layout == Layout::mn_major) return true;
  const Hint step = gemm::kStepBytes / dtype_bytes(p.dtype);
  return p.k >= 0 && (p.k <= kShortSteps * step || p.k % step != 0);
}

void add_every_width(const Gemm& problem, std::span<const Shape> shapes, std::span<const int> widths,
                     ConfigList& list) {
  for (const int width : widths) {
    for (Shape shape : shapes) {
      if (width < shape.tile_n) continue;
      shape.tile_n = width;
      add(problem, shape, list);
    }
  }
}

void add_swapped(const Gemm& problem, std::span<const Shape> shapes, std::span<const int> widths, ConfigList& list) {
  for (const int width : widths) {
    for (Shape shape : shapes) {
      if (width >= kNarrow && width < shape.tile_n) continue;
      shape.swap_ab = SwapAb::on;
      const int parts = std::clamp(problem.split_k.value_or(shape.split_k), 1, gemm::kMaxClusterSize);
      const bool is_shared = parts > 1 || shape.cluster_m > 1;
      shape.tile_n = static_cast<int>(round_up(width, is_shared ? kSharedWidthUnit * parts : unit_of_widths(problem)));
      // What is pinned and has no such width is refused by its rule.
      if (shape.tile_n > kWidest) shape.tile_n = width;
      add(problem, shape, list);
    }
  }
}

}  // namespace

std::vector<Config> GemmOperator::candidates(const Gemm& product) {
  const Gemm problem = product_of_group(product);
  ConfigList list;
  const bool is_shared = pays_sharing(problem);
  add_every_width(problem, kEveryWidth, kColumns, list);
  if (is_shared) add_every_width(problem, kEveryWidthShared, every_width(extent_or(problem.n, kWidest)), list);
  for (const Shape& shape : kShapes) add(problem, shape, list);
  const bool is_scaled = problem.a_scale_block != ScaleBlock::none;
  if (is_scaled)
    for (const Shape& shape : kShapesScaled) add(problem, shape, list);
  if (is_scaled && problem.m == kNarrow && problem.grouping == Grouping::none && problem.gate == Gate::none)
    add(problem, kScaledShared, list);
  if (problem.swap_ab == SwapAb::on || (dtype_bytes(problem.d_dtype) == 2 && problem.m >= 0)) {
    const std::int64_t m = extent_or(problem.m, kWidest);
    add_swapped(problem, kSwapped, swapped_widths(problem, m), list);
    if (m <= kNarrow && (!is_scaled || m > kLeastWidth))
      add_swapped(problem, kSwappedFew, swapped_widths(problem, m), list);
    if (is_shared) add_swapped(problem, kSwappedShared, every_width(m), list);
  }
  add_filling(problem, list);
  if (problem.stages && !has_legal(list.configs))
    for (const int tile_n : kNarrowColumns)
      for (const int tile_m : {128, 64}) add(problem, {tile_m, tile_n, 1, 1, 1, kCooperative}, list);
  return without_spills(std::move(list.configs));
}

}  // namespace tessera::gemm
