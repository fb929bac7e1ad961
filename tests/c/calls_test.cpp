// The C interface as its header promises it: what is refused, and in which words; no kernel is compiled here.
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/c/handles.h"
#include "tests/support/has_text.h"

using namespace tessera::testing;
using Json = nlohmann::json;

TEST_CASE("c: null is refused by name, and closes nothing") {
  const JitHandle jit = open_jit();
  const DeviceHandle device = open_device(jit);
  tessera_kernel* kernel = nullptr;
  tessera_device* other = nullptr;
  char* text = nullptr;
  std::size_t index = 7;
  std::int64_t bytes = 7;
  std::uint64_t address = 7;
  auto stats = defaults<tessera_stats>();
  const auto arguments = defaults<tessera_arguments>();
  CHECK(said(tessera_jit_open(nullptr, nullptr)) == "usage: jit is null");
  CHECK(said(tessera_jit_kernel(nullptr, "fmha", nullptr, 0, &kernel)) == "usage: jit is null");
  CHECK(said(tessera_jit_kernel(jit.get(), nullptr, nullptr, 0, &kernel)) == "usage: op is null");
  CHECK(said(tessera_jit_kernel(jit.get(), "fmha", nullptr, 1, &kernel)) == "usage: fields is null");
  CHECK(said(tessera_jit_kernel(jit.get(), "fmha", nullptr, 0, nullptr)) == "usage: kernel is null");
  const tessera_field halves[] = {{"head_dim", nullptr}, {nullptr, "128"}};
  CHECK(said(tessera_plan("fmha", halves, 1, &text)) == "usage: the value of a field is null");
  CHECK(said(tessera_plan("fmha", halves + 1, 1, &text)) == "usage: the name of a field is null");
  CHECK(said(tessera_plan("fmha", nullptr, 0, nullptr)) == "usage: plan_json is null");
  CHECK(said(tessera_jit_warm(nullptr, "{}", nullptr, &text)) == "usage: jit is null");
  CHECK(said(tessera_jit_warm(jit.get(), nullptr, nullptr, &text)) == "usage: shapes_json is null");
  CHECK(said(tessera_jit_warm(jit.get(), "{}", nullptr, nullptr)) == "usage: report_json is null");
  CHECK(said(tessera_jit_check(nullptr, "{}", &text)) == "usage: jit is null");
  CHECK(said(tessera_jit_check(jit.get(), nullptr, &text)) == "usage: shapes_json is null");
  CHECK(said(tessera_jit_check(jit.get(), "{}", nullptr)) == "usage: report_json is null");
  CHECK(said(tessera_jit_stats(nullptr, &stats)) == "usage: jit is null");
  CHECK(said(tessera_jit_stats(jit.get(), nullptr)) == "usage: stats is null");
  CHECK(tessera_kernel_name(nullptr) == nullptr);
  CHECK(tessera_kernel_plan(nullptr) == nullptr);
  CHECK(tessera_kernel_count(nullptr, TESSERA_SIZE) == 0);
  CHECK(tessera_kernel_argument_name(nullptr, TESSERA_SIZE, 0) == nullptr);
  CHECK(said(tessera_kernel_index(nullptr, TESSERA_SIZE, "batch", &index)) == "usage: kernel is null");
  CHECK(said(tessera_kernel_prepare(nullptr, nullptr)) == "usage: kernel is null");
  CHECK(said(tessera_kernel_workspace_bytes(nullptr, nullptr, &arguments, &bytes)) == "usage: kernel is null");
  CHECK(said(tessera_kernel_launch(nullptr, nullptr, nullptr, &arguments)) == "usage: kernel is null");
  CHECK(said(tessera_device_open(nullptr, nullptr, &other)) == "usage: jit is null");
  CHECK(said(tessera_device_open(jit.get(), nullptr, nullptr)) == "usage: device is null");
  CHECK(said(tessera_device_info(nullptr, &text)) == "usage: device is null");
  CHECK(said(tessera_device_info(device.get(), nullptr)) == "usage: info_json is null");
  CHECK(said(tessera_device_allocate(nullptr, 1, &address)) == "usage: device is null");
  CHECK(said(tessera_device_allocate(device.get(), 1, nullptr)) == "usage: address is null");
  CHECK(said(tessera_device_free(nullptr, 0)) == "usage: device is null");
  CHECK(said(tessera_device_upload(device.get(), 16, nullptr, 1, nullptr)) == "usage: from is null");
  CHECK(said(tessera_device_upload(device.get(), 0, &index, 1, nullptr)) == "usage: a device address is 0");
  CHECK(said(tessera_device_download(device.get(), nullptr, 16, 1, nullptr)) == "usage: to is null");
  CHECK(said(tessera_device_poison(device.get(), 0, 1, 1)) == "usage: a device address is 0");
  CHECK(said(tessera_device_poison(nullptr, 16, 1, 1)) == "usage: device is null");
  CHECK(said(tessera_device_synchronize(nullptr, nullptr, nullptr)) == "usage: device is null");
  tessera_jit_close(nullptr);
  tessera_kernel_close(nullptr);
  tessera_device_close(nullptr);
  tessera_text_free(nullptr);
  CHECK((kernel == nullptr && other == nullptr && text == nullptr && index == 7 && bytes == 7 && address == 7));
}

TEST_CASE("c: errors belong to the thread that met them, with kind, message and notes") {
  char* text = nullptr;
  const tessera_field field{"tile_m", "12"};
  const tessera_status status = tessera_plan("fmha", &field, 1, &text);
  CHECK(status == TESSERA_UNSUPPORTED);
  const std::string message = tessera_error_message();
  CHECK(has(message, "tile_m"));
  std::string elsewhere = "unset";
  std::thread([&] { elsewhere = tessera_error_message(); }).join();
  CHECK(elsewhere == "");
  CHECK(tessera_error_message() == message);
  CHECK(said(tessera_plan("fmah", nullptr, 0, &text)).starts_with("usage: "));
  CHECK(has(tessera_error_message(), "fmha"));
  CHECK(std::string(tessera_status_name(-3)) == "unknown");
  CHECK(tessera_abi_version() == TESSERA_ABI_VERSION);
}

TEST_CASE("c: fields are the flags' words, with either stroke, each once") {
  const auto plan = [](const std::vector<tessera_field>& fields) {
    const auto text = made<Text>([&](char** out) { return tessera_plan("fmha", fields.data(), fields.size(), out); });
    return Json::parse(text.get());
  };
  const Json one = plan({{"head_dim", "64"}, {"mask", "causal"}});
  CHECK(one == plan({{"head-dim", "64"}, {"mask", "causal"}}));
  CHECK(one["kernel"].get<std::string>().find("_d64_") != std::string::npos);
  CHECK(one["launch"]["buffers"].size() > 3);
  CHECK(!one["rejected"].empty());
  char* text = nullptr;
  const auto refused = [&](std::vector<tessera_field> fields) {
    return said(tessera_plan("fmha", fields.data(), fields.size(), &text));
  };
  CHECK(refused({{"head_dim", "64"}, {"head-dim", "64"}}) == "usage: head_dim is given twice");
  CHECK(has(refused({{"mask", "casual"}}), "usage: mask = casual: must be one of none, causal"));
  CHECK(has(refused({{"head_dimension", "64"}}), "usage: fmha has no field head_dimension"));
  CHECK(text == nullptr);
}

TEST_CASE("c: a chain of rows stands for its operator") {
  const auto plan = [](const char* op, const std::vector<tessera_field>& fields) {
    const auto text = made<Text>([&](char** out) { return tessera_plan(op, fields.data(), fields.size(), out); });
    return Json::parse(text.get());
  };
  CHECK(plan("append_kv(64)", {}) == plan("rows", {{"chain", "append_kv(64)"}, {"columns", "128"}}));
  CHECK(plan("rmsnorm", {{"columns", "512"}}) == plan("rows", {{"chain", "rmsnorm"}, {"columns", "512"}}));
  char* text = nullptr;
  const tessera_field chain{"chain", "rope"};
  CHECK(said(tessera_plan("rmsnorm", &chain, 1, &text)) ==
        "usage: rmsnorm is a chain of rows already: leave chain out");
  CHECK(has(said(tessera_plan("rmsnorm+nvfp5", nullptr, 0, &text)), "nvfp5 (character 9): no such part"));
  CHECK(text == nullptr);
}

TEST_CASE("c: a struct of an older caller is taken, and of a newer one unless it sets what is not known here") {
  struct Newer {
    tessera_jit_options known;
    std::int64_t added;
  } newer{};
  newer.known.struct_size = sizeof newer;
  newer.known.ignore_environment = 1;
  const auto* const options = &newer.known;
  static_cast<void>(made<JitHandle>([&](tessera_jit** out) { return tessera_jit_open(options, out); }));
  newer.added = 1;
  tessera_jit* jit = nullptr;
  CHECK(said(tessera_jit_open(options, &jit)) ==
        "usage: tessera_jit_options has 128 bytes, 120 of them known to this library (tessera 0.1.0), and a member "
        "beyond "
        "these is set: leave it 0 or load a newer library");
  newer.known.struct_size = offsetof(tessera_jit_options, compile_policy);
  newer.known.compile_policy = 99;  // behind the end of what that caller has
  static_cast<void>(made<JitHandle>([&](tessera_jit** out) { return tessera_jit_open(options, out); }));
  newer.known.struct_size = 0;
  CHECK(said(tessera_jit_open(options, &jit)) == "usage: struct_size = 0: set it to sizeof(tessera_jit_options)");
  CHECK(jit == nullptr);

  const JitHandle opened = open_jit();
  tessera_stats stats{};
  stats.struct_size = offsetof(tessera_stats, user_hits);
  stats.user_hits = -5;
  CHECK(said(tessera_jit_stats(opened.get(), &stats)) == "ok");
  CHECK(stats.user_hits == -5);
  CHECK(stats.struct_size == offsetof(tessera_stats, user_hits));
}

TEST_CASE("c: options that mean nothing are refused") {
  tessera_jit* jit = nullptr;
  const auto refused = [&](auto set) {
    auto options = defaults<tessera_jit_options>();
    set(options);
    return said(tessera_jit_open(&options, &jit));
  };
  CHECK(has(refused([](auto& o) { o.compile_policy = 9; }), "usage: compile_policy = 9: must be one of"));
  CHECK(has(refused([](auto& o) { o.cache_max_bytes = -2; }), "usage: cache_max_bytes = -2: must be"));
  CHECK(has(refused([](auto& o) { o.compile_time_limit_ms = -1; }), "usage: compile_time_limit_ms = -1: must be"));
  CHECK(has(refused([](auto& o) { o.num_nvrtc_options = 1; }), "usage: nvrtc_options is null"));
  const JitHandle opened = open_jit();
  tessera_device* device = nullptr;
  const auto no_device = [&](auto set) {
    auto options = defaults<tessera_device_options>();
    set(options);
    return said(tessera_device_open(opened.get(), &options, &device));
  };
  CHECK(has(no_device([](auto& o) { o.kind = 5; }), "usage: kind = 5: must be"));
  CHECK(has(no_device([](auto& o) { o.schedule = "later"; }), "usage: schedule = later: must be one of fair"));
  CHECK(has(no_device([](auto& o) { o.arch = "sm90"; }), "usage: "));
  CHECK(has(no_device([](auto& o) { o.max_seconds = -1; }), "usage: max_seconds = -1: must be 0 or more"));
  CHECK(has(no_device([](auto& o) { o.num_sms = 1 << 20; }), "usage: num_sms = 1048576: must be at most 1,024"));
  CHECK((jit == nullptr && device == nullptr));
}

TEST_CASE("c: a miss where compiling is forbidden names the command") {
  auto options = defaults<tessera_jit_options>();
  options.compile_policy = TESSERA_POLICY_FORBID;
  const JitHandle jit = open_jit(options);
  tessera_kernel* kernel = nullptr;
  const tessera_field field{"head_dim", "64"};
  const tessera_status status = tessera_jit_kernel(jit.get(), "fmha", &field, 1, &kernel);
  CHECK(status == TESSERA_UNSUPPORTED);
  CHECK(has(said(status), "compiling at run time is forbidden; warm it with: tessera warm fmha --head-dim 64"));
  CHECK(kernel == nullptr);
}

TEST_CASE("c: shape lists are counted, looked up, and refused with every mistake") {
  const JitHandle jit = open_jit();
  const char* const list =
      R"({"kernels": [{"op": "fmha", "head_dim": [64, 81], "batch": [1, 2]}, {"op": "copy2d", "dtype": "f32"}]})";
  const auto checked = made<Text>([&](char** out) { return tessera_jit_check(jit.get(), list, out); });
  const Json report = Json::parse(checked.get());
  CHECK(report["problems"] == 5);
  CHECK(report["kernels"] == 2);
  CHECK(report["covered"] == 0);
  CHECK(report["rejected"] == 2);
  CHECK(report["missing"][0]["warm"] == "tessera warm fmha --head-dim 64 --batch 1");
  CHECK(has(report["rejections"][0]["reason"], "81"));
  CHECK(report["rejections"][0]["problem"] == 2);
  CHECK(report["rejections"][0]["place"] == "shapes:1:14");

  // Sizes that no launch takes: heads that are no multiple of those of the keys.
  const char* const sized =
      R"({"kernels": [{"op": "fmha", "head_dim": 64, "sizes": [{"heads_q": 6, "heads_kv": 4}, {"heads_q": 8, "heads_kv": 4}]}]})";
  const auto refused = made<Text>([&](char** out) { return tessera_jit_check(jit.get(), sized, out); });
  const Json refusals = Json::parse(refused.get());
  CHECK((refusals["problems"] == 2 && refusals["rejected"] == 1 && refusals["kernels"] == 1));
  CHECK(has(refusals["rejections"][0]["reason"], "heads_q must be a multiple of heads_kv"));

  auto dry = defaults<tessera_warm_options>();
  dry.jobs = dry.dry_run = 1;
  const auto warmed = made<Text>([&](char** out) { return tessera_jit_warm(jit.get(), list, &dry, out); });
  const Json warm = Json::parse(warmed.get());
  CHECK(warm["kernels"] == 2);
  CHECK(warm["compiled"] == 0);
  CHECK(warm["rejected"] == 2);
  CHECK(warm["cancelled"] == false);
  CHECK(warm["entries"].size() == 2);

  char* text = nullptr;
  const char* const wrong = R"({"kernels": [{"op": "fmha", "head_dims": 64}, {"op": "gemn"}]})";
  CHECK(has(said(tessera_jit_check(jit.get(), wrong, &text)), "usage: shapes:1:"));
  CHECK(has(tessera_error_notes(), "head_dims"));
  CHECK(has(tessera_error_notes(), "gemn"));
  CHECK(text == nullptr);
}

TEST_CASE("c: memory of a device is its own") {
  const JitHandle jit = open_jit();
  auto blackwell = defaults<tessera_device_options>();
  blackwell.arch = "sm_100a", blackwell.num_sms = 3;
  const DeviceHandle device = open_device(jit, blackwell);
  const auto info = made<Text>([&](char** out) { return tessera_device_info(device.get(), out); });
  CHECK(Json::parse(info.get())["compute_major"] == 10);
  CHECK(Json::parse(info.get())["num_sms"] == 3);
  CHECK(Json::parse(info.get())["is_emulated"] == true);
  std::uint64_t address = 0;
  REQUIRE(said(tessera_device_allocate(device.get(), 8, &address)) == "ok");
  std::uint64_t value = 0x0123456789abcdef, back = 0;
  CHECK(said(tessera_device_upload(device.get(), address, &value, sizeof value, nullptr)) == "ok");
  CHECK(said(tessera_device_download(device.get(), &back, address, sizeof back, nullptr)) == "ok");
  CHECK(back == value);
  CHECK(said(tessera_device_poison(device.get(), address, 0xA5, 4)) == "ok");
  CHECK(said(tessera_device_download(device.get(), &back, address, sizeof back, nullptr)) == "ok");
  CHECK(back == 0x01234567a5a5a5a5);
  CHECK(
      has(said(tessera_device_download(device.get(), &back, address + 4, sizeof back, nullptr)), "device: emulator: "));
  CHECK(said(tessera_device_free(device.get(), address)) == "ok");
  CHECK(has(said(tessera_device_free(device.get(), address)), "is not an allocation of this device, or was freed"));
}
