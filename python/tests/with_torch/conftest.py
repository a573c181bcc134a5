"""PyTorch's part of the tests: `make test-torch`."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
# In a process of its own: one that has imported the package keeps the operators that it found.
subprocess.run(
    [sys.executable, "-c", "import convgrad.torch; convgrad.torch.build_operators()"], check=True
)
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def why_no_gpu():
    from convgrad.torch import _functions, native_operators

    if not torch.cuda.is_available():
        return "there is no GPU that PyTorch sees"
    if not native_operators:
        return "the operators in C++ have not been built"
    if not _functions.has_engine(torch.device("cuda:0")):
        return "the package has no CUDA engine for this GPU"
    return None


@pytest.fixture
def gpu():
    """Skips a test where the package has no GPU; with CONVGRAD_REQUIRE_GPU set fails it."""
    why = why_no_gpu()
    if why is not None:
        (pytest.fail if os.environ.get("CONVGRAD_REQUIRE_GPU") else pytest.skip)(why)
