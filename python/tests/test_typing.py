"""The type hints, as a type checker and a reader of help() see them."""

import inspect
import pathlib
import subprocess
import sys

import convgrad

PROGRAM = """
import numpy as np
import numpy.typing as npt
import convgrad

src: npt.NDArray[np.float32] = np.ones((1, 8, 8, 3), np.float32)
weights: npt.NDArray[np.float32] = np.ones((3, 3, 3, 4), np.float32)
dst: npt.NDArray[np.float32] = convgrad.convolution(src, weights, strides=2, auto_pad="same_upper")
one: npt.NDArray[np.float32] = convgrad.convolution_backward_weights(src, dst, weights.shape)
pair: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] = (
    convgrad.convolution_backward_weights(src, dst, weights.shape, diff_bias=True)
)
compiled: convgrad.CompiledPartition = convgrad.compile("convolution", [src, weights])
shape: tuple[int, ...] = convgrad.explain("convolution", [src, weights]).output_shape
"""


def check(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", "/dev/null", *arguments],
        capture_output=True,
        text=True,
    )


def test_a_program(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    found = check("--strict", str(tmp_path / "program.py"))
    assert found.returncode == 0, found.stdout
    wrong = PROGRAM + "\nconvgrad.convolution(src, weights, auto_pad='same')\n"
    (tmp_path / "wrong.py").write_text(wrong)
    assert "auto_pad" in check("--strict", str(tmp_path / "wrong.py")).stdout


def test_the_package_itself(root):
    found = check("--config-file", str(root / "pyproject.toml"), str(root / "python" / "convgrad"))
    assert found.returncode == 0, found.stdout


def test_stubs_name_what_the_extension_has():
    stub = (pathlib.Path(convgrad.__file__).parent / "_core.pyi").read_text()
    core = sys.modules["convgrad._core"]
    for name in vars(core):
        if not name.startswith("_"):
            assert f"class {name}" in stub or f"def {name}(" in stub, name


def test_every_function_is_documented():
    for name in convgrad.__all__:
        thing = getattr(convgrad, name)
        if inspect.isfunction(thing):
            assert thing.__doc__, name
            assert inspect.signature(thing).parameters
