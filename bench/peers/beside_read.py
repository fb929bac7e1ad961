"""What tables of products beside a plain read of what they touch have in common: flags, head and rows of the table, the kernels that pins
name, compiled side by side, how many copies a graph walks over, the read, means."""

import argparse
import concurrent.futures
import ctypes
import math
import os
import pathlib
import subprocess
import sys

import torch

from fmha_decode import ROTATED_BYTES, stream
from named_launch import Kernel


def parser_of(doc, nk):
    """The flags of every such program; nk: the shapes that it takes by itself."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--nk", default=nk)
    parser.add_argument("--pins", default="", help="several sets, separated by ;")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--output")
    return parser


class Table:
    """A Markdown table that is printed row by row, below the GPU and the command that made it."""

    def __init__(self, arguments, heads):
        gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,clocks.max.sm,clocks.max.mem,driver_version", "--format=csv,noheader"],
                             capture_output=True, text=True, check=False).stdout.strip()
        self.output = arguments.output
        self.lines = [f"{gpu}, PyTorch {torch.__version__}, commit {arguments.commit}", "", f"Command: `python3 {' '.join(sys.argv)}`", "",
                      f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
        print("\n".join(self.lines), flush=True)

    def line(self, text):
        self.lines.append(text)
        print(text, flush=True)

    def row(self, *cells):
        self.line(f"| {' | '.join(cells)} |")

    def save(self):
        if self.output:
            pathlib.Path(self.output).write_text("\n".join(self.lines) + "\n", encoding="utf-8")


def copies_of(bytes_, most=1 << 30):
    """So many that they are together more than four times the L2."""
    return min(max(1, -(-ROTATED_BYTES // bytes_)), most)


def kernels(library, op, facts, pins):
    """Those that sets of pins name; what is refused is said."""
    for pin, text in zip(pins.split(";"), with_pins(facts, pins)):
        try:
            yield Kernel(library, op, text)
        except RuntimeError as error:
            print(f"{pin}: {str(error)[:160]}", flush=True)


def with_pins(facts, pins):
    return [facts + ("," + pin if pin else "") for pin in pins.split(";")]


def compile_all(library, of_kernels):
    """Has the library compile (operator, facts), side by side, before anything is timed. What is refused is said when it is asked for."""
    def compiled(one):
        torch.cuda.set_device(0)
        torch.cuda.current_stream().synchronize()  # a context for this thread
        try:
            Kernel(library, *one)
        except RuntimeError:
            pass

    torch.cuda.init()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compiled, dict.fromkeys(of_kernels)))


def plain_reads(reader, tensors):
    """A function for each tensor that reads it once."""

    def read(tensor):
        reader.tessera_bench_plain_read(stream(), ctypes.c_void_p(tensor.data_ptr()), ctypes.c_longlong(tensor.numel()))
    return [lambda tensor=tensor: read(tensor) for tensor in tensors]


def seconds_of(graph, rounds):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(rounds):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000


def settle(graphs, is_long, seconds=1.5):
    """Lets the GPU come to rest at its power limit where products are long: it takes a second from the first load on, in which the clock falls
    further than it has to, and who is measured then, alone or in turns, looks slower. Graphs that there are take turns."""
    there = [graph[0] for graph in graphs if graph is not None]
    if is_long and there:
        of_all = sum(seconds_of(graph, 1) for graph in there)
        for _ in range(max(1, round(seconds / of_all))):
            for graph in there:
                graph.replay()


def alone_us(graph, launches, seconds=0.35):
    """Microseconds of a launch where one graph runs alone for that long, after 0.1 s of the same: at the power limit the clock is its own.
    In turns with another kernel's the clock follows both, since it takes longer than a graph to settle."""
    of_graph = seconds_of(graph, 1)
    for _ in range(max(1, round(0.1 / of_graph))):
        graph.replay()
    rounds = max(1, round(seconds / of_graph))
    return 1e6 * seconds_of(graph, rounds) / rounds / launches


def alone(graphs, is_long):
    """Of each graph, alone, in the mean of two passes, there and back. NaN where a launch is too short for the power limit, or there is no
    graph."""
    there = [i for i, graph in enumerate(graphs) if is_long and graph is not None]
    passes = [{i: alone_us(*graphs[i]) for i in order} for order in (there, there[::-1])]
    return [sum(one[i] for one in passes) / len(passes) if i in there else math.nan for i in range(len(graphs))]


def wrong_by(found, exact):
    return ((found.double() - exact).norm() / exact.norm()).item()


def geometric_mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
