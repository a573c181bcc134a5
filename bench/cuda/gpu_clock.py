"""Times of work on a GPU, by PyTorch's events."""

import statistics
import time

import torch


def median_ms(work, repeats=15, device_alone=False):
    """The median of so many runs, after four that do not count. `device_alone`: the device is kept busy
    until all is queued, so that it never waits for the host in between."""
    for _ in range(4):
        work()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    queuing = time.perf_counter() - begin
    times = []
    for _ in range(repeats):
        first, last = torch.cuda.Event(True), torch.cuda.Event(True)
        if device_alone:
            torch.cuda._sleep(int((2 * queuing + 1e-4) * 2e9))
        first.record()
        work()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last))
    return statistics.median_high(times)
