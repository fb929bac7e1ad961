// PTX ISA, "clusterlaunchcontrol.try_cancel", "clusterlaunchcontrol.query_cancel": a running cluster asks for the work
// of one that has not started. The answer is 16 opaque bytes; here: the first CTA's x, y, z, and 1 for success.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/instructions/bind.h"
#include "emulator/memory/async_memory.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;

class TryCancel final : public CopyOperation {
 public:
  using CopyOperation::CopyOperation;
  U32 response = 0;  // offsets
  U32 barrier = 0;
  std::vector<Cta*> destinations;

  void complete(Launch& launch) override {
    std::array<U32, 4> words{};
    if (launch.next_cluster < launch.num_clusters) {
      const std::array<U32, 3> first = launch.first_cta(launch.next_cluster++);
      std::copy(first.begin(), first.end(), words.begin());
      words[3] = 1;
    }
    for (Cta* cta : destinations) {
      if (!write_shared(launch, *cta, response, reinterpret_cast<const std::byte*>(words.data()), 16)) return;
      complete_bytes(launch, *cta, barrier, 16, place_);
    }
  }
};

// number: space; flags: 1 multicast to all CTAs of the cluster. op: response, barrier.
Step try_cancel(Warp& w, const Instruction& in, Mask active) {
  const auto space = static_cast<Space>(in.number);
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    if (w.cta->saw_no_cluster_left)
      w.hazard(in, "try-cancel-after-failure", lane, 0,
               "a query has already answered that no cluster is left; PTX leaves another request undefined",
               "the loop goes on after is_canceled was false");
    auto operation = std::make_unique<TryCancel>(w, in, lane);
    const std::uint64_t to = lane_address(w, in.op[0], lane);
    const std::uint64_t at = lane_address(w, in.op[1], lane);
    Target response;
    Target barrier;
    if (!shared_target(w, in, space, lane, to, 16, response)) return Step::fault;
    if (!shared_target(w, in, space, lane, at, 8, barrier)) return Step::fault;
    if ((to & 15) != 0) return report_misaligned(w, in, lane, to, 16);
    if ((at & 7) != 0) return report_misaligned(w, in, lane, at, 8);
    operation->response = response.offset;
    operation->barrier = barrier.offset;
    if ((in.flags & 1) == 0)
      operation->destinations.push_back(w.cta);
    else
      for (const auto& cta : w.cta->cluster->ctas) operation->destinations.push_back(cta.get());
    w.launch->async.push(std::move(operation), *w.launch);
  }
  return Step::next;
}

bool is_canceled(const U128& response) { return response.high >> 32 != 0; }

Step query_success(Warp& w, const Instruction& in, Mask active) {
  const U128* response = w.reg<U128>(in.op[1].offset);
  Mask result = 0;
  for_lanes(active, [&](int lane) { result |= static_cast<Mask>(is_canceled(response[lane]) ? 1 : 0) << lane; });
  write_predicate(w, in.op[0], active, result);
  if (result != active) w.cta->saw_no_cluster_left = true;
  return Step::next;
}

// flags: 0 a vector of four, 1 x, 2 y, 3 z.
Step query_cta(Warp& w, const Instruction& in, Mask active) {
  const U128* response = w.reg<U128>(in.op[1].offset);
  bool failed = false;
  for_lanes(active, [&](int lane) {
    const U128& r = response[lane];
    failed = failed || !is_canceled(r);
    const U32 place[3] = {static_cast<U32>(r.low), static_cast<U32>(r.low >> 32), static_cast<U32>(r.high)};
    if (in.flags != 0) {
      write_lane<U32>(w, in.op[0], lane, place[in.flags - 1]);
      return;
    }
    for (int i = 0; i < 3; ++i) write_lane<U32>(w, in.op[0].elements[i], lane, place[i]);
  });
  if (failed)
    w.hazard(in, "query-cancel-undefined", first_lane(active), 0,
             "the CTA of a request that got no cluster: the result is undefined",
             "get_first_ctaid before is_canceled was tested");
  return Step::next;
}

}  // namespace

Handler try_cancel(const Decoded& d) {
  d.in->number = static_cast<U32>(space_of(d));
  d.in->flags = d.has("multicast::cluster::all") ? 1 : 0;
  return try_cancel;
}
Handler query_cancel(const Decoded& d) {
  if (d.form->mnemonic == "clusterlaunchcontrol.query_cancel.is_canceled") return query_success;
  const bool is_vector = d.in->op[0].kind == Operand::Kind::list;
  if (is_vector != d.has("v4") || (is_vector && d.in->op[0].count != 4)) return nullptr;
  const std::string_view name = d.form->mnemonic;
  d.in->flags = name.substr(name.size() - 3) == "::x"   ? 1
                : name.substr(name.size() - 3) == "::y" ? 2
                : name.substr(name.size() - 3) == "::z" ? 3
                                                        : 0;
  return (d.in->flags == 0) == is_vector ? query_cta : nullptr;
}

}  // namespace tessera::emulator::bind
