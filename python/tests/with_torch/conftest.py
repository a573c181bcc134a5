"""PyTorch's part of the tests: `make test-torch`."""

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
