"""One team of threads per process: work runs on PyTorch's threads, never on more than it was told.

Each case is a process of its own, since threads, once started, stay.
"""

import glob
import os
import subprocess
import sys
import textwrap

import pytest

# What the programs below share: a model, and which threads of the process have computed.
PRELUDE = """
import glob, os, threading
import torch
import convgrad, convgrad.torch

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(8, 64, 3, padding=1), torch.nn.BatchNorm2d(64), torch.nn.ReLU(),
        torch.nn.Conv2d(64, 64, 3, padding=1, groups=2), torch.nn.ReLU(),
        torch.nn.ConvTranspose2d(64, 8, 2, stride=2))

def step(net):
    net.zero_grad()
    net(torch.ones(4, 8, 32, 32)).square().mean().backward()
    return net[0].weight.grad.clone()

def nanoseconds():
    # Processor time of each thread.
    return {path.split("/")[4]: int(open(path).read().split()[0])
            for path in glob.glob("/proc/self/task/*/schedstat")}

def computing(work):
    # The threads that computed for more than a millisecond while `work` ran.
    before = nanoseconds()
    result = work()
    after = nanoseconds()
    return result, [t for t in after if after[t] - before.get(t, 0) > 1_000_000]

def names():
    return {open(path).read().strip() for path in glob.glob("/proc/self/task/*/comm")}

def train(net, steps=6):
    return [step(net) for _ in range(steps)][-1]

ours = convgrad.torch.accelerate(model())
"""


def run(program, **environment):
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "CONVGRAD_", "GOMP_"))
    }
    ended = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(program)],
        env={**clean, **environment}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("count", [1, 2, 8])
def test_never_more_threads_than_asked_for(count):
    run(f"""
        torch.set_num_threads({count})
        train(model()), train(ours)          # all threads exist
        before = len(nanoseconds())
        gradient, threads = computing(lambda: train(ours))
        assert len(threads) <= {count}, threads
        assert len(nanoseconds()) == before
        assert "convgrad" not in names()
        assert convgrad.default_engine().threads == {count}
        """)


def test_runs_on_several_of_pytorchs_threads():
    run("""
        torch.set_num_threads(2)
        x, w = torch.ones(8, 64, 56, 56), torch.ones(64, 64, 3, 3)
        _, theirs = computing(lambda: [torch.nn.functional.conv2d(x, w) for _ in range(20)])
        _, ours = computing(lambda: [convgrad.torch.conv2d(x, w) for _ in range(20)])
        assert len(theirs) == 2 and set(ours) == set(theirs), (ours, theirs)
        assert convgrad.Engine().shares_threads and convgrad.default_engine().shares_threads
        """)


def test_the_count_is_that_of_each_call():
    run("""
        expected = None
        for count in (1, 2, 3, 8, 1, 2):
            torch.set_num_threads(count)
            gradient, threads = computing(lambda: train(ours, 5))
            assert convgrad.default_engine().threads == count
            assert len(threads) <= count
            assert expected is None or torch.equal(gradient, expected)
            expected = gradient
        """)


def test_same_bits_as_on_own_threads():
    run("""
        torch.set_num_threads(2)
        x, w = torch.randn(4, 40, 40, 32), torch.randn(3, 3, 32, 48)
        own = convgrad.Engine(threads=3, own_threads=True)
        assert not own.shares_threads and own.threads == 3
        assert torch.equal(convgrad.convolution(x, w), convgrad.convolution(x, w, engine=own))
        """)


def test_engine_made_before_pytorch_was_imported():
    clean = (
        "import convgrad, sys\nfirst = convgrad.default_engine()\nassert not first.shares_threads\n"
    )
    program = clean + textwrap.dedent("""
        import torch, convgrad.torch
        torch.set_num_threads(2)
        assert first.shares_threads and first.threads == 2
        """)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_new_python_threads_know_the_count():
    run("""
        torch.set_num_threads(1)
        train(ours)
        seen = []
        def work():
            (_, threads), count = computing(lambda: train(ours, 5)), convgrad.default_engine().threads
            seen.append((count, len(threads)))
        def plain():     # without convgrad.torch in between
            x, w = torch.ones(4, 40, 40, 32), torch.ones(3, 3, 32, 48)
            _, threads = computing(lambda: [convgrad.convolution(x, w) for _ in range(20)])
            seen.append((1, len(threads)))
        for target in (work, plain):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
        assert len(seen) == 2 and all(count == 1 and n <= 1 for count, n in seen), seen
        """)


def test_python_threads_at_once():
    run("""
        torch.set_num_threads(2)
        expected, wrong = train(ours), []
        nets = [convgrad.torch.accelerate(model()) for _ in range(4)]
        def work(net):
            for _ in range(5):
                if not torch.equal(step(net), expected):
                    wrong.append(1)
        threads = [threading.Thread(target=work, args=(net,)) for net in nets]
        [t.start() for t in threads], [t.join() for t in threads]
        assert not wrong
        """)


# PyTorch's own ops wait for ever in such a child: results are compared by NumPy.
FORK = """
    def same(a, b):
        return (a.numpy() == b.numpy()).all()

    def in_child(work):
        child = os.fork()
        if child == 0:
            import signal
            signal.alarm(60)      # GNU's runtime waits for ever for threads that are gone
            try:
                work()
            except BaseException as failure:
                print(repr(failure), file=__import__("sys").stderr)
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def convolve():
    return """
    x, w = torch.ones(4, 16, 40, 40), torch.ones(16, 16, 3, 3)
    expected = convgrad.torch.conv2d(x, w)
    """


def test_fork_after_import():
    run(FORK + convolve() + """
    torch.set_num_threads(3)
    train(model()), train(ours)
    def work():
        assert convgrad.default_engine().threads == 3
        for _ in range(20):
            assert same(convgrad.torch.conv2d(x, w), expected)
        torch.set_num_threads(1)           # as data loaders do in their workers
        _, threads = computing(lambda: [convgrad.torch.conv2d(x, w) for _ in range(50)])
        assert len(threads) <= 1 and convgrad.default_engine().threads == 1
    in_child(work)
    in_child(lambda: in_child(work))
    assert same(convgrad.torch.conv2d(x, w), expected)
    """)  # fmt: skip


def test_fork_before_the_first_import():
    program = (
        "import os\n"
        + textwrap.dedent(FORK)
        + textwrap.dedent("""
        import torch
        torch.set_num_threads(3)
        x, w = torch.ones(4, 16, 40, 40), torch.ones(16, 16, 3, 3)
        expected = torch.nn.functional.conv2d(x, w)
        torch.ones(1_000_000).exp()            # PyTorch's team exists
        def work():
            import convgrad.torch
            assert same(convgrad.torch.conv2d(x, w), expected)
        in_child(work)
        """)
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def test_data_loader():
    run("""
        torch.set_num_threads(2)
        train(ours)
        w = torch.ones(16, 16, 3, 3)
        class images(torch.utils.data.Dataset):
            def __len__(self):
                return 6
            def __getitem__(self, i):
                return convgrad.torch.conv2d(torch.full((16, 40, 40), float(i)), w)
        loader = torch.utils.data.DataLoader(images(), num_workers=2)
        for i, batch in enumerate(loader):
            assert torch.equal(batch[0], images()[i])
        """)


def test_bound_threads():
    run(
        """
        assert torch.get_num_threads() == 2 and convgrad.default_engine().threads == 2
        expected, threads = computing(lambda: train(ours))
        assert len(threads) <= 2 and "convgrad" not in names()
        """,
        OMP_PROC_BIND="true",
        OMP_NUM_THREADS="2",
    )


def test_number_of_threads_from_the_environment():
    same = "assert convgrad.default_engine().threads == torch.get_num_threads()"
    run(same, OMP_NUM_THREADS="1")
    run(same, OMP_NUM_THREADS="2")
    run("assert convgrad.default_engine().threads == 1", CONVGRAD_NUM_THREADS="1")


@pytest.mark.parametrize("count", [2, 8])
def test_preloaded_llvm_runtime(count):
    found = glob.glob("/usr/lib/*/libomp.so.5") + glob.glob("/usr/lib/llvm-*/lib/libomp.so")
    if not found:
        pytest.skip("LLVM's OpenMP runtime is not installed")
    run(
        f"""
        assert "libomp" in open("/proc/self/maps").read()
        torch.set_num_threads({count})
        train(model()), train(ours)
        before = len(nanoseconds())
        gradient, threads = computing(lambda: train(ours))
        assert len(threads) <= {count} and len(nanoseconds()) == before
        assert convgrad.default_engine().shares_threads and "convgrad" not in names()
        """,
        LD_PRELOAD=found[0],
    )
