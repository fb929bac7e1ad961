// tessera layout: pages as golden files, and what every page can be printed as.
#include <map>

#include "tests/layout_maps/pages.h"

using namespace tessera;
using namespace tessera::cli;

TEST_CASE("layout: pages are as their golden files say") {
  Terminal terminal;
  const std::vector<std::pair<std::string, std::vector<std::string>>> pages = {
      {"fragment-mxf4nvf4-a", {"fragment", "mma.m16n8k64.mxf4nvf4", "--operand", "A", "--lane", "13"}},
      {"fragment-mxf4nvf4-sfa", {"fragment", "mma.m16n8k64.mxf4nvf4", "--operand", "SFA", "--thread-id", "1"}},
      {"fragment-bf16-d", {"fragment", "mma.m16n8k16.bf16", "--element", "9,5"}},
      {"fragment-ldmatrix", {"fragment", "ldmatrix.m8n8.x2.trans", "--lane", "3"}},
      {"fragment-tcgen05", {"fragment", "tcgen05.ld.16x128b.x2", "--lane", "5"}},
      {"repack-mxf4nvf4", {"repack", "D-to-A", "mma.m16n8k64.mxf4nvf4"}},
      {"repack-bf16", {"repack", "D-to-A", "wgmma.m64n128k16.bf16"}},
      {"swizzle-128B", {"swizzle", "128B", "--access", "ldmatrix", "--at", "0,3"}},
      {"smem-descriptor", {"smem-descriptor", "wgmma", "0x4000004000010640", "--rows", "9"}},
      {"instruction-descriptor", {"instruction-descriptor", "f16", "0x08410010"}},
      {"scale-factors", {"scale-factors", "nvfp4", "--rows", "300", "--k", "1024", "--element", "200,100"}},
      {"tensor-map",
       {"tensor-map", "--dtype", "bf16", "--dims", "300,40", "--strides-bytes", "608", "--box", "64,8", "--at",
        "256,36"}}};
  for (const auto& page : pages) {
    const std::string& name = page.first;
    std::vector<std::string> all = {"layout"};
    all.insert(all.end(), page.second.begin(), page.second.end());
    const Outcome outcome = terminal.run(all);
    CAPTURE(name);
    CHECK(outcome.code == 0);
    CHECK(outcome.err.empty());
    check_golden("layout/" + name + ".txt", outcome.out);
  }
}

TEST_CASE("layout: SVG is whole, HTML needs nothing from elsewhere") {
  Terminal terminal;
  const std::string svg_file = (terminal.folder.path / "a.svg").string(),
                    html_file = (terminal.folder.path / "a.html").string();
  CHECK(terminal
            .run({"layout", "fragment", "mma.m16n8k64.mxf4nvf4", "--operand", "A", "--svg", svg_file, "--html",
                  html_file})
            .code == 0);
  const std::string svg = read_text(svg_file), html = read_text(html_file);
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(svg.ends_with("</svg>\n"));
  const auto count = [](const std::string& text, std::string_view part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  };
  CHECK(count(svg, "<rect ") == 2 * 16 * 64);
  CHECK(count(svg, "<g>") == count(svg, "</g>"));
  CHECK(count(html, "<td ") == 2 * 16 * 64);
  CHECK(count(html, "data-link=\"5,17\"") == 2);
  for (const char* foreign : {"http://", "https://", "src=", "@import", "url("})
    CHECK(html.find(foreign) == std::string::npos);
  CHECK(html.find("prefers-color-scheme:dark") != std::string::npos);
  CHECK(terminal.run({"layout", "swizzle", "128B", "--svg", "/dev/null/x.svg"}).code == 5);
}

namespace {

/// XML whose tags nest, without a character that XML has not.
bool is_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < xml.size(); ++at) {
    if (static_cast<unsigned char>(xml[at]) < 0x20 && xml[at] != '\n') return false;
    if (xml[at] == '&' && xml.find(';', at) - at > 5) return false;
    if (xml[at] != '<') continue;
    const std::size_t end = xml.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(tag[0] == '/' ? 1 : 0, tag.find_first_of(" /", 1) - (tag[0] == '/' ? 1 : 0));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != name) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end;
  }
  return open.empty();
}

}  // namespace

TEST_CASE("layout: every action prints JSON, SVG and HTML in which the directions are linked") {
  Terminal terminal;
  const std::string plan =
      terminal.write("plan.json", terminal.run({"plan", "fmha", "--arch", "sm_100a", "--json"}).out);
  const std::string odd = terminal.write("odd.json", R"({"kernel": "a<b>&\u0001\"", "smem_bytes": 64, "smem": [
      {"name": "q\u0007<", "offset": 0, "bytes": 64}]})");
  for (const std::vector<std::string>& page : std::vector<std::vector<std::string>>{
           {"fragment", "mma.m16n8k64.mxf4nvf4", "--operand", "B"},
           {"fragment", "mma.m16n8k64.mxf4nvf4", "--operand", "SFB"},
           {"fragment", "mma.sp.m16n8k32.f16", "--operand", "E"},
           {"fragment", "wgmma.m64n24k16.bf16"},
           {"fragment", "ldmatrix.m8n8.x4.trans"},
           {"fragment", "tcgen05.ld.16x64b.x4.pack::16b"},
           {"repack", "D-to-A", "wgmma.m64n64k32.e4m3"},
           {"swizzle", "128B"},
           {"smem-descriptor", "tcgen05", "--major", "mn"},
           {"instruction-descriptor", "mxf8f6f4"},
           {"scale-factors", "nvfp4", "--rows", "300", "--k", "1024"},
           {"tensor-map", "--dims", "304,40", "--box", "64,8", "--at=256,-3"},
           {"tensor-map", "--dims", "16,9,7,3", "--channels", "16", "--pixels", "20", "--swizzle", "32B"},
           {"smem", plan},
           {"smem", odd},
           {"tmem", plan}}) {
    CAPTURE(page[0]);
    const std::string svg_file = (terminal.folder.path / "a.svg").string(),
                      html_file = (terminal.folder.path / "a.html").string();
    std::vector<std::string> all = page;
    all.insert(all.end(), {"--svg", svg_file, "--html", html_file});
    const Json json = page_of(terminal, all);
    const std::string html = read_text(html_file);
    CHECK(is_well_formed(read_text(svg_file)));
    for (const char* foreign : {"http:", "https:", "src=", "href=", "@import", "url("})
      CHECK(html.find(foreign) == std::string::npos);
    if (page[0] == "instruction-descriptor" || page[0] == "smem" || page[0] == "tmem") continue;
    REQUIRE(json["grids"].size() >= 2);
    // A cell's link stands in another cell too: who points at one finds the other.
    std::map<std::string, int> links;
    const std::string mark = "data-link=\"";
    for (std::size_t at = html.find(mark); at != std::string::npos; at = html.find(mark, at + 1))
      ++links[html.substr(at + mark.size(), html.find('"', at + mark.size()) - at - mark.size())];
    for (const auto& [link, count] : links) CHECK((link.empty() || count >= 2));
  }
}
