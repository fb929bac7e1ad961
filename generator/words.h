// How enumerations are spelled in flags, JSON, plans, kernel names and messages: one table per enumeration, in the
// order in which help and messages list them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/spec/attention_types.h"
#include "tessera/spec/block_scale.h"
#include "tessera/spec/indexer_types.h"
#include "tessera/spec/operand_type.h"
#include "tessera/spec/route_types.h"
#include "tessera/spec/topk_types.h"
#include "tessera/spec/types.h"

namespace tessera {

template <class Enum>
struct Word {
  Enum value;
  std::string_view text;
  std::string_view enumerator;  ///< "Swizzle::b128": the C++ name, without its namespace
};

inline constexpr Word<DType> kDTypeWords[] = {
    {DType::bf16, "bf16", "DType::bf16"}, {DType::f16, "f16", "DType::f16"}, {DType::f32, "f32", "DType::f32"},
    {DType::tf32, "tf32", "DType::tf32"}, {DType::f64, "f64", "DType::f64"}, {DType::e4m3, "e4m3", "DType::e4m3"},
    {DType::e5m2, "e5m2", "DType::e5m2"}, {DType::u8, "u8", "DType::u8"},    {DType::u16, "u16", "DType::u16"},
    {DType::u32, "u32", "DType::u32"},    {DType::s32, "s32", "DType::s32"}, {DType::u64, "u64", "DType::u64"},
    {DType::s64, "s64", "DType::s64"},    {DType::s8, "s8", "DType::s8"},
};
inline constexpr Word<Swizzle> kSwizzleWords[] = {{Swizzle::none, "none", "Swizzle::none"},
                                                  {Swizzle::b32, "32B", "Swizzle::b32"},
                                                  {Swizzle::b64, "64B", "Swizzle::b64"},
                                                  {Swizzle::b128, "128B", "Swizzle::b128"}};
inline constexpr Word<Mask> kMaskWords[] = {{Mask::none, "none", "Mask::none"},
                                            {Mask::causal, "causal", "Mask::causal"}};
inline constexpr Word<Window> kWindowWords[] = {{Window::none, "none", "Window::none"},
                                                {Window::sliding, "sliding", "Window::sliding"},
                                                {Window::chunked, "chunked", "Window::chunked"}};
inline constexpr Word<UsedLengths> kUsedLengthsWords[] = {{UsedLengths::none, "none", "UsedLengths::none"},
                                                          {UsedLengths::k, "k", "UsedLengths::k"},
                                                          {UsedLengths::qk, "qk", "UsedLengths::qk"}};
inline constexpr Word<SplitKv> kSplitKvWords[] = {{SplitKv::off, "off", "SplitKv::off"},
                                                  {SplitKv::on, "on", "SplitKv::on"},
                                                  {SplitKv::dealt, "dealt", "SplitKv::dealt"}};
inline constexpr Word<QueryLayout> kQueryLayoutWords[] = {{QueryLayout::dense, "dense", "QueryLayout::dense"},
                                                          {QueryLayout::ragged, "ragged", "QueryLayout::ragged"}};
inline constexpr Word<KvPools> kKvPoolsWords[] = {{KvPools::dense, "dense", "KvPools::dense"},
                                                  {KvPools::sparse_window, "sparse_window", "KvPools::sparse_window"}};
inline constexpr Word<KvFormat> kKvFormatWords[] = {{KvFormat::plain, "plain", "KvFormat::plain"},
                                                    {KvFormat::nvfp4, "nvfp4", "KvFormat::nvfp4"},
                                                    {KvFormat::mxfp8, "mxfp8", "KvFormat::mxfp8"}};
inline constexpr Word<KvCache> kKvCacheWords[] = {{KvCache::rows, "rows", "KvCache::rows"},
                                                  {KvCache::mla_656, "mla_656", "KvCache::mla_656"},
                                                  {KvCache::mla_584, "mla_584", "KvCache::mla_584"},
                                                  {KvCache::mla_384, "mla_384", "KvCache::mla_384"}};
inline constexpr Word<VIsK> kVIsKWords[] = {{VIsK::off, "off", "VIsK::off"}, {VIsK::on, "on", "VIsK::on"}};
inline constexpr Word<KvLayout> kKvLayoutWords[] = {{KvLayout::dense, "dense", "KvLayout::dense"},
                                                    {KvLayout::paged, "paged", "KvLayout::paged"},
                                                    {KvLayout::ragged, "ragged", "KvLayout::ragged"}};
inline constexpr Word<KvCopy> kKvCopyWords[] = {{KvCopy::tma, "tma", "KvCopy::tma"},
                                                {KvCopy::cp_async, "cp_async", "KvCopy::cp_async"}};
inline constexpr Word<Sink> kSinkWords[] = {{Sink::none, "none", "Sink::none"},
                                            {Sink::per_head, "per_head", "Sink::per_head"}};
inline constexpr Word<Softcap> kSoftcapWords[] = {{Softcap::none, "none", "Softcap::none"},
                                                  {Softcap::tanh, "tanh", "Softcap::tanh"}};
inline constexpr Word<Alibi> kAlibiWords[] = {{Alibi::none, "none", "Alibi::none"},
                                              {Alibi::per_head, "per_head", "Alibi::per_head"}};
inline constexpr Word<TreeMask> kTreeMaskWords[] = {{TreeMask::none, "none", "TreeMask::none"},
                                                    {TreeMask::bits, "bits", "TreeMask::bits"}};
inline constexpr Word<Output> kOutputWords[] = {{Output::normalized, "normalized", "Output::normalized"},
                                                {Output::unnormalized, "unnormalized", "Output::unnormalized"}};
inline constexpr Word<Layout> kLayoutWords[] = {{Layout::k_major, "k", "Layout::k_major"},
                                                {Layout::mn_major, "mn", "Layout::mn_major"}};
inline constexpr Word<Accumulation> kAccumulationWords[] = {
    {Accumulation::fast, "fast", "Accumulation::fast"}, {Accumulation::promoted, "promoted", "Accumulation::promoted"}};
inline constexpr Word<SwapAb> kSwapAbWords[] = {{SwapAb::off, "off", "SwapAb::off"}, {SwapAb::on, "on", "SwapAb::on"}};
inline constexpr Word<KernelSchedule> kKernelScheduleWords[] = {
    {KernelSchedule::cooperative, "cooperative", "KernelSchedule::cooperative"},
    {KernelSchedule::ping_pong, "ping_pong", "KernelSchedule::ping_pong"}};
inline constexpr Word<Addend> kAddendWords[] = {{Addend::none, "none", "Addend::none"},
                                                {Addend::matrix, "matrix", "Addend::matrix"}};
inline constexpr Word<Bias> kBiasWords[] = {{Bias::none, "none", "Bias::none"},
                                            {Bias::column, "column", "Bias::column"},
                                            {Bias::group, "group", "Bias::group"}};
inline constexpr Word<Activation> kActivationWords[] = {{Activation::none, "none", "Activation::none"},
                                                        {Activation::relu, "relu", "Activation::relu"},
                                                        {Activation::gelu, "gelu", "Activation::gelu"},
                                                        {Activation::gelu_tanh, "gelu_tanh", "Activation::gelu_tanh"},
                                                        {Activation::silu, "silu", "Activation::silu"}};
inline constexpr Word<MmaKind> kMmaKindWords[] = {
    {MmaKind::wgmma_f16, "wgmma.f16", "MmaKind::wgmma_f16"},
    {MmaKind::tcgen05_f16, "tcgen05.f16", "MmaKind::tcgen05_f16"},
    {MmaKind::tcgen05_f8f6f4, "tcgen05.f8f6f4", "MmaKind::tcgen05_f8f6f4"},
    {MmaKind::mma_f16, "mma.f16", "MmaKind::mma_f16"},
    {MmaKind::mma_f8, "mma.f8", "MmaKind::mma_f8"},
    {MmaKind::mma_i8, "mma.i8", "MmaKind::mma_i8"},
    {MmaKind::mma_mxf4nvf4, "mma.mxf4nvf4", "MmaKind::mma_mxf4nvf4"},
    {MmaKind::mma_mxf4, "mma.mxf4", "MmaKind::mma_mxf4"},
    {MmaKind::mma_mxf8f6f4, "mma.mxf8f6f4", "MmaKind::mma_mxf8f6f4"}};
inline constexpr Word<ProbabilityPath> kProbabilityPathWords[] = {
    {ProbabilityPath::tmem, "tmem", "ProbabilityPath::tmem"}, {ProbabilityPath::smem, "smem", "ProbabilityPath::smem"}};

inline constexpr Word<BlockFormat> kBlockFormatWords[] = {
    {BlockFormat::nvfp4, "nvfp4", "BlockFormat::nvfp4"},
    {BlockFormat::mxfp4, "mxfp4", "BlockFormat::mxfp4"},
    {BlockFormat::mxfp8_e4m3, "mxfp8_e4m3", "BlockFormat::mxfp8_e4m3"},
    {BlockFormat::mxfp8_e5m2, "mxfp8_e5m2", "BlockFormat::mxfp8_e5m2"},
    {BlockFormat::mxfp6_e3m2, "mxfp6_e3m2", "BlockFormat::mxfp6_e3m2"},
    {BlockFormat::mxfp6_e2m3, "mxfp6_e2m3", "BlockFormat::mxfp6_e2m3"}};
inline constexpr Word<OperandType> kOperandTypeWords[] = {
    {OperandType::bf16, "bf16", "OperandType::bf16"},
    {OperandType::f16, "f16", "OperandType::f16"},
    {OperandType::tf32, "tf32", "OperandType::tf32"},
    {OperandType::e4m3, "e4m3", "OperandType::e4m3"},
    {OperandType::e5m2, "e5m2", "OperandType::e5m2"},
    {OperandType::s8, "s8", "OperandType::s8"},
    {OperandType::u8, "u8", "OperandType::u8"},
    {OperandType::int4, "int4", "OperandType::int4"},
    {OperandType::nvfp4, "nvfp4", "OperandType::nvfp4"},
    {OperandType::mxfp4, "mxfp4", "OperandType::mxfp4"},
    {OperandType::mxfp8_e4m3, "mxfp8_e4m3", "OperandType::mxfp8_e4m3"},
    {OperandType::mxfp8_e5m2, "mxfp8_e5m2", "OperandType::mxfp8_e5m2"},
    {OperandType::mxfp6_e3m2, "mxfp6_e3m2", "OperandType::mxfp6_e3m2"},
    {OperandType::mxfp6_e2m3, "mxfp6_e2m3", "OperandType::mxfp6_e2m3"}};
inline constexpr Word<WeightFormat> kWeightFormatWords[] = {{WeightFormat::mxfp4, "mxfp4", "WeightFormat::mxfp4"},
                                                            {WeightFormat::nvfp4, "nvfp4", "WeightFormat::nvfp4"},
                                                            {WeightFormat::int4, "int4", "WeightFormat::int4"}};
inline constexpr Word<ZeroPoints> kZeroPointsWords[] = {{ZeroPoints::none, "none", "ZeroPoints::none"},
                                                        {ZeroPoints::given, "given", "ZeroPoints::given"}};
inline constexpr Word<Gate> kGateWords[] = {{Gate::none, "none", "Gate::none"},
                                            {Gate::dual, "dual", "Gate::dual"},
                                            {Gate::interleaved, "interleaved", "Gate::interleaved"}};
inline constexpr Word<GateActivation> kGateActivationWords[] = {
    {GateActivation::silu, "silu", "GateActivation::silu"},
    {GateActivation::gelu, "gelu", "GateActivation::gelu"},
    {GateActivation::gelu_tanh, "gelu_tanh", "GateActivation::gelu_tanh"},
    {GateActivation::gpt_oss, "gpt_oss", "GateActivation::gpt_oss"}};
inline constexpr Word<Grouping> kGroupingWords[] = {{Grouping::none, "none", "Grouping::none"},
                                                    {Grouping::contiguous, "contiguous", "Grouping::contiguous"},
                                                    {Grouping::masked, "masked", "Grouping::masked"}};
inline constexpr Word<Gather> kGatherWords[] = {{Gather::none, "none", "Gather::none"},
                                                {Gather::rows, "rows", "Gather::rows"}};
inline constexpr Word<ScaleBlock> kScaleBlockWords[] = {{ScaleBlock::none, "none", "ScaleBlock::none"},
                                                        {ScaleBlock::of_row, "1x128", "ScaleBlock::of_row"},
                                                        {ScaleBlock::square, "128x128", "ScaleBlock::square"}};
inline constexpr Word<ScaleValues> kScaleValuesWords[] = {{ScaleValues::any, "any", "ScaleValues::any"},
                                                          {ScaleValues::pow2, "pow2", "ScaleValues::pow2"}};
inline constexpr Word<OutputFormat> kOutputFormatWords[] = {
    {OutputFormat::plain, "plain", "OutputFormat::plain"},
    {OutputFormat::nvfp4, "nvfp4", "OutputFormat::nvfp4"},
    {OutputFormat::mxfp4, "mxfp4", "OutputFormat::mxfp4"},
    {OutputFormat::mxfp8_e4m3, "mxfp8_e4m3", "OutputFormat::mxfp8_e4m3"},
    {OutputFormat::mxfp8_e5m2, "mxfp8_e5m2", "OutputFormat::mxfp8_e5m2"}};
inline constexpr Word<ValueType> kValueTypeWords[] = {{ValueType::e2m1, "e2m1", "ValueType::e2m1"},
                                                      {ValueType::e4m3, "e4m3", "ValueType::e4m3"},
                                                      {ValueType::e5m2, "e5m2", "ValueType::e5m2"},
                                                      {ValueType::e3m2, "e3m2", "ValueType::e3m2"},
                                                      {ValueType::e2m3, "e2m3", "ValueType::e2m3"}};
inline constexpr Word<ScaleType> kScaleTypeWords[] = {{ScaleType::ue4m3, "ue4m3", "ScaleType::ue4m3"},
                                                      {ScaleType::ue8m0, "ue8m0", "ScaleType::ue8m0"}};
inline constexpr Word<ScaleForm> kScaleFormWords[] = {{ScaleForm::plain, "plain", "ScaleForm::plain"},
                                                      {ScaleForm::tile, "tile", "ScaleForm::tile"}};
inline constexpr Word<ScaleRounding> kScaleRoundingWords[] = {{ScaleRounding::up, "up", "ScaleRounding::up"},
                                                              {ScaleRounding::floor, "floor", "ScaleRounding::floor"}};
inline constexpr Word<GlobalScale> kGlobalScaleWords[] = {{GlobalScale::none, "none", "GlobalScale::none"},
                                                          {GlobalScale::given, "given", "GlobalScale::given"},
                                                          {GlobalScale::amax, "amax", "GlobalScale::amax"}};
inline constexpr Word<Conversion> kConversionWords[] = {{Conversion::software, "software", "Conversion::software"},
                                                        {Conversion::hardware, "hardware", "Conversion::hardware"}};
inline constexpr Word<Scoring> kScoringWords[] = {{Scoring::softmax, "softmax", "Scoring::softmax"},
                                                  {Scoring::sigmoid, "sigmoid", "Scoring::sigmoid"},
                                                  {Scoring::sqrt_softplus, "sqrt_softplus", "Scoring::sqrt_softplus"}};
inline constexpr Word<Renormalize> kRenormalizeWords[] = {{Renormalize::off, "off", "Renormalize::off"},
                                                          {Renormalize::on, "on", "Renormalize::on"}};
inline constexpr Word<Ties> kTiesWords[] = {{Ties::smaller, "smaller", "Ties::smaller"},
                                            {Ties::larger, "larger", "Ties::larger"}};
inline constexpr Word<ResultOrder> kResultOrderWords[] = {{ResultOrder::index, "index", "ResultOrder::index"},
                                                          {ResultOrder::value, "value", "ResultOrder::value"}};
inline constexpr Word<RowRange> kRowRangeWords[] = {{RowRange::all, "all", "RowRange::all"},
                                                    {RowRange::lengths, "lengths", "RowRange::lengths"},
                                                    {RowRange::starts, "starts", "RowRange::starts"}};
inline constexpr Word<IndexForm> kIndexFormWords[] = {{IndexForm::columns, "columns", "IndexForm::columns"},
                                                      {IndexForm::pages, "pages", "IndexForm::pages"},
                                                      {IndexForm::offsets, "offsets", "IndexForm::offsets"}};
inline constexpr Word<WithValues> kWithValuesWords[] = {{WithValues::off, "off", "WithValues::off"},
                                                        {WithValues::on, "on", "WithValues::on"}};
inline constexpr Word<WithGuesses> kWithGuessesWords[] = {{WithGuesses::off, "off", "WithGuesses::off"},
                                                          {WithGuesses::on, "on", "WithGuesses::on"}};
inline constexpr Word<ScoreColumns> kScoreColumnsWords[] = {
    {ScoreColumns::keys, "keys", "ScoreColumns::keys"},
    {ScoreColumns::compressed, "compressed", "ScoreColumns::compressed"}};
inline constexpr Word<IndexFormat> kIndexFormatWords[] = {{IndexFormat::e4m3, "e4m3", "IndexFormat::e4m3"},
                                                          {IndexFormat::mxfp4, "mxfp4", "IndexFormat::mxfp4"}};
inline constexpr Word<IndexOperands> kIndexOperandsWords[] = {
    {IndexOperands::stored, "stored", "IndexOperands::stored"}, {IndexOperands::bf16, "bf16", "IndexOperands::bf16"}};
inline constexpr Word<Outside> kOutsideWords[] = {{Outside::minus_inf, "minus_inf", "Outside::minus_inf"},
                                                  {Outside::unwritten, "unwritten", "Outside::unwritten"}};
inline constexpr Word<ContextLengths> kContextLengthsWords[] = {
    {ContextLengths::sequence, "sequence", "ContextLengths::sequence"},
    {ContextLengths::query, "query", "ContextLengths::query"}};

constexpr std::span<const Word<ScoreColumns>> words_of(ScoreColumns) { return kScoreColumnsWords; }
constexpr std::span<const Word<Outside>> words_of(Outside) { return kOutsideWords; }
constexpr std::span<const Word<IndexFormat>> words_of(IndexFormat) { return kIndexFormatWords; }
constexpr std::span<const Word<IndexOperands>> words_of(IndexOperands) { return kIndexOperandsWords; }
constexpr std::span<const Word<ContextLengths>> words_of(ContextLengths) { return kContextLengthsWords; }
constexpr std::span<const Word<Scoring>> words_of(Scoring) { return kScoringWords; }
constexpr std::span<const Word<Ties>> words_of(Ties) { return kTiesWords; }
constexpr std::span<const Word<ResultOrder>> words_of(ResultOrder) { return kResultOrderWords; }
constexpr std::span<const Word<RowRange>> words_of(RowRange) { return kRowRangeWords; }
constexpr std::span<const Word<IndexForm>> words_of(IndexForm) { return kIndexFormWords; }
constexpr std::span<const Word<WithValues>> words_of(WithValues) { return kWithValuesWords; }
constexpr std::span<const Word<WithGuesses>> words_of(WithGuesses) { return kWithGuessesWords; }
constexpr std::span<const Word<Renormalize>> words_of(Renormalize) { return kRenormalizeWords; }
constexpr std::span<const Word<BlockFormat>> words_of(BlockFormat) { return kBlockFormatWords; }
constexpr std::span<const Word<OperandType>> words_of(OperandType) { return kOperandTypeWords; }
constexpr std::span<const Word<WeightFormat>> words_of(WeightFormat) { return kWeightFormatWords; }
constexpr std::span<const Word<ZeroPoints>> words_of(ZeroPoints) { return kZeroPointsWords; }
constexpr std::span<const Word<Gate>> words_of(Gate) { return kGateWords; }
constexpr std::span<const Word<GateActivation>> words_of(GateActivation) { return kGateActivationWords; }
constexpr std::span<const Word<Grouping>> words_of(Grouping) { return kGroupingWords; }
constexpr std::span<const Word<ScaleBlock>> words_of(ScaleBlock) { return kScaleBlockWords; }
constexpr std::span<const Word<ScaleValues>> words_of(ScaleValues) { return kScaleValuesWords; }
constexpr std::span<const Word<Gather>> words_of(Gather) { return kGatherWords; }
constexpr std::span<const Word<OutputFormat>> words_of(OutputFormat) { return kOutputFormatWords; }
constexpr std::span<const Word<ValueType>> words_of(ValueType) { return kValueTypeWords; }
constexpr std::span<const Word<ScaleType>> words_of(ScaleType) { return kScaleTypeWords; }
constexpr std::span<const Word<ScaleForm>> words_of(ScaleForm) { return kScaleFormWords; }
constexpr std::span<const Word<ScaleRounding>> words_of(ScaleRounding) { return kScaleRoundingWords; }
constexpr std::span<const Word<GlobalScale>> words_of(GlobalScale) { return kGlobalScaleWords; }
constexpr std::span<const Word<Conversion>> words_of(Conversion) { return kConversionWords; }
constexpr std::span<const Word<DType>> words_of(DType) { return kDTypeWords; }
constexpr std::span<const Word<Swizzle>> words_of(Swizzle) { return kSwizzleWords; }
constexpr std::span<const Word<Mask>> words_of(Mask) { return kMaskWords; }
constexpr std::span<const Word<Window>> words_of(Window) { return kWindowWords; }
constexpr std::span<const Word<UsedLengths>> words_of(UsedLengths) { return kUsedLengthsWords; }
constexpr std::span<const Word<SplitKv>> words_of(SplitKv) { return kSplitKvWords; }
constexpr std::span<const Word<QueryLayout>> words_of(QueryLayout) { return kQueryLayoutWords; }
constexpr std::span<const Word<VIsK>> words_of(VIsK) { return kVIsKWords; }
constexpr std::span<const Word<KvPools>> words_of(KvPools) { return kKvPoolsWords; }
constexpr std::span<const Word<KvCache>> words_of(KvCache) { return kKvCacheWords; }
constexpr std::span<const Word<KvFormat>> words_of(KvFormat) { return kKvFormatWords; }
constexpr std::span<const Word<KvLayout>> words_of(KvLayout) { return kKvLayoutWords; }
constexpr std::span<const Word<KvCopy>> words_of(KvCopy) { return kKvCopyWords; }
constexpr std::span<const Word<Sink>> words_of(Sink) { return kSinkWords; }
constexpr std::span<const Word<Softcap>> words_of(Softcap) { return kSoftcapWords; }
constexpr std::span<const Word<Alibi>> words_of(Alibi) { return kAlibiWords; }
constexpr std::span<const Word<TreeMask>> words_of(TreeMask) { return kTreeMaskWords; }
constexpr std::span<const Word<Output>> words_of(Output) { return kOutputWords; }
constexpr std::span<const Word<Layout>> words_of(Layout) { return kLayoutWords; }
constexpr std::span<const Word<Accumulation>> words_of(Accumulation) { return kAccumulationWords; }
constexpr std::span<const Word<SwapAb>> words_of(SwapAb) { return kSwapAbWords; }
constexpr std::span<const Word<KernelSchedule>> words_of(KernelSchedule) { return kKernelScheduleWords; }
constexpr std::span<const Word<Addend>> words_of(Addend) { return kAddendWords; }
constexpr std::span<const Word<Bias>> words_of(Bias) { return kBiasWords; }
constexpr std::span<const Word<Activation>> words_of(Activation) { return kActivationWords; }
constexpr std::span<const Word<MmaKind>> words_of(MmaKind) { return kMmaKindWords; }
constexpr std::span<const Word<ProbabilityPath>> words_of(ProbabilityPath) { return kProbabilityPathWords; }

/// The spelling of a value: "bf16", "128B", "wgmma.f16". "?" for a value that its enumeration does not have.
template <class Enum>
constexpr std::string_view to_word(Enum value) {
  for (const Word<Enum>& word : words_of(Enum{}))
    if (word.value == value) return word.text;
  return "?";
}

/// "Swizzle::b128": what generated code spells.
template <class Enum>
constexpr std::string_view to_enumerator(Enum value) {
  for (const Word<Enum>& word : words_of(Enum{}))
    if (word.value == value) return word.enumerator;
  return "?";
}

/// False when there is no such spelling; out is then unchanged.
template <class Enum>
constexpr bool from_word(std::string_view text, Enum& out) {
  for (const Word<Enum>& word : words_of(Enum{}))
    if (word.text == text) {
      out = word.value;
      return true;
    }
  return false;
}

/// "none, 32B, 64B, 128B"
template <class Enum>
std::string word_list() {
  std::string list;
  for (const Word<Enum>& word : words_of(Enum{})) {
    if (!list.empty()) list += ", ";
    list += word.text;
  }
  return list;
}

}  // namespace tessera
