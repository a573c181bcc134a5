"""Settings of all tests."""

import os
import pathlib
import sys

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("JAX_PLATFORMS", "cpu")

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The problems and JAX's answers that the C++ tests use too.
sys.path.insert(0, str(ROOT / "tests" / "oracle"))

# Random problems are the same in every run; compiling them in JAX takes what it takes.
settings.register_profile(
    "convgrad",
    max_examples=15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("convgrad")


@pytest.fixture
def root():
    return ROOT
