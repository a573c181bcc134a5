"""Times of work on a GPU, by PyTorch's events."""

import statistics
import time

import torch


def device_ms(work, queuing=None):
    """What the device takes for one run. With `queuing`, the seconds that queuing it takes the host, the device is kept
    busy until all is queued, so that it never waits for the host in between."""
    first, last = torch.cuda.Event(True), torch.cuda.Event(True)
    if queuing is not None:
        torch.cuda._sleep(int((2 * queuing + 1e-4) * 2e9))  # cycles of the fastest clocks there are
    first.record()
    work()
    last.record()
    last.synchronize()
    return first.elapsed_time(last)


def warm_up(work):
    """Runs that do not count; the seconds that queuing one takes the host."""
    for _ in range(4):
        work()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    queuing = time.perf_counter() - begin
    torch.cuda.synchronize()
    return queuing


def median_ms(work, repeats=15, device_alone=False):
    """The median of so many runs, after some that do not count."""
    queuing = warm_up(work)
    return statistics.median_high(device_ms(work, queuing if device_alone else None) for _ in range(repeats))


def medians_in_turns(calls, seconds, rounds):
    """The median of each, of the device alone, in milliseconds: in every round each gets some runs in its turn. About
    `seconds` altogether, at least three runs a round."""
    queuing = [warm_up(call) for call in calls]
    times = [[] for _ in calls]
    for _ in range(rounds):
        for call, host, mine in zip(calls, queuing, times):
            end = time.perf_counter() + seconds / rounds / len(calls)
            some = [device_ms(call, host) for _ in range(3)]
            while time.perf_counter() < end:
                some.append(device_ms(call, host))
            mine += some
    return [statistics.median_high(mine) for mine in times]
