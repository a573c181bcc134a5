"""The operators' kernels in C++, built once for each version of PyTorch.

PyTorch's stable interface has no autograd, so they are compiled against the PyTorch that is installed:
by `build()`, or in the background when a process first finds them missing; until then the kernels in
Python do the same, slower by tens of microseconds a call.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import torch

from ... import _core

_HERE = pathlib.Path(__file__).resolve().parent
_SOURCES = sorted([*_HERE.glob("*.hpp"), *_HERE.glob("*.cpp")])
_MODULE = "convgrad_torch_ops"


def path() -> pathlib.Path:
    """Where the module for this Python, PyTorch and package is, or will be."""
    text = hashlib.sha256()
    for source in _SOURCES:
        text.update(source.read_bytes())
    for fact in (_core.__version__, torch.__version__, torch.version.git_version):
        text.update(str(fact).encode())
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = f"torch-{torch.__version__}-{sys.implementation.cache_tag}-{text.hexdigest()[:16]}"
    return pathlib.Path(cache) / "convgrad" / folder / f"{_MODULE}.so"


def load() -> Any:
    """The module, or None where it is not built or cannot be."""
    built = path()
    if not built.exists():
        _build_in_background(built)
        return None
    loader = importlib.machinery.ExtensionFileLoader(_MODULE, str(built))
    spec = importlib.util.spec_from_file_location(_MODULE, str(built), loader=loader)
    try:
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        loader.exec_module(module)
    except ImportError:
        return None
    return module


def _command(built: pathlib.Path) -> list[str]:
    return [sys.executable, str(_HERE / "_build.py"), str(_HERE / "ops.cpp"), str(built)]


def _build_in_background(built: pathlib.Path) -> None:
    # A compiler that failed once is not tried again but by build().
    if shutil.which(os.environ.get("CXX", "c++")) is None or (built.parent / "failed.txt").exists():
        return
    try:
        subprocess.Popen(
            _command(built),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        pass  # the kernels in Python serve as well


def build() -> pathlib.Path:
    """Compiles the module unless it is there, and returns its path; the next process loads it."""
    built = path()
    if not built.exists():
        done = subprocess.run([*_command(built), "--wait"], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"convgrad: building PyTorch's operators failed:\n{done.stderr}")
    return built
