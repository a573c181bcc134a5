"""Times of work on a GPU, by PyTorch's events."""

import statistics

import torch


def median_ms(work, repeats=15):
    """The median of so many runs, after four that do not count."""
    for _ in range(4):
        work()
    times = []
    for _ in range(repeats):
        first, last = torch.cuda.Event(True), torch.cuda.Event(True)
        first.record()
        work()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last))
    return statistics.median_high(times)
