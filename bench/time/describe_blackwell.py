#!/usr/bin/env python3
"""Writes the descriptions of Blackwell GPUs that have no measurements of their own here: describe_blackwell.py [FOLDER]

Each is b200.json (or another of these) with what differs: published numbers where there are any, and where there are
none the base's number, marked as inferred. Nothing was measured by this project on any of them."""

import copy
import json
import pathlib
import statistics
import sys

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2] / "emulator/time/gpus")

# What `again.py predict --sets blackwell` said last of the points that blackwell.py has.
POINTS = pathlib.Path(__file__).parent / "blackwell-points.jsonl"
QR = "ademeure/QuickRunCUDA@4f6ee52 b300_clean (B300, 2.03 GHz)"
MD = "markdewing/AI_kernels latency@0d701ad"
SK = "florianmattana/sass-king@6d0fcda (RTX 5070 Ti)"
PAPER = "NVIDIA RTX Blackwell GPU architecture paper"
MMAPEAK = "mmapeak on a 5090, zeros: the ratio to mxf4nvf4, whose rate is known"


def leaf(value, source, certainty="published"):
    return {"value": value, "source": source, "certainty": certainty}


def base_of(name, base):
    """Every number of the base, as inferred, with its source kept."""
    def mark(node):
        if "value" in node and "source" in node:
            source = node["source"]
            known = source if source.startswith(("as on", "not known")) else f"as on the {name}: {source}"
            return {**node, "source": known, "certainty": "inferred"}
        return {key: mark(value) if isinstance(value, dict) else value for key, value in node.items()}
    marked = mark(copy.deepcopy(base))
    marked.pop("judged", None)  # of the base
    return marked


def put(gpu, changes):
    for path, value in changes.items():
        at = gpu
        *folders, last = path.split("/")
        for folder in folders:
            at = at.setdefault(folder, {})
        at[last] = value


def mma(rates, latencies, source_of):
    return {form: {"flop_per_clock": leaf(rate, *source_of(form)), "latency": latencies(form)}
            for form, rate in rates.items()}


def b200_mma():
    rate = lambda value, certainty="inferred": leaf(
        value, f"{QR}: m16n8k16 bf16 578 TFLOPS, about 1,925 of 2,048 a clock; other types by their width", certainty)
    latency = leaf(20.1, f"{QR}: chain of m16n8k16", "published")
    later = leaf(20.1, f"{QR}: as of bf16", "inferred")
    return {"f16": {"flop_per_clock": rate(1925, "published"), "latency": latency},
            "f16 to f16": {"flop_per_clock": rate(1925), "latency": later},
            "tf32": {"flop_per_clock": rate(962), "latency": later},
            "e4m3": {"flop_per_clock": leaf(1925, f"{QR}: emulated by f16", "inferred"), "latency": later},
            "s8": {"flop_per_clock": leaf(503, f"{QR}: 143 TOPS", "published"), "latency": later}}


def b300(b200):
    gpu = base_of("B200", b200)
    gpu.update(name="B300", arch="sm_103a",
               note="From published measurements; nothing was measured by this project on a B300, and no kernel of "
                    "ours has run on one.")
    put(gpu, {
        "sm/clock_mhz": leaf(2032, f"{QR}, free clock"),
        "sm/clock_loaded_mhz": leaf(1690, f"{QR}: cuBLAS 8192^3 bf16 makes 2,242 TFLOPS of zeros and 1,866 of random "
                                          "numbers; of 2,032 MHz", "inferred"),
        "hbm/latency": leaf(848, MD),
        "hbm/terabytes_per_second": leaf(7.33, f"{QR}: reads 7.30 to 7.37"),
        "l2/bytes_per_clock": leaf(6545, f"{QR}: 13.3 TB/s on the wire"),
        "classes/exponent/interval": leaf(4, f"NVIDIA/cudnn-frontend pr 1178 and {QR}: 32 a clock and multiprocessor"),
        "classes/exponent/latency": leaf(14, QR),
    })
    return gpu


def sm120(b200, name, arch, changes, f32_rate):
    """f32_rate: what sums in 32 bits do to the rate of 16- and 8-bit products: half on GeForce."""
    gpu = base_of("B200", b200)
    gpu.pop("tcgen05", None)
    gpu.update(name=name, arch=arch,
               note=f"From published measurements; nothing was measured by this project on a {name}, and no kernel of "
                    "ours has run on one.")
    f32 = "imp pr 606 (5090): f16 253, fp8 496 TFLOPS with sums in 32 bits at about 2.85 GHz" if f32_rate == 0.5 else \
        "cudnn-frontend's table: 1,024 a clock; data sheet"
    latency16 = leaf(35, f"{SK}: HMMA 16816, serial")
    latency8 = leaf(35, f"{SK}: QMMA 16832, serial: 34 to 35")
    gpu["mma"] = {
        "f16": {"flop_per_clock": leaf(1024 * f32_rate, f32), "latency": latency16},
        "f16 to f16": {"flop_per_clock": leaf(1024, "cudnn-frontend's table"), "latency": latency16},
        "tf32": {"flop_per_clock": leaf(512 * f32_rate, MMAPEAK, "published" if f32_rate == 0.5 else "inferred"),
                 "latency": leaf(35, "as HMMA 16816", "inferred")},
        "e4m3": {"flop_per_clock": leaf(2048 * f32_rate, f32), "latency": latency8},
        "e4m3 to f16": {"flop_per_clock": leaf(2048, MMAPEAK), "latency": latency8},
        "s8": {"flop_per_clock": leaf(2048, MMAPEAK), "latency": leaf(35, "as QMMA 16832", "inferred")},
        "mxf8f6f4": {"flop_per_clock": leaf(2048, MMAPEAK), "latency": latency8},
        "mxf4": {"flop_per_clock": leaf(4096, "ninfer pr 160: 4,094.8 to 4,095.8 a clock and multiprocessor"),
                 "latency": leaf(29, f"{SK}: OMMA.SF 16864, serial")},
    }
    guide = "CUDA C++ Programming Guide, technical specifications per compute capability"
    put(gpu, {
        "sm/warps": leaf(48, guide), "sm/registers": leaf(65536, guide), "sm/shared_bytes": leaf(102400, guide),
        "sm/ctas": leaf(24, guide), "sm/shared_bytes_of_cta": leaf(1024, "NVIDIA Blackwell tuning guide: CUDA reserves 1 KB for each CTA"),
        "sm/sub_cores": leaf(4, guide),
        "l1/bytes": leaf(131072, "NVIDIA Blackwell tuning guide: 128 KB on compute capability 12.0"), "l1/latency": leaf(44, MD),
        "classes/imad/interval": leaf(1, f"{PAPER}: integers on all lanes, twice Ada's rate"),
        "classes/add_int/interval": leaf(1, f"{PAPER}: integers on all lanes, twice Ada's rate"),
        "classes/logic/interval": leaf(1, f"{PAPER}: integers on all lanes, twice Ada's rate", "inferred"),
        "classes/exponent/interval": leaf(8, "nothing published: 16 a clock and multiprocessor, as on the B200", "inferred"),
        "classes/fp64/interval": leaf(64, f"{PAPER}: two lanes a multiprocessor", "published"),
        "shared/latency": leaf(29, f"{SK}: LDSM.x1 33 cycles; ld.shared less 4 as on the H200", "inferred"),
        "l2/by_sharers": None, **changes})
    if gpu["l2"].get("by_sharers") is None:
        gpu["l2"].pop("by_sharers", None)
    return gpu


def judged():
    """The median error of the half that judges, and what it is of: the only place that says so; docs/time.md repeats it."""
    rows = [row for row in map(json.loads, POINTS.read_text().splitlines()) if row["half"] == "judge" and "predicted_us" in row]
    error = 100 * statistics.median(abs(row["time_us"] / row["predicted_us"] - 1) for row in rows)
    models = ", ".join(sorted({row["model"] for row in rows}))
    return leaf(round(error, 1), f"{len(rows)} points of the half that judges, by others on a B200 and an RTX 5090, by the model of {models} "
                                 "(bench/results/time-blackwell.md)", "measured")


def main():
    path = FOLDER / "b200.json"
    b200 = json.loads(path.read_text())
    b200["mma"] = b200_mma()
    b200["sm"]["ctas"] = leaf(32, "CUDA C++ Programming Guide")
    b200["sm"]["shared_bytes_of_cta"] = leaf(1024, "NVIDIA Blackwell tuning guide: CUDA reserves 1 KB for each CTA")
    # The two numbers that the correcting half of bench/time/blackwell.py decided: both are published, others are too.
    b200["sm"]["clock_loaded_mhz"] = leaf(1580, "flashinfer pr 2899: back to back at 1,000 W; 1,710 at a cap of 750 W in "
                                                "another kernel (triton(meta) pr 2799)")
    b200["l2"]["bytes_per_clock"] = leaf(6768, f"{QR}: 13.3 TB/s on the wire; a set of 8 to 128 MB gives 17 TB/s of "
                                               "plain loads", "published")
    h200 = "as on the H200: stores of warp.cu, H200, 1965 MHz"
    b200["l1"] = {
        "bytes": leaf(262144, "NVIDIA Blackwell tuning guide: 256 KB, unified with shared memory"),
        "latency": leaf(40, MD),
        "sets": leaf(4, "NVIDIA's developer forum, 312884, of Volta and later: the tag stage resolves 4 sets a cycle", "inferred"),
        "store_line": leaf(1.0, h200, "inferred"), "store_part": leaf(2.0, h200, "inferred"),
    }
    rows = "as on the H200: bench/time/micro/rows.cu: a line of 128 bytes a cycle, which is what a multiprocessor gets here"
    b200["tma"]["row"] = leaf(1.0, rows, "inferred")
    b200["tma"]["split_row"] = {str(size): leaf(more, "as on the H200: bench/time/micro/rows.cu", "inferred")
                                for size, more in ((32, 1.294), (64, 1.498), (128, 1.498))}
    b200["sync"]["cluster_bytes_per_clock"] = leaf(16.3, "as on an H800: arXiv 2402.13499: 3.27 TB/s of 114 multiprocessors "
                                                         "in clusters of 2, 1,755 MHz", "inferred")
    hopper = json.loads((FOLDER / "h200.json").read_text())["classes"]
    for name in ("div_rn", "sqrt_rn", "rcp_rn", "div_s32", "div_u32", "rem_u32", "movmatrix"):
        b200["classes"][name] = {key: leaf(value["value"], f"as on the H200: {value['source']}", "inferred") if key != "pipe" else value
                                 for key, value in hopper[name].items()}
    l2 = "users of a PRO 6000: about 8.7 TB/s"
    rtx5090 = sm120(b200, "RTX5090", "sm_120a", {
        "sm/count": leaf(170, "NVIDIA data sheet"),
        "sm/clock_mhz": leaf(2880, "ninfer pr 160: 2.87 to 2.91 GHz seen inside kernels"),
        "sm/clock_loaded_mhz": leaf(2407, "NVIDIA data sheet: boost clock, that of the rated 209.5 TFLOPS", "published"),
        "l2/bytes": leaf(100663296, "NVIDIA data sheet: 96 MiB"), "l2/latency": leaf(360, MD),
        "l2/bytes_per_clock": leaf(2731, f"{l2} of 188 multiprocessors, by the number of multiprocessors, at 2.88 GHz",
                                   "inferred"),
        "l2/bytes_per_clock_of_one_sm": leaf(64, "as on the H200: a multiprocessor's port", "inferred"),
        "hbm/latency": leaf(936, MD), "hbm/terabytes_per_second": leaf(1.66, "1.792 TB/s by the pins; the part that "
                                                                       "reads reach on the B200 (7.2 of 7.67)", "inferred"),
    }, 0.5)
    pro6000 = sm120(b200, "PRO6000", "sm_120a", {
        "sm/count": leaf(188, "NVIDIA data sheet"),
        "sm/clock_mhz": leaf(2617, "NVIDIA data sheet: boost clock, that of the rated 503.8 TFLOPS"),
        "sm/clock_loaded_mhz": leaf(2617, "not known: at 600 W it is lower", "inferred"),
        "l2/bytes": leaf(134217728, "NVIDIA data sheet: 128 MiB"), "l2/latency": leaf(352, MD),
        "l2/bytes_per_clock": leaf(3324, f"{l2} at 2.617 GHz", "published"),
        "l2/bytes_per_clock_of_one_sm": leaf(64, "as on the H200: a multiprocessor's port", "inferred"),
        "hbm/latency": leaf(864, MD), "hbm/terabytes_per_second": leaf(1.66, "1.792 TB/s by the pins; the part that "
                                                                       "reads reach on the B200 (7.2 of 7.67)", "inferred"),
    }, 1)
    gb10 = sm120(b200, "GB10", "sm_121a", {
        "sm/count": leaf(48, "NVIDIA data sheet"),
        "sm/clock_mhz": leaf(2418, "device properties as published"),
        "sm/clock_loaded_mhz": leaf(2418, "not known", "inferred"),
        "l2/bytes": leaf(25165824, "device properties as published: 24 MiB"),
        "l2/latency": leaf(352, f"as on the PRO 6000: {MD}", "inferred"),
        "l2/bytes_per_clock": leaf(890, f"{l2}, by the number of multiprocessors", "inferred"),
        "l2/bytes_per_clock_of_one_sm": leaf(64, "as on the H200: a multiprocessor's port", "inferred"),
        "hbm/latency": leaf(864, f"as on the PRO 6000: {MD}", "inferred"),
        "hbm/terabytes_per_second": leaf(0.256, "273 GB/s by the pins; the part that reads reach on the B200 "
                                                "(7.2 of 7.67)", "inferred"),
    }, 1)
    for gpu in (b200, rtx5090):
        gpu["judged"] = {"median_error_percent": judged()}
    for form in gb10["mma"].values():
        form["flop_per_clock"]["source"] = "as on the PRO 6000: " + form["flop_per_clock"]["source"]
        form["flop_per_clock"]["certainty"] = "inferred"
    for name, gpu in [("b200", b200), ("b300", b300(b200)), ("rtx5090", rtx5090), ("pro6000", pro6000), ("gb10", gb10)]:
        (FOLDER / f"{name}.json").write_text(json.dumps(gpu, indent=1) + "\n")


main()
