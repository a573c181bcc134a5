"""The fuzzer's target on its corpus and on random bytes, the same in every run."""

import random
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests" / "fuzz" / "python"))
from target import run_one  # noqa: E402

CORPUS = sorted((ROOT / "tests" / "fuzz" / "corpus" / "python").iterdir())


def test_corpus():
    assert CORPUS
    for file in CORPUS:
        run_one(file.read_bytes())


@pytest.mark.parametrize("seed", range(8))
def test_random_bytes(seed):
    source = random.Random(seed)
    for _ in range(500):
        run_one(source.randbytes(source.randrange(20, 120)))
