#!/usr/bin/env python3
"""Writes the description of a Hopper GPU from what micro.cu measured:
describe.py MICRO.jsonl LOAD.jsonl WARP.jsonl ROWS.jsonl FED.jsonl SMALL.jsonl PLACES.jsonl UNITS.jsonl BESIDE.jsonl CLUSTER.jsonl LIVES.jsonl QUEUE.jsonl PACED.jsonl STEP.jsonl DRIFT.jsonl RAMP.jsonl LANES.jsonl FLIGHT.jsonl SOFT.jsonl SCATTERED.jsonl TRIP.jsonl PARTS.jsonl PREFETCH.jsonl MIXED.jsonl > emulator/time/gpus/h200.json

Every number says where it is from. `measured` is a line of the micro-measurements, `published` somebody's document,
`inferred` worked out. No number is fitted to a kernel that the model is judged by."""

import json
import sys

COMMAND = "bench/time/micro/micro.cu, {device}, {mhz} MHz"


def main() -> None:
    lines = [json.loads(line) for name in sys.argv[1:] for line in open(name) if line.strip()]
    device = next(line for line in lines if line["what"] == "device")
    command = COMMAND.format(device=device["name"].replace("NVIDIA ", ""), mhz=round(device["mhz"]))

    def find(what: str, **keys) -> dict:
        for line in lines:
            if line["what"] == what and all(line.get(key) == value for key, value in keys.items()):
                return line
        raise SystemExit(f"describe.py: no line {what} {keys}")

    def number(value: float, source: str, certainty: str) -> dict:
        return {"value": round(value, 3), "source": source, "certainty": certainty}

    def measured(value: float, what: str) -> dict:
        return number(value, f"{what}: {command}", "measured")

    def inferred(value: float, why: str) -> dict:
        return number(value, why, "inferred")

    def published(value: float, where: str) -> dict:
        return number(value, where, "published")

    guide = "CUDA C++ Programming Guide, technical specifications per compute capability"

    def alu(pipe: str, op: str, merged: int = 1, why: str = "") -> dict:
        """merged: how many PTX instructions the assembler makes one of, in the chain that is measured."""
        line = find("alu", op=op)
        # Sixteen warps on four sub-cores: cycles of a sub-core's pipe for one instruction. A loop's own cost, some
        # hundredths, is taken off.
        return {
            "pipe": pipe,
            "interval": measured(round(line["interval_4_warps"] * merged, 1), f"{op}{why}, 16 warps, per sub-core"),
            "latency": measured(round(line["latency"] * merged), f"{op}{why}, chain of one warp"),
        }

    mbarrier = find("mbarrier")
    barriers = {line["warps"]: line["cycles"] for line in lines if line["what"] == "bar.sync"}
    slope = (barriers[16] - barriers[4]) / 12
    chain = find("shared", op="dependent ld.shared")["cycles_per_warp_instruction"]
    matrix = find("shared", op="stmatrix.x4", warps=16)["cycles_per_warp_instruction"]
    bulk = {line["bytes"]: line for line in lines if line["what"] == "bulk load"}
    rate = (65536 - 8192) / (bulk[65536]["latency_l2"] - bulk[8192]["latency_l2"])
    tensor = find("tensor load", rows_of_128_bytes=32)
    all_sms = {line["kilobytes_under_way"]: line for line in lines if line["what"] == "bulk rate of all SMs"}
    plain = find("rates of plain accesses")
    wait_over = mbarrier["wait_over"]
    rows_what = "rows of a tensor load"
    name, mhz = device["name"].replace("NVIDIA ", ""), device["mhz"]
    by = lambda program: lambda value, what: number(value, f"{what}: bench/time/micro/{program}.cu, {name}", "measured")
    by_rows, by_fed, by_small = by("rows"), by("fed"), by("small")
    one_row = max(line["cycles_of_row"] for line in lines if line["what"] == "rows of planes" and line["sms"] == "one")
    # What a softmax's exponentials take, as the compiler orders them: of a warp alone, of three of a sub-core.
    def stage(workers: int) -> list:
        line = find("stage beside wgmma", form="bf16 SS n128", stage="exponentials and sums", multiply=0, workers=workers)
        return [line["cycles_of_stage"], line["cycles_of_second"], line["cycles_of_third"]]

    scores, alone, three = find("stage beside wgmma")["scores"], stage(1), stage(3)
    exponent = round(find("alu", op="ex2")["interval_4_warps"], 1)
    by_step = lambda holds, what: inferred(1 if holds else 0, f"{what}: bench/time/micro/step.cu, {name}")
    all_fed = [line for line in lines if line["what"] == "fed" and not line["form"].startswith("e4m3")]
    fed, paced = [line for line in all_fed if not line.get("pace")], [line for line in all_fed if line.get("pace")]

    # CTAs are dealt to eight GPCs in turn: of tiles that go `raster` along M, then along N, so many of a GPC's have the same of A and of B.
    # With `neighbours` at most four in place of two the fit is worse (r2 0.960), and tiles that go 32 along M, which are not in it, get 100.
    neighbours = 2
    same_of_gpc = {4: (16, 1), 8: (16, 1), 16: (8, 2), 32: (4, 4)}

    def has_room(line: dict) -> bool:
        """By its form alone: tensor cores could take 80 bytes a clock and more; a chain of narrower products has less than their rate."""
        rows, columns = 64 * line["warpgroups"], int(line["form"].split(" n")[1])
        return columns >= 128 and (rows + columns) * 128 / (2 * columns * line["warpgroups"]) >= 80

    drift = [line for line in lines if line["what"] == "drift" and line["multiplies"] and line["share"] == 1 and has_room(line)]

    def distinct(line: dict, in_step: float) -> float:
        """Of the bytes of a step, those that the L2 reads for it, where so much of what a GPC could read together is."""
        rows, columns = 64 * line["warpgroups"], int(line["form"].split(" n")[1])
        together = [1 + (min(neighbours, count) - 1) * in_step for count in same_of_gpc[line["raster"]]]
        return (rows / together[0] + columns / together[1]) / (rows + columns)

    def median(values) -> float:
        of = sorted(values)
        return (of[(len(of) - 1) // 2] + of[len(of) // 2]) / 2

    begun = [(distinct(line, 1), 1 / line["bytes_per_clock_filled"]) for line in drift if line["tiles"] == 1 and line["raster"] < 32]
    mean_x, mean_y = (sum(pair[i] for pair in begun) / len(begun) for i in (0, 1))
    of_distinct = sum((x - mean_x) * (y - mean_y) for x, y in begun) / sum((x - mean_x) ** 2 for x, _ in begun)
    of_each = mean_y - of_distinct * mean_x
    fitted = [(of_distinct * x + of_each, y) for x, y in begun]
    r2 = 1 - sum((y - by_fit) ** 2 for by_fit, y in fitted) / sum((y - mean_y) ** 2 for _, y in begun)
    worst = max(abs(by_fit / y - 1) for by_fit, y in fitted)
    held_out = [line for line in drift if line["tiles"] == 1 and line["raster"] == 32]
    rates = [line["bytes_per_clock_filled"] for line in held_out]
    predicted = 1 / (of_distinct * distinct(held_out[0], 1) + of_each)
    of_fit = (f"{len(begun)} forms of 64 rows, 128 columns and more, by what a GPC reads together: r2 {r2:.3f}, worst {100 * worst:.1f} %; "
              f"tiles that go 32 along M, which are not among them, {predicted:.0f} where {min(rates):.1f} to {max(rates):.1f} were measured")

    def part_in_step(line: dict) -> float:
        low, high = 0.0, 1.5
        for _ in range(40):
            middle = (low + high) / 2
            is_slower = of_distinct * distinct(line, middle) + of_each > 1 / line["bytes_per_clock_filled"]
            low, high = (middle, high) if is_slower else (low, middle)
        return low

    # The same forms at all times; of CTAs that have just begun, by which the fit is made, it is 1.
    in_step_after = {}
    for tiles in sorted({line["tiles"] for line in drift}):
        of = [line for line in drift if line["tiles"] == tiles]
        part = 1.0 if tiles == 1 else min(1.0, median(part_in_step(line) for line in of))
        in_step_after[round(median(line["cycles_of_step"] * 32 * tiles for line in of))] = (part, len(of))

    # Of the copies before it at the L2's rate, what a load waits for: all multiprocessors ask for all that there is.
    beside_copies = [line for line in lines if line["what"] == "loads beside copies" and line["ctas"] == device["sms"] and line["megabytes"] == 8]
    load_alone = next(line["cycles_of_load"] for line in beside_copies if line["copies_under_way"] == 0)
    full = max(line["bytes_per_clock_copied"] for line in beside_copies)
    lanes_wait = [(line["cycles_of_load"] - load_alone) * line["bytes_per_clock_copied"] / (16384 * line["copies_under_way"])
                  for line in beside_copies if line["bytes_per_clock_copied"] > 0.9 * full]

    # A load waits for a part of those that its multiprocessor has under way: by the round trips of warps that ask for a
    # KiB to 16, where the memory is not busy all the time.
    def behind(writes: int, mib: int) -> float:
        of = [line for line in lines if line["what"] == "flight" and line["writes"] == writes and line["mib"] == line["of_mib"] == mib
              and line["pieces"] <= 4]
        most = max(line["terabytes_per_second"] for line in of)
        of = [line for line in of if line["terabytes_per_second"] < 0.85 * most]
        takes = [line["bytes_of_sm"] * (1 + writes) * device["sms"] * mhz / most * 1e-6 for line in of]
        trips = [line["bytes_of_sm"] * (1 + writes) * device["sms"] * mhz / line["terabytes_per_second"] * 1e-6 for line in of]
        mean_takes, mean_trips = sum(takes) / len(of), sum(trips) / len(of)
        return sum((x - mean_takes) * (y - mean_trips) for x, y in zip(takes, trips)) / sum((x - mean_takes) ** 2 for x in takes)

    def behind_copies() -> float:
        most = max(line["hbm_TB_s"] for line in all_sms.values())
        trip = {size: size * 1024 * device["sms"] * mhz / line["hbm_TB_s"] * 1e-6 for size, line in all_sms.items()}
        takes = {size: size * 1024 * device["sms"] * mhz / most * 1e-6 for size in all_sms}
        return (trip[16] - trip[2]) / (takes[16] - takes[2])

    # A grid that the memory binds for so long, and itself for so long, takes the root of the sum of their powers.
    def sharpness() -> float:
        grids: dict = {}
        for line in lines:
            if line["what"] == "soft":
                grids.setdefault((line["writes"], line["threads"], line["bytes"], line["ctas_per_sm"], line["mib"]), {})[line["cycles"]] = (
                    line["us"] - find("CTAs that do nothing", threads=128, ctas=132)["us"])
        found = []
        for (writes, _, _, _, mib), us in grids.items():
            memory = min(other[0] for key, other in grids.items() if key[0] == writes and key[4] == mib)
            slope = (us[16000] - us[12000]) / 4000
            for cycles, both in us.items():
                alone = us[16000] - (16000 - cycles) * slope
                most, least = max(alone, memory), min(alone, memory)
                if cycles == 12000 or least < 0.6 * most or both < 1.005 * most:
                    continue
                low, high = 1.0, 40.0
                for _ in range(60):
                    exponent = (low + high) / 2
                    low, high = (exponent, high) if (1 + (least / most) ** exponent) ** (1 / exponent) > both / most else (low, exponent)
                found.append(low)
        return median(found)

    # What the L2 answers once for both CTAs counts once: forms of tiles that differ, without a pace or with one that is no bound.
    least = {key: min(line["pace"] for line in paced if line["share"] == 2 and line["form"] == key) for key in
             {line["form"] for line in paced if line["share"] == 2}}
    of_pairs = sorted(line["bytes_per_clock_read"] for line in all_fed if line["share"] == 2 and not line["multiplies"] and not line["same"]
                      and not line["lag"] and line["ctas"] == device["sms"]
                      and (not line.get("pace") or line["pace"] == least[line["form"]]))
    of_multicast = (of_pairs[(len(of_pairs) - 1) // 2] + of_pairs[len(of_pairs) // 2]) / 2

    # Words of four bytes, each to a row of its own: so many a clock.
    apart = find("pieces written", mib=256, piece_bytes=4, row_bytes=4096, goes_down=0)
    parts = 256 * 2**20 / 4 / (apart["us"] * mhz)

    def clocks(times: int) -> dict:
        """By how busy tensor cores are, in tenths: the mean of what was measured there."""
        tenths: dict = {}
        for line in fed:
            if line["multiplies"] and not line["same"] and line["times"] == times:
                tenths.setdefault(round(10 * line["tensor_core"]), []).append((line["tensor_core"], line["mhz"]))
        mean = lambda values: sum(values) / len(values)
        return {str(round(mean([busy for busy, _ in of]), 3)): by_fed(round(mean([mhz for _, mhz in of])),
                f"random numbers, tiles of a product from the L2, {times} times {len(of)} forms") for _, of in sorted(tenths.items())}

    # A cluster lies within a GPC. Of a grid that could be there at once by its number of CTAs, so many multiprocessors
    # had one; or what the driver says.
    places = [line for line in lines if line["what"] == "multiprocessor of each CTA"]
    at_once = {line["share"]: line.get("clusters_at_once") or len(set(line["sm"])) // line["share"] for line in places}

    def small(**keys) -> float:
        wanted = {"rounds": 0, "copies": 0, "stores": 0, "words": 0, "plain": 0, "timer": 0, **keys}
        return find("small kernel", **wanted)["us"]

    # Tiles of 64 x 256 whose B, four fifths of the bytes, is read by `raster` SMs at the same time, and A by the others
    # over that: two of them give the times of a byte that so many read, less what each has of the other.
    sms = device["sms"]
    raster = {line["raster"]: line["read_TB_s"] for line in reversed(fed) if line["form"] == "bf16 SS n256" and line["warpgroups"] == 1
              and not line["multiplies"] and not line["same"] and line["share"] == 1 and line["lag"] == 0 and line["ctas"] == sms}
    together = {}
    for few, many in ((2, 64), (4, 32), (8, 16)):
        a, b = 1 / raster[few], 1 / raster[many]
        for count, time in ((few, (0.8 * a - 0.2 * b) / 0.6), (many, (0.8 * b - 0.2 * a) / 0.6)):
            together[count] = 1e6 / time / sms / mhz
    same = [line["read_TB_s"] for line in fed if line["form"] == "bf16 SS n256" and line["warpgroups"] == 1 and line["same"]
            and not line["multiplies"] and line["share"] == 1 and line["ctas"] == sms]
    together[sms] = max(same) * 1e6 / sms / mhz
    everywhere = [line for line in fed if line["ctas"] == device["sms"]]
    port = max(line["bytes_per_clock_filled"] for line in everywhere if line["share"] == 1)
    # Whatever the parts of its own tiles and of those for both: the median of eight forms, whose greatest is 1.05 times the least.
    filled = sorted(line["bytes_per_clock_filled"] for line in everywhere if line["share"] == 2 and line["same"] and not line["multiplies"]
                    and not line["lag"])
    port_of_multicast = (filled[(len(filled) - 1) // 2] + filled[len(filled) // 2]) / 2

    stores = {(line["bytes"], line["count"]): line for line in lines if line["what"] == "bulk store"}
    store_rate = 49152 / (stores[(65536, 1)]["read"] - stores[(16384, 1)]["read"])
    store_latency = stores[(4096, 1)]["read"] - stores[(4096, 1)]["issue"] - 4096 / store_rate
    waves = [find("empty kernel between events, us", waves=count)["block384_smem200K"] for count in (1, 16)]
    chase = {line["span"]: line for line in lines if line["what"] == "dependent ld.global"}
    wgmma = [line for line in lines if line["what"] == "wgmma"]
    one = [line for line in wgmma if line["form"].startswith("bf16 SS n")]
    tail = sorted(line["latency"] - line["interval"] for line in one)[len(one) // 2]
    loaded = find("all tensor cores", form="bf16 SS n256", random=1, steps=1000)
    code = find("16 KiB of code, cycles", ctas=device["sms"])
    first = find("tensor loads of 8 KiB after a flush", ctas=device["sms"])
    by_thread = {line["bytes"]: line for line in lines if line["what"] == "copies by one thread"}
    sharers = {line["sharers"]: line for line in lines if line["what"] == "bulk rate by sharers"}

    def one_instruction(pipe: str, latency: float, why: str, interval: float = 1) -> dict:
        return {"pipe": pipe, "interval": inferred(interval, why), "latency": inferred(latency, why)}

    classes = {
        "other": one_instruction("none", 6, "an instruction of an ALU"),
        "move": {"pipe": "none", "interval": inferred(0, "renamed by the assembler"), "latency": inferred(0, "renamed")},
        "fma32": alu("fma", "fma_f32"),
        "add32": alu("fma", "add_f32"),
        "fma16": alu("fma", "fma_bf16x2"),
        "imad": alu("fma", "mad_u32"),
        "add_int": alu("alu", "add_u32", 2, ", two of which are one IADD3"),
        "logic": alu("alu", "shf", 1, " in the place of LOP3, which has its pipe"),
        "shift": alu("alu", "shf"),
        "permute": alu("alu", "prmt"),
        "compare": alu("alu", "max_f32"),
        "pack": alu("alu", "cvt_bf16x2"),
        "pack8": alu("alu", "cvt_e4m3x2"),
        "convert": alu("alu", "cvt_f32_s32"),
        "count_bits": alu("mufu", "popc"),
        "exponent": {
            **alu("mufu", "ex2"),
            "holds_warp": by_step(alone[0] > scores * (exponent + 1.5), f"exponentials, their arguments and sums of a warp, {alone[0] / scores:.1f} "
                                  f"cycles a score beside {exponent} of the exponentials alone: they are not hidden"),
        },
        "special": alu("mufu", "lg2"),
        "shuffle": alu("memory", "shfl"),
        "vote": alu("alu", "vote"),
        "redux": alu("mufu", "redux"),
        "fp64": one_instruction("fma", 16, "two cycles of a sub-core: 64 lanes a multiprocessor", 2),
        "branch": one_instruction("branch", 0, "issue, and a bubble of the taken branch", 2),
        "constant": one_instruction("none", 0, "an operand of the constant bank"),
        "shared": {
            "pipe": "memory",
            "interval": inferred(2, "16 lanes a cycle go to the memory pipe of a sub-core"),
            "latency": measured(chain, "dependent ld.shared"),
        },
        "global": {
            "pipe": "memory",
            "interval": inferred(2, "16 lanes a cycle go to the memory pipe of a sub-core"),
            "latency": measured(chase[16 << 20]["again"], "dependent ld.global, in the L2"),
        },
        "atomic": one_instruction("memory", 30, "as a load of shared memory", 2),
        "mbarrier_arrive": {
            "pipe": "memory",
            "interval": inferred(2, "as a load of shared memory"),
            "latency": measured(mbarrier["arrive"], "mbarrier.arrive, one after the other"),
        },
        "mbarrier_wait": {
            "pipe": "memory",
            "interval": inferred(2, "as a load of shared memory"),
            "latency": measured(wait_over, "mbarrier.try_wait of a phase that is over"),
        },
        "fence": one_instruction("memory", 0, "an instruction of the memory pipe", 2),
        "sync": one_instruction("none", 0, "issue alone: waits are counted by themselves"),
        "wgmma": one_instruction("none", 0, "issue alone: the tensor cores have a queue"),
        "tma": one_instruction("none", 0, "issue alone: the copy engine has a queue"),
        "issue_copy": one_instruction("memory", 0, "as a load of shared memory", 2),
        "mma": one_instruction("none", 33, "mma.sync of a type that is not described"),
    }
    intervals: dict = {}
    for line in wgmma:
        dtype, kind, n = line["form"].split()
        if kind.endswith("t"):
            continue
        table = intervals.setdefault(f"{dtype} {kind}", {"by_n": {}})
        table["by_n"][n[1:]] = measured(line["interval"], f"wgmma {line['form']}, 24 less 8 of a warpgroup")
    big = max(all_sms)
    products = {line["form"].rsplit(" ", 1)[0]: line for line in lines if line["what"] == "mma.sync"}
    mma = {
        "f16" if form == "bf16" else form: {
            "flop_per_clock": measured(line["flop_per_clock"], f"mma.sync, {line['form']}, 16 warps (warp.cu)"),
            "latency": measured(line["latency"], f"mma.sync, {line['form']}, chain of one warp (warp.cu)"),
        }
        for form, line in products.items()
    }
    def by_units(value: float, what: str, program: str = "units") -> dict:
        return number(value, f"{what}: bench/time/micro/{program}.cu, H200", "measured")

    def us(what: str, mib: int) -> float:
        return find(what, mib=mib)["us"]

    # Reads of more than the L2 holds of what was written before, and of less; what a launch and the first bytes take
    # is in both.
    in_rows, mixed = "read, rows of CTAs", "read and written, rows of CTAs"
    megabyte = (1 << 20) * 1e-6  # times a TB/s: bytes of a MiB in microseconds
    read_rate = max(plain["read_hbm_TB_s"], all_sms[big]["hbm_TB_s"])
    mixed_rate = 2 * 128 * megabyte / (us(mixed, 256) - us(mixed, 128))
    dirty_rate = 48 * megabyte / (us(in_rows, 64) - us(in_rows, 16))
    before = us(in_rows, 8) - 8 * megabyte / dirty_rate
    dirty = ((us(in_rows, 256) - before) * read_rate - 256 * megabyte) * 1e6

    def ctas_us(ctas: int) -> float:
        return find("CTAs that do nothing", threads=128, ctas=ctas)["us"]

    # A load of the own memory by its cluster address, and what one of the next CTA's takes more.
    own = find("dependent loads of the next CTA", share=1)["latency"]
    fetch = {what: find(f"fetch {what}", share=2, ctas=132, threads=128, at_once=1)["cycles"] for what in ("own", "next")}
    asked = {line["asked"]: line["cycles_of_step"] for line in lines if line["what"] == "ring beside" and line["ctas"] == 1}
    loop = find("loop of fma.rn.f32", instructions=128, warps=1)["cycles"]

    def beside(name: str) -> float:
        keys = {"form": "bf16 SS n128", "class": name}
        both = find("arithmetic beside wgmma", multiply=2, work=1, **keys)["cycles_of_instruction"]
        return both / find("arithmetic beside wgmma", multiply=0, work=1, **keys)["cycles_of_instruction"]

    def by_beside(name: str) -> dict:
        return by_units(beside(name), f"{name} of a warp beside two warpgroups that multiply, over alone", "beside")

    # Pairs of 16 bits take as long as logic there, though alone half as long.
    mixed_cycles = {name: find("mixed", form="bf16 RS n128", work=128, warpgroups=2, **{"class": name})["cycles"] for name in ("fma.rn.bf16x2", "lop3.b32")}
    of_logic = beside("lop3.b32") * classes["logic"]["interval"]["value"] / classes["fma16"]["interval"]["value"]
    classes["fma16"]["beside"] = by_units(round(of_logic * mixed_cycles["fma.rn.bf16x2"] / mixed_cycles["lop3.b32"], 2),
                                          "fma.rn.bf16x2 between wgmmas of two warpgroups over lop3.b32 there, times that one's: over alone", "mixed")

    # Sums of products have three registers each, from two banks; what a taken branch leaves empty is what a loop of 128
    # takes more than it has instructions, three of which are the loop's own.
    outer = find("8 x 8 sums by fma.rn.f32", warps=8)["cycles"]
    classes["fma32"]["interval"] = by_units(outer, "8 x 8 sums by fma.rn.f32, 8 warps, per sub-core")
    classes["branch"]["latency"] = by_units(loop - 128 - 3, "loop of 128 fma.rn.f32 of one warp, less its 131 instructions: until the next one")

    # Loads of CTAs that do nothing else. What a place on a multiprocessor takes for each of them has, beside a CTA's
    # start and its instructions, the latest of its warps' loads: latencies have a tail, taken as exponential, of whose
    # maxima over n the mean is 1 + 1/2 + ... + 1/n times as long.
    def life(what: str, threads: int, in_l2: int) -> dict:
        return find(what, threads=threads, in_the_l2=in_l2)

    def of_load(in_l2: int) -> float:
        return life("load", 64, in_l2)["life_cycles"] - life("nothing", 64, in_l2)["life_cycles"]

    ramp = [line for line in lines if line["what"] == "ramp"]
    first_access = 2 * small(rounds=1, copies=1) - small() - small(rounds=2, copies=1)
    first_bytes = find("CTAs that do nothing", threads=128, ctas=132)["us"] + first_access + of_load(0) / mhz

    def displaced(mib: int) -> float:
        if mib < 8:  # what both have besides goes out of the difference
            return median(line["us_dirty"] - line["us_clean"] for line in ramp if line["megabytes"] == mib) * read_rate * 1e6
        return ((us(in_rows, mib) - first_bytes) * read_rate - mib * megabyte) * 1e6

    # A kernel of 20,000 cycles behind another one of a stream, the same (`same`) or not: what each further one takes more.
    chain_us = {same: (find("chain", times=9, same=same)["us"] - find("chain", times=1, same=same)["us"]) / 8 - 20000 / mhz for same in (0, 1)}

    def tail_of_load(in_l2: int, threads: int) -> float:
        line, warps = life("load", threads, in_l2), threads // 32
        place = line["ns_of_a_cta"] * mhz / 1000 * (2048 // threads)
        start = (waves[1] - waves[0]) / 15 * mhz + life("nothing", threads, in_l2)["life_cycles"]
        return (place - start - of_load(in_l2)) / (sum(1 / n for n in range(1, warps + 1)) - 1)

    # How far sub-cores with a warp each get ahead of shared memory: of n loads that take 32 cycles each the last one
    # issues when so many of all four have begun.
    def ahead(n: int) -> float:
        line = find("loads of one bank", loads=n, warps=4)
        return n - line["issued"] / (4 * 32)

    # Sequences: what they take of a sub-core, less what the loop around them takes, over the instructions that the
    # assembler (CUDA 13.0) makes of them where no rare case is met: integers go over the unit of exponents three times.
    shift = find("shl.b32")

    def sequence(what: str, pipe: str, slots: int) -> dict:
        line = find(what)
        interval = line["interval"] - (shift["interval"] - classes["shift"]["interval"]["value"])
        latency = line["latency"] - (shift["latency"] - classes["shift"]["latency"]["value"]) - (slots - 1)
        return {
            "pipe": pipe,
            "slots": number(slots, f"{what}: instructions in the machine code of units.cu, CUDA 13.0", "measured"),
            "interval": by_units(round(interval / slots, 2), f"{what}, 16 warps, per sub-core and instruction, less the loop's"),
            "latency": by_units(round(max(1.0, latency), 1), f"{what}, chain of one warp, less its instructions and the loop's"),
        }

    for sequence_of, what, pipe, slots in (("div_rn", "div.rn.f32", "fma", 14), ("sqrt_rn", "sqrt.rn.f32", "fma", 13), ("rcp_rn", "rcp.rn.f32", "fma", 14),
                                    ("div_s32", "div.s32", "mufu", 26), ("div_u32", "div.u32", "mufu", 19), ("rem_u32", "rem.u32", "mufu", 18),
                                    ("movmatrix", "movmatrix", "alu", 1)):
        classes[sequence_of] = sequence(what, pipe, slots)

    json.dump(
        {
            "name": "H200",
            "arch": "sm_90a",
            "note": "Written by bench/time/describe.py from the micro-measurements that each source names.",
            "sm": {
                "count": measured(device["sms"], "device properties"),
                "clock_mhz": measured(mhz, "clock64 against globaltimer, idle otherwise: under load the power limit lowers it"),
                "clock_loaded_mhz": measured(loaded["mhz"], "all SMs, wgmma m64n256k16 on random numbers for 1 ms"),
                "clock_loaded_8_bit_mhz": measured(
                    find("all tensor cores", form="e4m3 SS n256", random=1, steps=1000)["mhz"], "the same with e4m3 m64n256k32"
                ),
                "clock_by_tensor_core": clocks(1),
                "clock_by_tensor_core_1_ms": clocks(12),
                "clusters_at_once": {str(ctas): by_fed(count, f"clusters of {ctas} CTAs that are there at the same time")
                                     for ctas, count in at_once.items() if ctas > 1 and count < device["sms"] // ctas},
                "sub_cores": published(4, guide),
                "in_turn": by_step(three[0] < 1.1 * three[2], "exponentials of three warps of a sub-core: all take " + " to ".join(
                                   f"{cycles / scores:.0f}" for cycles in (three[2], three[0])) + " cycles a score"),
                "warps": published(64, guide),
                "registers": published(65536, guide),
                "ctas": published(32, guide),
                "shared_bytes": published(228 * 1024, guide),
                "shared_bytes_of_cta": published(1024, "NVIDIA Hopper tuning guide: CUDA reserves 1 KB for each CTA"),
                "gpcs": published(8, "NVIDIA H100 white paper: 8 GPCs of the SXM5 board's GPU"),
            },
            "launch": {
                "empty_us": by_small(small(), "kernel of 384 threads and 200 KiB that does nothing, between events, L2 overwritten before"),
                "first_access": by_small(
                    (2 * small(rounds=1, copies=1) - small() - small(rounds=2, copies=1)) * mhz,
                    "a copy of 16 KiB of each SM, L2 overwritten before, less a second one",
                ),
                "next_us": by_units(
                    (chain_us[0] + chain_us[1]) / 2, f"kernels of 20,000 cycles in a stream, nine less one, less the cycles: {chain_us[1]:.2f} us behind the "
                    f"same kernel, {chain_us[0]:.2f} behind another one", "ramp"),
                "displaced": {
                    str(mib << 20): by_units(round(displaced(mib)), "reads of so many bytes, the L2 overwritten before, " + why,
                                             "ramp" if mib < 8 else "units")
                    for mib, why in [(mib, "less the same with its lines read before, the median of the pairs") for mib in (1, 2, 4)]
                    + [(mib, "less a launch, the first bytes and the rate") for mib in (8, 16, 32, 64, 128, 256)]
                },
                "plain_us": by_units(ctas_us(132), "132 CTAs that do nothing, between events, L2 overwritten before"),
                "cta_interval": by_units(
                    (ctas_us(67584) - ctas_us(16896)) * mhz * 132 / (67584 - 16896), "CTAs of 128 threads that do nothing, 67,584 less 16,896"
                ),
                "dirty_bytes": by_units(dirty, "reads of 256 MiB after the L2 was overwritten: what they take more"),
                "displaced_part": by_units(read_rate / dirty_rate - 1, "the same, of reads of 64 MiB less 16"),
                "cold_line": measured(
                    max(0, code["first_after_flush"] - code["again"]) / 128, "16 KiB of code, first after a flush and again"
                ),
                "cta_start": measured(
                    (waves[1] - waves[0]) / 15 * mhz, "15 more waves of empty CTAs"
                ),
            },
            "shared": {
                "bytes_per_clock": measured(512 / matrix, "stmatrix.x4, 16 warps"),
                "latency": measured(chain, "dependent ld.shared"),
                "queue": by_units(round((ahead(16) + ahead(24)) / 2), "loads of one bank, a warp of each sub-core", "queue"),
            },
            "l1": {
                "bytes": published(256 * 1024, "CUDA C++ Programming Guide: unified with shared memory"),
                "latency": published(40, "markdewing/AI_kernels latency@0d701ad (H100, GH200)"),
                "sets": published(4, "NVIDIA's developer forum, 312884: the tag stage resolves 4 sets of 4 sectors a cycle"),
                "wavefront_of_warp": by_units(
                    round((find("ld.global in the L1", pattern="128 bytes apart", warps=1)["cycles"]
                           - find("ld.global in the L1", pattern="contiguous", warps=1)["cycles"]) / 31, 2),
                    "loads of 32 lines less those of one, one warp"),
                "copy_of_warp": by_units(
                    find("scattered", by="cp.async.ca", warps=1, apart=4)["cycles"], "cp.async of 4 bytes, lanes side by side, one warp", "scattered"),
                "copy": by_units(
                    round(find("scattered", by="cp.async.ca", warps=4, apart=4)["cycles"] / 4, 1), "the same, four warps", "scattered"),
                "store_line": measured(
                    find("global store", bytes_of_lane=4, lines=4)["cycles_per_warp_instruction"] / 4,
                    "plain stores of whole sectors to four lines, a line (warp.cu)",
                ),
                "store_part": measured(
                    find("global store", bytes_of_lane=4, lines=8)["cycles_per_warp_instruction"] / 8,
                    "plain stores of half sectors to eight lines, a line (warp.cu)",
                ),
            },
            "wgmma": {
                "tail": measured(tail, "latency of one less its interval, median of bf16 SS"),
                "issue": measured(
                    sorted(line["issue_one"] for line in one)[len(one) // 2] / 2, "fence, one wgmma, commit: half of the issue"
                ),
                "beside": {
                    "fma": by_beside("fma.rn.f32, 3 registers"),
                    "alu": by_beside("lop3.b32"),
                    "mufu": by_beside("ex2.approx.ftz.f32"),
                },
                "intervals": intervals,
            },
            "mma": mma,
            "tma": {
                "issue": measured(by_thread[8192]["issue"], "expect_tx and a copy of 8 KiB, eight in a row by one thread"),
                "prefetch_issue": by_units(
                    (asked[16] - asked[4]) / 12, "rows that the thread of a ring of copies brings to the L2 beside each: 16 less 4", "prefetch"),
                "bytes_per_clock": measured(
                    max(line["bytes_per_clock"] for line in by_thread.values()), "bulk copies from the L2, one SM, eight under way"
                ),
                "least": published(30, "facebookexperimental/triton NVLatencyModel.cpp@487dae6 (B200): the engine's least time"),
                "row": by_rows(one_row, "rows of 16, 32 and 64 bytes of boxes of three dimensions, one SM"),
                "split_row": {
                    # Rows 144 bytes apart begin at a sector and between two by turns, and touch so many lines.
                    str(size): by_rows(
                        2 * (find(rows_what, sms="one", row_bytes=size, pitch=144)["cycles_of_row"]
                             - one_row * sum((16 * i + size - 1) // 128 + 1 for i in range(8)) / 8),
                        f"rows of {size} bytes 144 bytes apart less the lines that they touch, one SM")
                    for size in (32, 64, 128)
                },
                "first_use": measured(max(0, first["first"] - first["second"]), "tensor loads of 8 KiB after a flush: the first less the second"),
                "latency_l2": measured(
                    tensor["latency_l2"] - 4096 / rate - wait_over, "tensor copy of 4 KiB less its bytes and the wait's answer"
                ),
                # All read the same, so that the memory has little to do.
                "latency_hbm": by_units(
                    tensor["latency_l2"] - 4096 / rate - wait_over
                    + find("trip", ctas=132, bytes=8192, depth=1, sharers=132, dirty=1)["cycles"]
                    - find("trip", ctas=132, bytes=8192, depth=1, of_mib=8)["cycles"],
                    "latency_l2, and bulk copies of 8 KiB that all SMs read, one after the other, behind an L2 full of written lines less those from the L2",
                    "trip"),
                "store_bytes_per_clock": measured(store_rate, "bulk stores of 64 KiB and 16 KiB: the slope"),
                "store_read_latency": measured(store_latency, "bulk store of 4 KiB to wait_group.read less its bytes"),
                "store_latency": measured(
                    store_latency + stores[(4096, 1)]["done"] - stores[(4096, 1)]["read"], "the same to wait_group"
                ),
            },
            "l2": {
                "bytes": measured(device["l2_bytes"], "device properties"),
                "latency": measured(chase[16 << 20]["again"], "dependent ld.global.cg of 16 MiB"),
                "tail": by_units(
                    round(tail_of_load(1, 1024), 1), "a place's time for CTAs of 1,024 threads that load: the latest of their warps", "lives"),
                "bytes_per_clock_of_one_sm": published(64, "arXiv 2402.13499 and others: a multiprocessor's port"),
                "bytes_per_clock": measured(
                    max(line["l2_TB_s"] for line in all_sms.values()) * 1e6 / mhz, "bulk copies of all SMs from the L2, each its own"
                ),
                "port_bytes_per_clock": by_fed(port, "all SMs the same tiles: what the shared memory of each gets"),
                "multicast_bytes_per_clock": by_fed(
                    round(port_of_multicast, 1), "all SMs the same tiles, one of the two for both CTAs of a cluster: what the shared memory of each gets"),
                "distinct_bytes_per_clock": by_fed(
                    round(1 / of_distinct, 1), f"drift: tiles of CTAs that have just begun, {of_fit}"),
                "each_bytes_per_clock": by_fed(round(1 / of_each, 1), "drift: the same, what is left of a byte's time"),
                "neighbours": inferred(neighbours, "bench/time/micro/fed.cu drift, H200: with more the fit of the two before is worse, and its error for tiles that go 32 along M"),
                "in_step_after": {
                    str(cycles): by_fed(round(part, 3), f"drift: what is left of reading together, in the mean of so many cycles, {forms} forms")
                    for cycles, (part, forms) in sorted(in_step_after.items())
                },
                "of_multicast": by_fed(round(of_multicast, 1), f"tiles of a product, one of the two for both CTAs of a cluster: bytes read, {len(of_pairs)} forms"),
                "stored_bytes_per_clock_of_one_sm": by_units(
                    round((131072 - 16384) / mhz / (find("lanes", doing="writes", threads=1024, bytes=131072, ctas=1)["us"]
                                              - find("lanes", doing="writes", threads=1024, bytes=16384, ctas=1)["us"]), 1),
                    "a CTA of 1,024 threads that stores 128 KiB less one that stores 16", "trip"),
                "lanes_wait": by_units(
                    median(lanes_wait), f"loads beside copies from the L2 of all SMs, of the copies before them, {min(lanes_wait):.2f} to {max(lanes_wait):.2f}", "lanes"),
                "parts_per_clock": by_units(round(parts, 1), "words of 4 bytes written to a row each, 256 MiB", "lives"),
                "by_sharers": {
                    "1": measured(sharers[1]["bytes_per_clock_of_each"], "bulk copies of all SMs, each its own bytes"),
                    **{str(count): by_fed(rate, f"tiles as those of a product, {count} SMs the same at about the same time")
                       for count, rate in sorted(together.items())},
                },
            },
            "hbm": {
                "latency": by_units(of_load(0), "CTAs of 64 threads that load, less those that do nothing", "lives"),
                "tail": by_units(
                    round((tail_of_load(0, 256) + tail_of_load(0, 1024)) / 2, 1),
                    "a place's time for CTAs of 256 and 1,024 threads that load: the latest of their warps", "lives"),
                "terabytes_per_second": measured(read_rate, "the best of plain reads of 4 GiB and bulk copies"),
                "mixed_terabytes_per_second": by_units(mixed_rate, "256 MiB less 128, read and written, a CTA for 16 KiB"),
                "behind": by_units(
                    round(behind(0, 1024), 2), "round trips of warps by what their multiprocessor has asked for, of what that takes", "flight"),
                "behind_mixed": by_units(round(behind(1, 512), 2), "the same with stores of as much", "flight"),
                "behind_copies": measured(round(behind_copies(), 2), "bulk copies of all SMs, 2 and 16 KiB under way: round trips, of what these take"),
                "sharpness": by_units(
                    round(sharpness(), 1), "CTAs that read, compute for some cycles, and write or not: the median exponent", "soft"),
            },
            "sync": {
                "mbarrier_hand_off": measured(
                    max(0, mbarrier["round_trip"] / 2 - wait_over), "half a round trip of two warps less the wait's answer"
                ),
                "barrier_base": measured(barriers[4] - 4 * slope, "bar.sync, 4 and 16 warps"),
                "barrier_per_warp": measured(slope, "bar.sync, 4 and 16 warps"),
                "cluster_barrier": measured(find("barrier.cluster", warps=4)["cycles"], "barrier.cluster of 2 CTAs, 4 warps"),
                "cluster_store": published(200, "arXiv 2501.12084: 181-213 cycles on an H800"),
                "cluster_load": by_units(
                    own + fetch["next"] - fetch["own"],
                    "a load of each lane from the next CTA's less one from the own by its cluster address, and that one's latency (cluster.cu)",
                    "parts",
                ),
                "cluster_bytes_per_clock": by_units(
                    max(line["bytes_per_clock"] for line in lines if line["what"] == "loads of 16 bytes a thread, the next CTA's"),
                    "loads of 16 bytes a thread, the next CTA's",
                    "cluster",
                ),
                "atomic": measured(find("dependent atomicAdd in L2")["cycles"], "dependent atomicAdd"),
            },
            "classes": classes,
            "judged": {
                "median_error_percent": number(
                    4.9,
                    "598 kernels of 100 problems drawn at random that the model had not seen, "
                    "bench/time/h200/times-candidates-12.jsonl (docs/time.md)",
                    "measured",
                )
            },
        },
        sys.stdout,
        indent=1,
    )
    print()


main()
