#include "cli/run_keys.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "cli/run_lengths.h"
#include "generator/facts.h"
#include "reference/key_places.h"
#include "reference/narrow_keys.h"
#include "reference/ragged.h"
#include "reference/scaled_keys.h"
#include "spec/attention_facts.h"

namespace tessera::cli {

namespace {

/// Scales [pages, heads, page_size, scales of a key], seen as keys are.
reference::PoolView pool_of_scales(const reference::Tensor& pool) {
  const std::vector<std::int64_t> strides = reference::dense_strides(pool.shape);
  return {const_cast<std::byte*>(pool.bytes.data()),
          DType::u8,
          {pool.shape[0], pool.shape[2], pool.shape[1], pool.shape[3]},
          {strides[0], strides[2], strides[1], 1}};
}

reference::PoolView pool_of(const reference::Tensor& pool) {
  return {const_cast<std::byte*>(pool.bytes.data()), pool.dtype, pool.shape, reference::dense_strides(pool.shape)};
}

/// Valid keys of each sequence.
reference::Tensor lengths_of(const AttentionFacts& facts, const std::map<std::string, reference::Tensor>& inputs,
                             std::int64_t seqlen_k) {
  const auto used = inputs.find("seqused_k");
  if (facts.kv_layout == KvLayout::paged) return used->second;
  reference::Tensor lengths = reference::lengths_of(inputs.at("cu_seqlens_k"), inputs.at("k").shape[0], seqlen_k);
  for (std::int64_t b = 0; used != inputs.end() && b < lengths.elements(); ++b)
    lengths.set(b, std::clamp(used->second.at(b), 0.0, lengths.at(b)));
  return lengths;
}

}  // namespace

void narrow_keys(const Plan& plan, std::uint64_t seed, bool is_exact, reference::FmhaTensors& made,
                 std::map<std::string, reference::Tensor>& all) {
  const AttentionFacts facts = attention_facts(plan.problem.as<Fmha>());
  if (!has_descales(facts)) return;
  for (const auto& [keys, scales] : {std::pair(&made.k, "k_scale"), std::pair(&made.v, "v_scale")}) {
    if (has_key_scales(facts)) {
      reference::ScaledKeys scaled = reference::scaled_keys(facts.kv_format, *keys, is_exact);
      *keys = std::move(scaled.codes);
      all.emplace(scales, std::move(scaled.scales));  // place_keys() brings them to pages
    } else if (widens_keys(facts)) {
      *keys = reference::narrowed(*keys);
    }
  }
  for (const auto& [name, stream] :
       {std::pair("q_descale", 8U), std::pair("k_descale", 6U), std::pair("v_descale", 7U)}) {
    if (name == std::string_view("q_descale") && !is_8_bit(facts)) continue;
    if (name == std::string_view("v_descale") && facts.v_is_k == VIsK::on) continue;
    reference::Tensor descale = reference::make_descales(made.k.shape[0], made.k.shape[2], stream, seed);
    for (std::int64_t i = 0; is_exact && i < descale.elements(); ++i) descale.set(i, 1);
    all.emplace(name, std::move(descale));
  }
}

void give_descales(const AttentionFacts& facts, const std::map<std::string, reference::Tensor>& inputs,
                   reference::FmhaInputs& in) {
  for (const auto& [name, slot] : {std::pair("q_descale", &in.q_descale), std::pair("k_descale", &in.k_descale),
                                   std::pair("v_descale", &in.v_descale)})
    if (const auto found = inputs.find(name); found != inputs.end()) *slot = found->second.view();
  if (facts.v_is_k == VIsK::on) in.v_descale = in.k_descale;
}

void place_keys(const Plan& plan, const LaunchSizes& launch, const std::vector<std::int64_t>& sizes,
                const RunFlags& flags, const reference::FmhaTensors& made,
                std::map<std::string, reference::Tensor>& all) {
  const AttentionFacts facts = attention_facts(plan.problem.as<Fmha>());
  const auto size = [&](const char* name) { return launch.evaluate(Expression::parse(name), sizes); };
  for (const BufferSpec& buffer : plan.launch.buffers) {
    if (buffer.name == "seqused_q") all.emplace(buffer.name, used_queries(flags, size("batch"), size("seqlen_q")));
    if (buffer.name == "seqused_k") all.emplace(buffer.name, key_lengths(flags, size("batch"), size("seqlen_k")));
    if (buffer.name == "block_table")
      all.emplace(buffer.name, reference::draw_block_table(all.at("seqused_k"), facts.page_size, size("pages"),
                                                           size("max_pages"), static_cast<std::uint64_t>(flags.seed)));
    if (buffer.name == "cu_seqlens_k")
      all.emplace(buffer.name, key_ends(flags, size("batch"), size("seqlen_k"), size("tokens_k")));
  }
  for (const auto& [name, keys] : {std::pair("k", &made.k), std::pair("v", &made.v)}) {
    if (all.count(name) != 0 || (facts.v_is_k == VIsK::on && name == std::string_view("v"))) continue;
    if (facts.kv_layout == KvLayout::ragged) {
      all.emplace(name, reference::pack_keys(*keys, all.at("cu_seqlens_k"), size("tokens_k")));
      continue;
    }
    reference::Tensor pool(key_dtype(facts), {size("pages"), facts.page_size, keys->shape[2], keys->shape[3]});
    std::fill(pool.bytes.begin(), pool.bytes.end(), std::byte{0xFF});
    reference::put_pages(*keys, all.at("seqused_k"), all.at("block_table"), pool_of(pool));
    all.emplace(name, std::move(pool));
  }
  if (!has_key_scales(facts)) return;
  for (const char* const name : {"k_scale", "v_scale"}) {
    reference::Tensor& scales = all.at(name);
    if (flags.arrays.count(name) != 0) continue;
    reference::Tensor pool(DType::u8, {size("pages"), scales.shape[2], facts.page_size, scales.shape[3]});
    std::fill(pool.bytes.begin(), pool.bytes.end(), std::byte{0xFF});
    reference::put_pages(scales, all.at("seqused_k"), all.at("block_table"), pool_of_scales(pool));
    scales = std::move(pool);
  }
}

reference::Comparison check_placed_keys(const AttentionFacts& facts,
                                        const std::map<std::string, reference::Tensor>& inputs,
                                        const reference::FmhaOutputs& outputs, const RunFlags& flags,
                                        const reference::FmhaCheck& check) {
  const std::int64_t seqlen_k = flags.sizes.at("seqlen_k");
  const reference::Tensor lengths = lengths_of(facts, inputs, seqlen_k);
  const auto dense = [&](const char* name) {
    const reference::Tensor& placed = inputs.at(name);
    if (facts.kv_layout == KvLayout::ragged) return reference::unpack_keys(placed, inputs.at("cu_seqlens_k"), seqlen_k);
    const reference::Tensor& table = inputs.at("block_table");
    reference::Tensor keys = reference::take_pages(pool_of(placed), lengths, table, seqlen_k);
    if (!has_key_scales(facts)) return keys;
    const reference::Tensor& scales = inputs.at(std::string(name) + "_scale");
    return reference::widened_keys(
        facts.kv_format, {std::move(keys), reference::take_pages(pool_of_scales(scales), lengths, table, seqlen_k)});
  };
  const bool has_v = facts.v_is_k == VIsK::off;
  const reference::Tensor k = dense("k"), v = has_v ? dense("v") : reference::Tensor();
  reference::FmhaInputs in{inputs.at("q").view(), k.view(), {}, {}, lengths.view()};
  in.v = has_v ? v.view() : reference::first_columns(k.view(), facts.head_dim_v);
  if (const auto found = inputs.find("seqused_q"); found != inputs.end()) in.seqused_q = found->second.view();
  give_descales(facts, inputs, in);
  if (facts.q_layout == QueryLayout::ragged)
    return reference::check_ragged_fmha(in, inputs.at("cu_seqlens_q").view(), outputs, check);
  return reference::check_fmha(in, outputs, check);
}

}  // namespace tessera::cli
