"""Threads, the GIL and fork()."""

import multiprocessing
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import convgrad

RNG = np.random.default_rng(4)
SRC = RNG.standard_normal((2, 40, 40, 16)).astype(np.float32)
WEIGHTS = RNG.standard_normal((3, 3, 16, 32)).astype(np.float32)


def test_many_threads_at_once():
    expected = convgrad.convolution(SRC, WEIGHTS)
    results = []

    def work():
        for _ in range(20):
            results.append(np.array_equal(convgrad.convolution(SRC, WEIGHTS), expected))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 160 and all(results)


def test_other_threads_run_while_one_computes():
    """A thread that needs the interpreter's lock gets it while another one is inside a call.

    Python itself is told not to take the lock from anyone, so that the calls alone can have given it
    away. How long a call takes, and who is scheduled when, does not matter: calls are repeated until
    the other thread has run.
    """
    src = np.ones((4, 50, 50, 64), np.float32)
    weights = np.ones((3, 3, 64, 64), np.float32)
    engine = convgrad.Engine(threads=1)
    compiled = convgrad.compile("Convolution", [src, weights], engine=engine)
    out = compiled(src, weights)
    gate = threading.Lock()
    gate.acquire()
    ran, seen = [], []

    def wait():
        gate.acquire()
        ran.append(True)

    def work():
        # Where the process has real-time priority, the thread that waits would never be scheduled
        # beside this one on a single core.
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        gate.release()
        for _ in range(100_000):
            pass
        seen.append(bool(ran))
        calls = 0
        while not ran and calls < 3000:
            compiled(src, weights, out=out)
            calls += 1
        seen.append(bool(ran))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        threads = [threading.Thread(target=wait), threading.Thread(target=work)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert seen == [False, True]


# JAX, which other tests of this process have loaded, warns of every fork; we do not use it here.
@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_fork():
    engine = convgrad.Engine(threads=4)
    expected = convgrad.convolution(SRC, WEIGHTS, engine=engine)
    child = os.fork()
    if child == 0:
        same = np.array_equal(convgrad.convolution(SRC, WEIGHTS, engine=engine), expected)
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.array_equal(convgrad.convolution(SRC, WEIGHTS, engine=engine), expected)


def _total(seed):
    src = np.random.default_rng(seed).standard_normal(SRC.shape).astype(np.float32)
    return float(convgrad.convolution(src, WEIGHTS).sum())


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_workers_of_a_data_loader():
    with multiprocessing.get_context("fork").Pool(3) as pool:
        assert pool.map(_total, range(6)) == [_total(seed) for seed in range(6)]


def test_importing_imports_no_framework():
    """NumPy takes longer to import than all the rest, the others take seconds."""
    program = (
        "import sys, convgrad\n"
        "convgrad.infer_shape('convolution', (1, 8, 8, 3), (3, 3, 3, 4))\n"
        "found = {'numpy', 'ml_dtypes', 'torch', 'jax'} & set(sys.modules)\n"
        "assert not found, found\n"
        "import numpy as np\n"
        "ones = lambda *shape: np.ones(shape, np.float32)\n"
        "assert convgrad.convolution(ones(1, 5, 2), ones(1, 2, 3)).max() == 2\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_no_openmp():
    """Two OpenMP runtimes in one process hang or oversubscribe; ours brings none."""
    program = (
        "import convgrad, numpy as np\n"
        "convgrad.convolution(np.ones((1, 9, 8), np.float32), np.ones((3, 8, 8), np.float32))\n"
        "maps = open('/proc/self/maps').read()\n"
        "assert '_core' in maps and 'gomp' not in maps and 'iomp' not in maps\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
