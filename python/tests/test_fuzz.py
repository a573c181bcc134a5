"""The fuzzer's target on its corpus and on random bytes, the same in every run."""

import random
import sys
import tarfile

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests" / "fuzz" / "python"))
from target import run_one  # noqa: E402

CORPUS = ROOT / "tests" / "fuzz" / "corpus"


def test_corpus():
    with tarfile.open(CORPUS / "python.tar.gz") as archive:
        inputs = [archive.extractfile(member).read() for member in archive]
    assert len(inputs) > 100
    inputs += [find.read_bytes() for find in sorted((CORPUS / "python").iterdir())]
    for data in inputs:
        run_one(data)


@pytest.mark.parametrize("seed", range(8))
def test_random_bytes(seed):
    source = random.Random(seed)
    for _ in range(500):
        run_one(source.randbytes(source.randrange(20, 120)))
