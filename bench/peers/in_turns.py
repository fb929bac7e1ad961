"""Times of functions that take turns on the GPU: what all tables beside other libraries are made of."""

import statistics

import torch


def timed(function, flush):
    """The events around one launch, `flush` (more than the L2 holds) overwritten before it."""
    flush.zero_()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    function()
    end.record()
    return start, end


def medians_us(functions, repeat, flush):
    """Microseconds of each function, launched in turn. Where launches queue, every second one reads longer (0.4 us in
    7.8, whatever the kernel): a round has an odd number of them, so that each function has both halves in turn, and
    what counts is the mean of the two medians."""
    in_turn = functions + functions[:1] * (1 - len(functions) % 2)
    rounds = [[timed(run, flush) for run in in_turn] for _ in range(2 * ((repeat + 1) // 2))]
    torch.cuda.synchronize()
    half = lambda i, first: statistics.median(r[i][0].elapsed_time(r[i][1]) for r in rounds[first::2])
    return [1000 * (half(i, 0) + half(i, 1)) / 2 for i in range(len(functions))]
