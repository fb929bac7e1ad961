// Chains as text, what row operators refuse, in their own words, and what they choose. What holds of every operator is
// tested over every_fact().
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <numbers>
#include <sstream>

#include "base/file.h"
#include "generator/rows/rope_turns.h"
#include "tessera/error.h"
#include "tessera/plan.h"
#include "tessera/row_chain.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace rows_test {

namespace {

std::string refused(ErrorKind kind, const Fields& fields) {
  try {
    make_plan(problem_of("rows", fields));
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "planned";
}
std::string unsupported(const Fields& fields) { return refused(ErrorKind::unsupported, fields); }

std::string chain_refused(std::string_view text) { return refused(ErrorKind::usage, {{"chain", std::string(text)}}); }
std::string canonical(std::string_view text) { return to_text(parse_row_chain(text)); }

}  // namespace

TEST_CASE("rows: a chain's text comes back, its options once and in one order") {
  for (const char* const text : {"residual(store)+rmsnorm+same",
                                 "residual(store)+rmsnorm+e4m3",
                                 "gate(silu,interleaved,limit=10)+nvfp4(tile,global)",
                                 "rope(448..511,inverse)+nvfp4(0..447)+bf16(448..511)",
                                 "rope(halves,base=500000,llama3=8)+e4m3(row,pow2,scatter)",
                                 "rope(yarn=16,trained=4096,low=2,high=48)+f16",
                                 "rope(inverse,yarn=16,magnitude=yarn)+f16",
                                 "rope(yarn=40,magnitude=1.368888)+f16",
                                 "rope(magnitude=0.5)+f16",
                                 "rope(0..63,inverse,table,halves)+bf16(scatter,add)",
                                 "gate(gpt_oss,interleaved,limit=7)+same(scatter,add)",
                                 "gather+hadamard(block=64)+f32",
                                 "layernorm(no_weight)+mxfp8_e5m2+e4m3(block=64,columns)+e4m3(tensor)",
                                 "residual+factor+mxfp4",
                                 "e4m3(block=32,pow2,packed,scatter)",
                                 "mhc_post+softcap(limit=50)+softmax+mla_656(0..575)",
                                 "mhc_pre+sigmoid+indexer_132",
                                 "mhc_post(product)",
                                 "gather+mhc_pre(product,iterations=10)+rmsnorm+mxfp8_e4m3",
                                 "mhc_mix(hidden=28672,iterations=10)+f32",
                                 "join(128)+rope(0..127,halves)+same(0..127,paged)+e4m3(tensor,paged)",
                                 "combine(6)+same",
                                 "heads+rmsnorm+rope(halves)+same",
                                 "combine(2,no_weight)+f32",
                                 "compress(4,overlap)+rmsnorm+mla_384",
                                 "compress(128)+mla_288",
                                 "gather+dequant(nvfp4,tile,global)+mla_528",
                                 "dequant(e4m3,block=64,columns)+indexer_68",
                                 "dequant(e4m3,row)+same",
                                 "gather+dequant(e4m3,tensor)+same",
                                 "dequant(mxfp8_e5m2)+same"}) {
    CHECK(canonical(text) == text);
    CHECK(parse_row_chain(canonical(text)) == parse_row_chain(text));
  }
  CHECK(canonical("rope(inverse,0..63)") == "rope(0..63,inverse)+same");
  CHECK(canonical("hadamard(64)+e4m3(128,columns)") == "hadamard(block=64)+e4m3(columns)");
  CHECK(canonical("silu_mul+mxfp8") == "gate(silu)+mxfp8_e4m3");
  CHECK(canonical("quantize(nvfp4)") == "nvfp4");
  CHECK(canonical("rmsnorm+quantize(mxfp8,tile,0..63)") == "rmsnorm+mxfp8_e4m3(0..63,tile)");
  CHECK(canonical("quantize(e4m3,64,pow2)+bf16") == canonical("e4m3(64,pow2)+bf16"));
  CHECK(canonical("neox_rope+bf16(scatter)") == "rope(halves)+bf16(scatter)");
  CHECK(canonical("dequant(mxfp8,tile)") == "dequant(mxfp8_e4m3,tile)+same");
  CHECK(canonical("dequant(e4m3)") == "dequant(e4m3)+same");
  CHECK(canonical("append_kv(128)") == "join(128)+rope(0..127)+same(0..127,paged)+same(128..255,paged)");
  CHECK(canonical("append_kv(128,0..63)") == "join(128)+rope(0..63)+same(0..127,paged)+same(128..255,paged)");
  CHECK(canonical("append_kv(64,halves,base=500000,e4m3)") ==
        "join(64)+rope(0..63,halves,base=500000)+e4m3(0..63,tensor,paged)+e4m3(64..127,tensor,paged)");
  CHECK(canonical("rope(magnitude=1.000)") == "rope+same");
  CHECK(canonical("rope(magnitude=12.340)") == "rope(magnitude=12.34)+same");
  CHECK(canonical("rope(high=64,yarn=16)") == "rope(yarn=16,high=64)+same");
}

TEST_CASE("rows: what is wrong with a chain is told with its place") {
  CHECK(chain_refused("residual+rmsnrm") ==
        "chain = residual+rmsnrm: rmsnrm (character 10): no such part, did you mean rmsnorm?");
  CHECK(chain_refused("") == "chain = : no part");
  CHECK(chain_refused("rmsnorm+") == "chain = rmsnorm+: a part is expected here");
  CHECK(chain_refused("rmsnorm bf16") == "chain = rmsnorm bf16:   (character 8): + is expected between two parts");
  CHECK(chain_refused("rope(0..63") == "chain = rope(0..63: a ) is missing");
  CHECK(chain_refused("rope(63..0)") ==
        "chain = rope(63..0): 63..0 (character 6): the last column comes before the first");
  CHECK(chain_refused("rope(64)") == "chain = rope(64): 64 (character 6): columns are written as FIRST..LAST");
  CHECK(chain_refused("rope(0..x)") == "chain = rope(0..x): x (character 9): a whole number is expected here");
  CHECK(chain_refused("rope(base)") == "chain = rope(base): base (character 6): base=NUMBER is expected");
  CHECK(chain_refused("nvfp4(tiles)") ==
        "chain = nvfp4(tiles): tiles (character 7): options here are FIRST..LAST, tile, global, scatter, did you mean "
        "tile?");
  CHECK(chain_refused("quantize") ==
        "chain = quantize: quantize (character 1): quantize(FORMAT) says in which format a row is written: "
        "quantize(nvfp4)");
  CHECK(chain_refused("quantize(bf16)") ==
        "chain = quantize(bf16): bf16 (character 10): no such format: nvfp4, mxfp4, mxfp8, mxfp8_e5m2 or e4m3");
  CHECK(chain_refused("quantize(nvfp4,tile") == "chain = quantize(nvfp4,tile: a ) is missing");
  CHECK(to_text(parse_row_chain("append_kv")) == to_text(parse_row_chain("append_kv(128)")));
  CHECK(to_text(parse_row_chain("append_kv+bf16")) == to_text(parse_row_chain("append_kv(128)+bf16")));
  CHECK(chain_refused("append_kv(100)") ==
        "chain = append_kv(100): 100 (character 11): columns of k are a multiple of 8");
  CHECK(chain_refused("append_kv(128,halvs)") ==
        "chain = append_kv(128,halvs): halvs (character 15): options here are FIRST..LAST, inverse, table, halves, "
        "base, "
        "linear, "
        "llama3, yarn, trained, low, high, magnitude, did you mean halves?");
  CHECK(chain_refused("combine+bf16") ==
        "chain = combine+bf16: combine (character 1): combine(ROWS) says how many rows are added");
  CHECK(
      chain_refused("bf16+compress(overlap)") ==
      "chain = bf16+compress(overlap): compress(overlap) (character 6): compress(TOKENS) says how many tokens an entry "
      "has");
  CHECK(chain_refused("dequant(tile)+bf16") ==
        "chain = dequant(tile)+bf16: dequant(tile) (character 1): dequant(FORMAT) says what x is: e4m3, nvfp4, mxfp4, "
        "mxfp8_e4m3 or mxfp8_e5m2");
  CHECK(chain_refused("combine(17)+bf16") ==
        "chain = combine(17)+bf16: combine(17) (character 1): combine of 17 rows: 1 to 16");
  CHECK(chain_refused("compress(3)") ==
        "chain = compress(3): compress(3) (character 1): compress of 3 tokens: a power of two up to 256 needed");
  CHECK(chain_refused("rmsnorm+compress(512)") ==
        "chain = rmsnorm+compress(512): compress(512) (character 9): compress of 512 tokens: a power of two up to 256 "
        "needed");
  CHECK(
      chain_refused("gather+combine(2)") ==
      "chain = gather+combine(2): gather (character 1): gather before combine or compress: these name their rows of x "
      "themselves");
  CHECK(chain_refused("bf16(paged)+indexer_132(0..127)") ==
        "chain = bf16(paged)+indexer_132(0..127): indexer_132(0..127) (character 13): beside paged sinks, where a row "
        "is a "
        "head of a token and slots are those of tokens, stand no gather, scatter, cache or source other than join");
  CHECK(chain_refused("heads+gather+bf16") ==
        "chain = heads+gather+bf16: gather (character 7): beside heads, where a row is a head of a token, stand no "
        "scatter and of sources gate and join alone");
  CHECK(chain_refused("heads+bf16(scatter)").find("(character 7): beside heads, ") != std::string::npos);
  CHECK(chain_refused("gate(silu)+bf16(paged)")
            .starts_with("chain = gate(silu)+bf16(paged): gate(silu) (character 1): beside paged sinks"));
  CHECK(chain_refused("append_kv(64)+bf16(scatter)")
            .starts_with("chain = append_kv(64)+bf16(scatter): bf16(scatter) (character 15): beside paged sinks"));
  CHECK(chain_refused("e4m3(paged)") ==
        "chain = e4m3(paged): e4m3(paged) (character 1): e4m3 in pages with scales of blocks or rows: it goes with one "
        "scale, e4m3(tensor,paged)");
  CHECK(chain_refused("dequant(e4m3,tile)") ==
        "chain = dequant(e4m3,tile): dequant(e4m3,tile) (character 1): dequant of e4m3 with scales in tiles: they are "
        "fp32, plain or columns");
  CHECK(
      chain_refused("dequant(mxfp4,columns)") ==
      "chain = dequant(mxfp4,columns): dequant(mxfp4,columns) (character 1): dequant of block-scaled rows with scales "
      "by columns: take plain or tile");
  CHECK(
      chain_refused("mhc_post(product)+f32") ==
      "chain = mhc_post(product)+f32: mhc_post(product) (character 1): mhc_post(product) beside other parts: it writes "
      "the streams and their product, and makes no row");
  CHECK(chain_refused("mhc_pre(iterations=3)+f32") ==
        "chain = mhc_pre(iterations=3)+f32: iterations=3 (character 9): without effect here: it goes with product");
  CHECK(chain_refused("rmsnorm+f32(add)") ==
        "chain = rmsnorm+f32(add): f32(add) (character 9): rows that are added, without scatter: they are added where "
        "slots say, bf16(scatter,add)");
  CHECK(chain_refused("nvfp4(scatter,add)") ==
        "chain = nvfp4(scatter,add): add (character 15): options here are FIRST..LAST, tile, global, scatter");
  CHECK(chain_refused("gate(gelu,gpt_oss)") ==
        "chain = gate(gelu,gpt_oss): gpt_oss (character 11): it takes the place of gelu: one of them");
  CHECK(chain_refused("rope(table,yarn=4)+f32") ==
        "chain = rope(table,yarn=4)+f32: rope(table,yarn=4) (character 1): rope of a table with a base, a scaling or "
        "a magnitude: the table says how far each position turns");
  CHECK(chain_refused("rmsnorm+nvfp4(tile,scatter)") ==
        "chain = rmsnorm+nvfp4(tile,scatter): nvfp4(tile,scatter) (character 9): scattered rows with scales in tiles: "
        "a tile belongs to 128 rows; take plain scales");
  CHECK(chain_refused("rope(base=1)") ==
        "chain = rope(base=1): rope(base=1) (character 1): rope with base 1: 2 at least");
  CHECK(chain_refused("rmsnorm+rope(yarn=0)") ==
        "chain = rmsnorm+rope(yarn=0): rope(yarn=0) (character 9): rope stretched 0 times: once at least");
  CHECK(chain_refused("rope(yarn=2,trained=0)") ==
        "chain = rope(yarn=2,trained=0): rope(yarn=2,trained=0) (character 1): rope trained with 0 positions: 1 at "
        "least");
  CHECK(chain_refused("append_kv(64,base=0)+bf16") ==
        "chain = append_kv(64,base=0)+bf16: append_kv(64,base=0) (character 1): rope with base 0: 2 at least");
  CHECK(chain_refused("rope(llama3=8,low=4)") ==
        "chain = rope(llama3=8,low=4): rope(llama3=8,low=4) (character 1): rope with low 4 and high 4: high must be "
        "above");
  CHECK(chain_refused("rope(llama3=8,magnitude=yarn)") ==
        "chain = rope(llama3=8,magnitude=yarn): rope(llama3=8,magnitude=yarn) (character 1): rope with magnitude=yarn "
        "and no yarn=N: it is 0.1 ln(N) + 1");
  for (const std::string magnitude : {"0", "0.0000001", "1.", "1000", "1000000000000000000000", "1.2772589", "x"})
    CHECK(chain_refused("rope(magnitude=" + magnitude + ")") ==
          "chain = rope(magnitude=" + magnitude + "): " + magnitude +
              " (character 16): a number above 0 and below 1000, of at most six decimal places, or yarn is expected "
              "here");
  CHECK(chain_refused("gate(silu,gelu)") ==
        "chain = gate(silu,gelu): gelu (character 11): it takes the place of silu: one of them");
  CHECK(chain_refused("bf16(0..7,8..15)") ==
        "chain = bf16(0..7,8..15): 8..15 (character 11): it takes the place of 0..7: one of them");
  CHECK(chain_refused("e4m3(block=64,row)") ==
        "chain = e4m3(block=64,row): row (character 15): it takes the place of block=64: one of them");
  CHECK(chain_refused("softcap(30,limit=40)") ==
        "chain = softcap(30,limit=40): limit=40 (character 12): it takes the place of 30: one of them");
  CHECK(chain_refused("append_kv(128,e4m3,bf16)") ==
        "chain = append_kv(128,e4m3,bf16): bf16 (character 20): it takes the place of e4m3: one of them");
  CHECK(chain_refused("append_kv(128,halves,halves)") ==
        "chain = append_kv(128,halves,halves): halves (character 22): it takes the place of halves: one of them");
  CHECK(chain_refused("append_kv(128,0..127,0..63)") ==
        "chain = append_kv(128,0..127,0..63): 0..63 (character 22): it takes the place of 0..127: one of them");
  CHECK(chain_refused("append_kv(128,64..255)") ==
        "chain = append_kv(128,64..255): 64..255 (character 15): k has the columns 0..127");
  CHECK(chain_refused("bf16(scatter,scatter)") ==
        "chain = bf16(scatter,scatter): scatter (character 14): it takes the place of scatter: one of them");
  CHECK(chain_refused("rope(base=99999999999)") ==
        "chain = rope(base=99999999999): 99999999999 (character 11): a number up to 2,147,483,647 is expected here");
  for (const std::string block : {"7", "12", "24"})
    CHECK(chain_refused("rmsnorm+e4m3(" + block + ")") == "chain = rmsnorm+e4m3(" + block + "): e4m3(" + block +
                                                              ") (character 9): e4m3 with a scale for " + block +
                                                              " columns: a power of two from 8 on");
  CHECK(
      chain_refused("dequant(mxfp4,block=64)") ==
      "chain = dequant(mxfp4,block=64): block=64 (character 15): without effect here: the format says how many columns "
      "a scale has");
  CHECK(canonical("e4m3(packed)") == "e4m3(pow2,packed)");
  CHECK(chain_refused("e4m3(packed,row)") ==
        "chain = e4m3(packed,row): e4m3(packed,row) (character 1): e4m3 with packed scales of rows: they are those of "
        "blocks");
  CHECK(chain_refused("e4m3(packed,columns)") ==
        "chain = e4m3(packed,columns): e4m3(packed,columns) (character 1): e4m3 with packed and columns: packed scales "
        "lie by columns");
  CHECK(canonical("dequant(row,e4m3)") == "dequant(e4m3,row)+same");
  CHECK(chain_refused("dequant(e4m3,row,columns)") ==
        "chain = dequant(e4m3,row,columns): dequant(e4m3,row,columns) (character 1): dequant of e4m3 with one scale a "
        "row or for all, by columns: these have no order");
  for (const std::string zero : {"e4m3(0)", "e4m3(block=0)", "dequant(e4m3,block=0)", "quantize(e4m3,0)"})
    CHECK(chain_refused(zero).ends_with("): a scale for 0 columns: a power of two from 8 on, row or tensor"));
  CHECK(chain_refused("append_kv(128") == "chain = append_kv(128: a ) is missing");
  CHECK(chain_refused("join+bf16") ==
        "chain = join+bf16: join (character 1): join(COLUMN) says from which column on a row is that of x2");
  CHECK(chain_refused("join(8..15)+bf16") == "chain = join(8..15)+bf16: . (character 7): a ) is missing");
  CHECK(chain_refused("factor(x)") == "chain = factor(x): x (character 8): this part has columns alone: FIRST..LAST");
  CHECK(chain_refused("factor+factor+factor+factor+factor+factor+factor+factor+factor+factor+factor+factor+factor") ==
        "chain = factor+factor+factor+factor+factor+factor+factor+factor+factor+factor+factor+factor+factor: factor "
        "(character 85): more than 12 parts");
  try {
    parse_row_chain("residual+rmsnrm+bf16");
    FAIL("parsed");
  } catch (const Error& error) {
    REQUIRE(error.notes().size() == 2);
    CHECK(error.notes()[0] == "residual+rmsnrm+bf16");
    CHECK(error.notes()[1] == "         ^^^^^^");
  }
}

TEST_CASE("rows: an option without effect is refused, also where it says what is usual") {
  const auto idle = [](const std::string& before, const std::string& option, const std::string& behind,
                       const std::string& why) {
    const std::string text = before + option + behind;
    CHECK(chain_refused(text) == "chain = " + text + ": " + option + " (character " +
                                     std::to_string(before.size() + 1) + "): without effect here: " + why);
  };
  for (const char* const option : {"trained=8192", "trained=4096", "low=1", "high=8"}) {
    idle("rmsnorm+rope(", option, ")", "it goes with llama3=N or yarn=N");
    idle("rope(linear=4,", option, ")", "it goes with llama3=N or yarn=N");
    idle("append_kv(64,", option, ",halves)", "it goes with llama3=N or yarn=N");
  }
  idle("rope(table,", "base=10000", ")", "the table says how far each position turns");
  idle("dequant(nvfp4,", "block=128", ")", "the format says how many columns a scale has");
  idle("mhc_pre(", "iterations=20", ")+f32", "it goes with product");
  idle("rmsnorm(", "plus_one", ",no_weight)", "there is no weight that 1 could be added to");
  idle("layernorm(no_weight,", "plus_one", ")", "there is no weight that 1 could be added to");
  idle("e4m3(", "pow2", ",tensor)", "the scale is given");
  // Of a scale's columns one is said.
  CHECK(chain_refused("e4m3(block=128,row)") ==
        "chain = e4m3(block=128,row): row (character 16): it takes the place of block=128: one of them");
  CHECK(chain_refused("e4m3(64,row)") ==
        "chain = e4m3(64,row): row (character 9): it takes the place of 64: one of them");
  CHECK(chain_refused("e4m3(tensor,128)").ends_with("it takes the place of tensor: one of them"));
  // A chain that nobody parsed.
  const auto refused = [](const RowStep& step) {
    RowChain chain;
    chain.steps[0] = step;
    try {
      make_plan(Rows{.chain = chain});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("planned");
  };
  CHECK(refused({.kind = RowPart::rope, .trained = 4096})
            .ends_with("rope with trained, low or high, which go with llama3=N or yarn=N"));
  CHECK(refused({.kind = RowPart::rmsnorm, .has_weight = false, .adds_one = true})
            .ends_with("a norm with plus_one and no weight that 1 could be added to"));
  CHECK(refused({.kind = RowPart::scaled_8, .block = -1, .is_power = true})
            .ends_with("e4m3 with one scale that is given, and pow2: it is used as it is"));
}

TEST_CASE("rows: what a scaling has by default does not undo what was said before it") {
  for (const char* const text :
       {"rope(low=1,high=4,yarn=16)+same", "rope(high=4,yarn=16)+same", "rope(yarn=16,high=4)+same"}) {
    CHECK(parse_row_chain(text).steps[0].high == 4);
    CHECK(canonical(text) == "rope(yarn=16,high=4)+same");
  }
  CHECK(parse_row_chain("append_kv(64,high=4,yarn=16)").steps[1].high == 4);
  CHECK(parse_row_chain("rope(yarn=16,low=1)").steps[0].high == 32);
  CHECK(parse_row_chain("rope(low=2,high=8,llama3=8)").steps[0].low == 2);
}

TEST_CASE("rows: an illegal pin, fact or chain is refused with the rule that it breaks") {
  CHECK(unsupported({{"dtype", "e4m3"}}) ==
        "rows has no kernel for dtype e4m3: there are kernels for f32, f16 and bf16");
  CHECK(unsupported({{"columns", "100"}}) ==
        "rows of 100 bf16, residual(store)+rmsnorm+same, 128 threads a row, 2 rows a CTA: 100 columns, a multiple of 8 "
        "needed: 104 with padding");
  CHECK(unsupported({{"columns", "1"}}).ends_with("1 column, a multiple of 8 needed: 8 with padding"));
  CHECK(unsupported({{"threads_of_row", "48"}}).ends_with("48 threads a row: a power of two from 8 on needed"));
  CHECK(unsupported({{"threads_of_row", "64"}, {"rows_of_cta", "32"}})
            .ends_with("2,048 threads in a CTA, 1,024 allowed: take fewer threads or rows"));
  CHECK(unsupported({{"columns", "64"}, {"threads_of_row", "8"}, {"rows_of_cta", "3"}})
            .ends_with("24 threads in a CTA, a multiple of 32 needed (warp): take more rows"));
  CHECK(unsupported({{"ctas_of_row", "3"}}).ends_with("3 CTAs for a row: a power of two up to 8 needed"));
  CHECK(unsupported({{"ctas_of_row", "2"}, {"rows_of_cta", "2"}}).ends_with("2 rows in CTAs that share one: 1 needed"));
  CHECK(unsupported({{"columns", "1048576"}, {"threads_of_row", "8192"}, {"ctas_of_row", "8"}, {"turns_of_row", "1"}})
            .ends_with("16 vectors of 8 columns in a thread, 12 allowed: take more threads a row (which hold 786,432 "
                       "columns at most), or more turns"));
  CHECK(unsupported({{"columns", "786440"}, {"chain", "join(8)+same"}}) ==
        "chain = join(8)+same: join(8) (character 1): rows of more than 786,432 columns, or in turns, with join, "
        "mhc_*, pages or a cache");
  CHECK(unsupported({{"columns", "536870912"}}).ends_with("536,870,912 columns, 268,435,456 allowed"));
  CHECK(unsupported({{"turns_of_row", "40000"}}).ends_with("40,000 turns for a row: 1 to 32,768"));
  CHECK(unsupported({{"turns_of_row", "2"}, {"threads_of_row", "32"}})
            .ends_with("32 threads for a row in turns: 43 needed"));
  const auto of_chain = [&](const char* columns, const char* chain) {
    const std::string text = unsupported({{"columns", columns}, {"chain", chain}});
    CHECK(text.starts_with("chain = " + canonical(chain) + ": "));
    return text.substr(text.find("): ", text.find(" (character ")) + 3);
  };
  CHECK(of_chain("512", "rope(448..575)+bf16") == "a part that works up to column 575 in rows of 512 columns");
  CHECK(of_chain("512", "rope(4..67)+bf16") ==
        "a part that begins at, or has, 4 columns: multiples of 8 needed, the next is 8");
  CHECK(of_chain("512", "rmsnorm+gate(silu)") ==
        "gather, heads, gate, join, combine, compress, dequant and mhc_* say where a row comes from: they are the "
        "first parts, "
        "gather or heads before the others");
  CHECK(of_chain("520", "nvfp4") ==
        "520 columns of a part that takes blocks of 16: whole blocks needed, 528 with padding");
  CHECK(of_chain("512", "nvfp4(8..23)") ==
        "a part that begins at column 8 and takes blocks of 16: it must begin at one");
  CHECK(of_chain("64", "rope(8..15,halves)") == "rope of halves that lie 4 columns apart: 8 at least");
  CHECK(
      of_chain("600", "rope(halves)") ==
      "blocks of 600 columns, of which a warp's threads of one row have 256 side by side: take more threads a row, or "
      "smaller blocks");
  CHECK(of_chain("512", "rope(128..367,halves)") ==
        "rope of halves up to column 367, in rows whose columns lie with warps by 256: both halves must be with one");
  for (const auto& [columns, head] : {std::pair("192", "96"), std::pair("160", "80"), std::pair("144", "72")})
    CHECK(make_plan(problem_of("rows", {{"columns", columns}, {"chain", fmt::format("append_kv({},halves)", head)}}))
              .kernel.find("_halves_") != std::string::npos);
  CHECK(of_chain("520", "dequant(nvfp4)") ==
        "520 columns of a part that takes blocks of 16: whole blocks needed, 528 with padding");
  CHECK(of_chain("512", "dequant(e4m3,block=12)") ==
        "a part that begins at, or has, 12 columns: multiples of 8 needed, the next is 16");
  CHECK(of_chain("512", "dequant(mxfp4,global)") ==
        "a global scale for a format with blocks of 32: it goes with nvfp4");
  try {
    make_plan(problem_of("rows", {{"columns", "512"}, {"chain", "rmsnorm+rope(448..575)+bf16"}}));
    FAIL("planned");
  } catch (const Error& error) {
    REQUIRE(error.notes().size() == 2);
    CHECK(error.notes()[0] == "rmsnorm+rope(448..575)+bf16");
    CHECK(error.notes()[1] == "        ^^^^^^^^^^^^^^");
  }
  CHECK(unsupported({{"chain", "mhc_post(product)"}, {"threads_of_row", "16"}, {"rows_of_cta", "32"}})
            .ends_with("32 rows in a CTA: with mhc_post(product) and 16 threads a row 16 needed"));
  CHECK(unsupported({{"chain", "mhc_post(product)"}, {"rows_of_cta", "512"}})
            .ends_with("512 rows in a CTA: with mhc_post(product) multiples of 16 up to 256"));
  CHECK(unsupported({{"chain", "mhc_post(product)"}, {"rows_of_cta", "256"}})
            .ends_with("256 rows in a CTA, for which 232,448 bytes of shared memory are too few: take fewer rows"));
  CHECK(of_chain("576", "mla_288") == "576 columns for a cache whose tokens have 512");
  CHECK(of_chain("512", "join(512)") == "columns of x2 from 512 on in rows of 512");
  CHECK(of_chain("512", "join(12)") ==
        "a part that begins at, or has, 12 columns: multiples of 8 needed, the next is 16");
  CHECK(of_chain("512", "softcap(0)") == "softcap of 0: 1 at least");
  CHECK(of_chain("512", "mla_656") == "512 columns for a cache whose tokens have 576");
  CHECK(of_chain("512", "mhc_mix") == "mhc_mix that begins at, or has, 512 columns: 24 needed");
  CHECK(of_chain("24", "mhc_mix(iterations=0)") == "a mix over 0 columns or iterations: 1 at least");
  CHECK(of_chain("512", "mhc_pre(product,iterations=0)+f32") == "a mix over 0 columns or iterations: 1 at least");
  CHECK(of_chain("512", "hadamard(32)") == "hadamard of 32: 64, 128 or 256");
  CHECK(of_chain("512", "mxfp4(global)") == "a global scale for a format with blocks of 32: it goes with nvfp4");
  CHECK(
      of_chain("512", "e4m3(512)") ==
      "blocks of 512 columns, of which a warp's threads of one row have 256 side by side: take more threads a row, or "
      "smaller blocks");
}

TEST_CASE("rows: a chain that nobody parsed is refused for the same reasons") {
  Rows problem;
  problem.chain = {{{.kind = RowPart::combine, .block = 17}, {.kind = RowPart::store}}};
  CHECK_THROWS_WITH_AS(make_plan(problem), "chain = combine(17)+bf16: combine of 17 rows: 1 to 16", Error);
}

TEST_CASE("rows: a chain without a sink writes rows of x's type, unless it stores a sum at its end") {
  CHECK(make_plan(problem_of("rows", {{"dtype", "f16"}, {"chain", "rmsnorm"}})).field("chain") == "rmsnorm+same");
  CHECK(make_plan(problem_of("rows", {{"chain", "residual(store)"}})).field("chain") == "residual(store)");
}

TEST_CASE("rows: buffers of several parts of a kind are numbered") {
  const Plan plan = make_plan(problem_of(
      "rows", {{"columns", "512"},
               {"chain", "residual(store)+rmsnorm+rope(448..511)+nvfp4(0..447,global)+e4m3+bf16(scatter)"}}));
  std::string names;
  for (const BufferSpec& buffer : plan.launch.buffers) names += buffer.name + " ";
  CHECK(names == "x positions slots residual residual_out weight y y_scales y_global_scale y2 y2_scales y3 ");
}

TEST_CASE("rows: two tables of rope have one number of rows") {
  const Plan plan =
      make_plan(problem_of("rows", {{"columns", "128"}, {"chain", "rope(0..63,table)+rope(64..127,table)+f32"}}));
  std::string buffers, parameters;
  for (const BufferSpec& buffer : plan.launch.buffers) buffers += buffer.name + " ";
  for (const KernelParameter& parameter : plan.launch.steps[0].parameters) parameters += parameter.name + " ";
  CHECK(buffers == "x positions rope_table rope_table2 y ");
  CHECK(parameters == "x x_stride_row positions heads rows rope_table table_rows rope_table2 y y_stride_row ");
}

TEST_CASE("rows: with pages x has strides of tokens and heads, a sink those of pages too") {
  const Plan plan = make_plan(problem_of("rows", {{"columns", "256"}, {"chain", "append_kv(128)"}}));
  std::string buffers, sizes;
  for (const BufferSpec& buffer : plan.launch.buffers) buffers += buffer.name + " ";
  for (const SizeSpec& size : plan.launch.sizes) sizes += size.name + " ";
  CHECK(buffers == "x positions slots x2 y y2 ");
  CHECK(sizes ==
        "rows heads pages page_size x_stride_head x_stride_seqlen x2_stride_head x2_stride_seqlen y_stride_head "
        "y_stride_seqlen y_stride_page y2_stride_head y2_stride_seqlen y2_stride_page ");
}

TEST_CASE("rows: of heads x, residual and stored rows have strides of tokens and heads") {
  const Plan plan = make_plan(
      problem_of("rows", {{"columns", "128"}, {"chain", "heads+residual(store)+rmsnorm+rope+same+e4m3+f32(0..63)"}}));
  std::string sizes;
  for (const SizeSpec& size : plan.launch.sizes) sizes += size.name + " ";
  CHECK(sizes ==
        "rows heads x_stride_head x_stride_seqlen residual_stride_head residual_stride_seqlen "
        "residual_out_stride_head residual_out_stride_seqlen y_stride_head y_stride_seqlen y3_stride_head "
        "y3_stride_seqlen ");
}

TEST_CASE("rows: frequencies of rope are those of the papers, in parts of a turn") {
  const auto radians = [](const char* text, int columns, std::size_t pair) {
    return std::ldexp(static_cast<double>(rope_turns(parse_row_chain(text).steps[0], columns)[pair]), -64) * 2 *
           std::numbers::pi;
  };
  CHECK(radians("rope", 64, 0) == doctest::Approx(1.0).epsilon(1e-12));
  CHECK(radians("rope", 64, 16) == doctest::Approx(0.01).epsilon(1e-9));
  CHECK(radians("rope(linear=4)", 64, 16) == doctest::Approx(0.0025).epsilon(1e-9));
  // Llama 3.1: base 500000, 128 columns, 8 times 8192; the first pairs stay, the last are an eighth.
  CHECK(radians("rope(base=500000,llama3=8)", 128, 1) == doctest::Approx(0.8146).epsilon(1e-4));
  CHECK(radians("rope(base=500000,llama3=8)", 128, 63) == doctest::Approx(2.4551e-6 / 8).epsilon(1e-3));
  const auto magnitude = [](const char* text) { return rope_magnitude(parse_row_chain(text).steps[0]); };
  CHECK(magnitude("rope(yarn=16)") == 1);
  CHECK(magnitude("rope(yarn=16,magnitude=yarn)") == doctest::Approx(1.2772589).epsilon(1e-7));
  CHECK(magnitude("rope(inverse,yarn=16,magnitude=yarn)") == doctest::Approx(1 / 1.2772589).epsilon(1e-7));
  CHECK(magnitude("rope(magnitude=1.25)") == 1.25);
  CHECK(magnitude("rope(inverse,magnitude=1.25)") == 0.8);
  CHECK(rope_magnitude(parse_row_chain("rope(llama3=8)").steps[0]) == 1);
}

TEST_CASE("rows: every command of docs/deepseek-v4.md has a plan on Hopper and on Blackwell") {
  const std::string text = read_text(std::filesystem::path(TESSERA_SOURCE_DIR) / "docs/deepseek-v4.md");
  int commands = 0;
  constexpr std::string_view kStart = "tessera plan rows ";
  for (std::size_t at = text.find(kStart); at != std::string::npos; at = text.find(kStart, at + 1)) {
    std::istringstream words(text.substr(at + kStart.size(), text.find('`', at) - at - kStart.size()));
    for (const char* const arch : {"sm_90a", "sm_100a"}) {
      Problem problem = problem_of("rows", {{"arch", arch}});
      words.clear();
      words.seekg(0);
      for (std::string flag, value; words >> flag >> value;)
        set_field(problem, flag.substr(2), value[0] == '\'' ? value.substr(1, value.size() - 2) : value);
      CAPTURE(planned_kernel(problem));
    }
    ++commands;
  }
  CHECK(commands >= 9);
}

}  // namespace rows_test
