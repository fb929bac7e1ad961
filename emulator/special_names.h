// The special registers that PTX text may name. PTX ISA, "Special Registers".
#pragma once

#include <string_view>

#include "emulator/program.h"

namespace tessera::emulator {

struct SpecialName {
  std::string_view name;
  Special special;
  int bytes;  ///< of its register; 0: a predicate
};

inline constexpr SpecialName kSpecials[] = {
    {"%tid.x", Special::tid_x, 4},
    {"%tid.y", Special::tid_y, 4},
    {"%tid.z", Special::tid_z, 4},
    {"%ntid.x", Special::ntid_x, 4},
    {"%ntid.y", Special::ntid_y, 4},
    {"%ntid.z", Special::ntid_z, 4},
    {"%ctaid.x", Special::ctaid_x, 4},
    {"%ctaid.y", Special::ctaid_y, 4},
    {"%ctaid.z", Special::ctaid_z, 4},
    {"%nctaid.x", Special::nctaid_x, 4},
    {"%nctaid.y", Special::nctaid_y, 4},
    {"%nctaid.z", Special::nctaid_z, 4},
    {"%laneid", Special::laneid, 4},
    {"%warpid", Special::warpid, 4},
    {"%nwarpid", Special::nwarpid, 4},
    {"%smid", Special::smid, 4},
    {"%nsmid", Special::nsmid, 4},
    {"%gridid", Special::gridid, 8},
    {"%lanemask_eq", Special::lanemask_eq, 4},
    {"%lanemask_le", Special::lanemask_le, 4},
    {"%lanemask_lt", Special::lanemask_lt, 4},
    {"%lanemask_ge", Special::lanemask_ge, 4},
    {"%lanemask_gt", Special::lanemask_gt, 4},
    {"%clusterid.x", Special::clusterid_x, 4},
    {"%clusterid.y", Special::clusterid_y, 4},
    {"%clusterid.z", Special::clusterid_z, 4},
    {"%nclusterid.x", Special::nclusterid_x, 4},
    {"%nclusterid.y", Special::nclusterid_y, 4},
    {"%nclusterid.z", Special::nclusterid_z, 4},
    {"%cluster_ctaid.x", Special::cluster_ctaid_x, 4},
    {"%cluster_ctaid.y", Special::cluster_ctaid_y, 4},
    {"%cluster_ctaid.z", Special::cluster_ctaid_z, 4},
    {"%cluster_nctaid.x", Special::cluster_nctaid_x, 4},
    {"%cluster_nctaid.y", Special::cluster_nctaid_y, 4},
    {"%cluster_nctaid.z", Special::cluster_nctaid_z, 4},
    {"%cluster_ctarank", Special::cluster_ctarank, 4},
    {"%cluster_nctarank", Special::cluster_nctarank, 4},
    {"%is_explicit_cluster", Special::is_explicit_cluster, 0},
    {"%dynamic_smem_size", Special::dynamic_smem_size, 4},
    {"%total_smem_size", Special::total_smem_size, 4},
    {"%current_graph_exec", Special::envreg, 8},
    {"%envreg0", Special::envreg, 4},
    {"%envreg1", Special::envreg1, 4},
    {"%envreg2", Special::envreg2, 4},
    {"%clock", Special::clock, 4},
    {"%clock_hi", Special::clock_hi, 4},
    {"%clock64", Special::clock64, 8},
    {"%globaltimer", Special::globaltimer, 8},
    {"%globaltimer_lo", Special::globaltimer_lo, 4},
    {"%globaltimer_hi", Special::globaltimer_hi, 4},
};

}  // namespace tessera::emulator
