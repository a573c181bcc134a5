"""Some problems of the hunt, which shares nothing with these tests (`make hunt-python` runs many)."""

import sys

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests" / "hunt"))
from hunt import trial  # noqa: E402


def test_hunt():
    for seed in range(1, 301):
        faults, *_ = trial(seed)
        assert not faults, (seed, faults)
