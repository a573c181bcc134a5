"""The type hints, as a type checker and a reader of help() see them."""

import ast
import importlib.util
import inspect
import pathlib
import re
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


def members(nodes):
    """Public names that a list of statements defines, with what classes among them define."""
    found = {}
    for node in nodes:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found[node.name] = members(node.body) if isinstance(node, ast.ClassDef) else {}
        elif isinstance(node, ast.AnnAssign):
            found[node.target.id] = {}
    return {name: inner for name, inner in found.items() if not name.startswith("_")}


def test_stubs_name_what_the_extension_has_and_nothing_else():
    core = sys.modules["convgrad._core"]
    path = pathlib.Path(convgrad.__file__).parent / "_core.pyi"
    stub = members(ast.parse(path.read_text()).body)
    public = lambda thing: {name for name in vars(thing) if not name.startswith("_")}
    assert set(stub) == public(core)
    for name, inner in stub.items():
        thing = getattr(core, name)
        if isinstance(thing, type):
            assert set(inner) == public(thing), name


def test_signatures_are_those_of_the_op_table(root):
    """As `scripts/python_signatures.py` writes them."""
    path = root / "scripts" / "python_signatures.py"
    spec = importlib.util.spec_from_file_location("python_signatures", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for file, text in script.files().items():
        assert file.read_text() == text, f"run {path}"


def test_the_op_table_is_what_the_library_checks():
    """A keyword of a function is an attribute of its op, and the other way round."""
    for schema in convgrad._core.schemas():
        if schema["epilogue"]:
            continue  # in graphs only
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", schema["name"]).lower()
        parameters = inspect.signature(getattr(convgrad, name)).parameters
        attributes = {a["name"] for a in schema["attributes"]}
        options = {"relu", "add", "dtype", "diff_bias", "out", "engine"}
        inputs = {i["name"] for i in schema["inputs"]}
        assert set(parameters) - options == attributes | inputs


def test_every_function_is_documented():
    for name in convgrad.__all__:
        thing = getattr(convgrad, name)
        if inspect.isfunction(thing):
            assert thing.__doc__, name
            assert inspect.signature(thing).parameters
