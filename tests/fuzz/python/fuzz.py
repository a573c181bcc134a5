"""The coverage-guided fuzzer of the Python package, native code included. Options: libFuzzer's."""

import sys

import atheris

with atheris.instrument_imports(include=["convgrad"]):
    import convgrad  # noqa: F401

from target import run_one

atheris.Setup(sys.argv, run_one)
atheris.Fuzz()
