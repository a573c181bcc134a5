"""PyTorch's part of the tests: `make test-torch`."""

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
