"""Writes the Python functions of the ops from the op table: their arguments, types and defaults.

    python scripts/python_signatures.py    # with the package installed; rewrites what changed

The functions are files of the package, as readers, editors and type checkers want them; a test keeps
them in step with the table. Words about the functions are here, facts about the ops are not.
"""

from __future__ import annotations

import pathlib
import re
import typing
from typing import Any

from convgrad import _core, _types

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "python" / "convgrad"
HEAD = "# Written by scripts/python_signatures.py from the op table: change that, or the table.\n"
# BiasAdd, Add and ReLU compute in graphs only.
SCHEMAS = {s["name"]: s for s in _core.schemas() if not s["epilogue"]}

DOCS = {
    "Convolution": (
        "dst of a convolution: max(0, conv + bias + add) with `relu`, else conv + bias + add."
    ),
    "ConvolutionBackwardData": """\
diff_src of a convolution. `dst_shape` is its shape; without it and `out` the smallest that
    fits, plus `output_padding`. `accumulate` adds into `out`.
    """,
    "ConvolutionBackwardWeights": """\
diff_weights of a convolution, of shape `weights_shape` (or that of `out`).

    `dtype="f32"` asks for f32 gradients of 16-bit data. `diff_bias=True`, or an array to write to,
    asks for the bias gradient too; then the result is (diff_weights, diff_bias).
    """,
    "ConvTranspose": "dst of a transposed convolution, with `relu` and `add` as for `convolution`.",
    "ConvTransposeBackwardData": "diff_src of a transposed convolution. `accumulate` adds into `out`.",
    "ConvTransposeBackwardWeights": (
        "diff_weights of a transposed convolution; see `convolution_backward_weights`."
    ),
    "BiasAddBackward": """\
diff_bias alone: the sum of `diff_dst` over batch and space. `dtype="f32"` asks for f32
    sums of 16-bit data; `accumulate` adds into `out`.
    """,
    "both Convolution": """\
Both gradients of a convolution, and the bias gradient if `diff_bias`.

    `out` may give (diff_src, diff_weights) or (diff_src, diff_weights, diff_bias) to write to; None
    in it means: a new one. `dtype` is that of diff_weights and diff_bias.
    """,
    "both ConvTranspose": (
        "Both gradients of a transposed convolution; see `convolution_backward`."
    ),
}


def function_name(op: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", op).lower()


def alias(choices: tuple[str, ...]) -> str:
    """The name in _types of the strings that an attribute may be."""
    for name, value in vars(_types).items():
        if typing.get_origin(value) is typing.Literal and typing.get_args(value) == choices:
            return name
    raise SystemExit(f"convgrad/_types.py has no name for Literal{list(choices)}")


def has_least_value(attribute: dict[str, Any]) -> bool:
    """Lists that an op must have, always or (pads) at times: functions take the least for them."""
    return attribute["required"] or attribute["default"].startswith("required")


def attribute_type(attribute: dict[str, Any]) -> str:
    if attribute["choices"]:
        return alias(attribute["choices"])
    if attribute["type"] == "s64 list":
        return "Ints" if has_least_value(attribute) else "Ints | None"
    return "bool" if attribute["maximum"] == 1 else "int"


def attribute_default(attribute: dict[str, Any]) -> str:
    if attribute["choices"]:
        return f'"{attribute["default"]}"'
    if attribute["type"] == "s64 list":
        return str(attribute["minimum"]) if has_least_value(attribute) else "None"
    return (
        str(bool(int(attribute["default"]))) if attribute["maximum"] == 1 else attribute["default"]
    )


def attributes(op: str) -> list[str]:
    """Parameters for the attributes that go into the tuple, in its order."""
    of = {a["name"]: a for a in SCHEMAS[op]["attributes"]}
    return [
        f"{name}: {attribute_type(of[name])} = {attribute_default(of[name])}"
        for name in _core.ATTRIBUTES
        if name in of
    ]


def attribute_tuple(op: str, indent: str) -> str:
    of = {a["name"] for a in SCHEMAS[op]["attributes"]}
    lines = "".join(f"{indent}    {name if name in of else None},\n" for name in _core.ATTRIBUTES)
    return f"(\n{lines}{indent})"


def arguments(op: str) -> list[str]:
    """Parameters for inputs."""
    made = []
    for i in SCHEMAS[op]["inputs"]:
        if i["shape_input"]:
            made.append(f"{i['name']}: Sequence[int] | None = None")
        else:
            made.append(f"{i['name']}: Array" + ("" if i["required"] else " | None = None"))
    return made


def is_gradient(op: str) -> bool:
    return SCHEMAS[op]["outputs"][0]["name"].startswith("diff_")


def options(op: str) -> list[str]:
    """What goes beyond the op's own attributes."""
    made = [] if is_gradient(op) else ["relu: bool = False", "add: Array | None = None"]
    if SCHEMAS[op]["outputs"][0]["f32_allowed"]:
        made.append("dtype: object = None")
    made += [f"{o['name']}: Any = False" for o in SCHEMAS[op]["outputs"] if not o["required"]]
    made.append("out: Array | None = None")
    by_name = {a["name"]: a for a in SCHEMAS[op]["attributes"]}
    if "accumulate" in by_name:
        made.append(f"accumulate: bool = {attribute_default(by_name['accumulate'])}")
    return [*made, "engine: _core.Engine | None = None"]


def header(name: str, positional: list[str], keywords: list[str], result: str) -> str:
    lines = [*positional, "*", *keywords]
    return f"def {name}(\n" + "".join(f"    {line},\n" for line in lines) + f") -> {result}:"


def overloads(name: str, positional: list[str], keywords: list[str]) -> str:
    """For a function whose result depends on `diff_bias`."""
    elided = lambda lines: [re.sub(r" = .*", " = ...", line) for line in lines]
    text = ""
    for kind, result in (
        ("Literal[False] = ...", "Array"),
        ("Literal[True] | Array", "tuple[Array, Array]"),
    ):
        chosen = [
            f"diff_bias: {kind}" if k.startswith("diff_bias") else k for k in elided(keywords)
        ]
        text += f"@overload\n{header(name, elided(positional), chosen, result)} ...\n"
    return text


def single(op: str) -> str:
    """The function of one op."""
    name, schema = function_name(op), SCHEMAS[op]
    positional, keywords = arguments(op), [*attributes(op), *options(op)]
    names = [i["name"] for i in schema["inputs"] if not i["shape_input"]]
    shape = next((i["name"] for i in schema["inputs"] if i["shape_input"]), None)
    has = lambda word: any(k.startswith(f"{word}:") for k in keywords)
    text, result, ignore = "", "Array", "  # type: ignore[no-any-return]"
    if has("diff_bias"):
        text, result, ignore = overloads(name, positional, keywords), "Any", ""
        positional = [re.sub(r": Array\b", ": Any", p) for p in positional]
        keywords = [k.replace("out: Array | None", "out: Any") for k in keywords]
    inputs = [*names, *["None"] * (3 - len(names)), "add" if has("add") else "None"]
    passed = [
        str(schema["kind"]) + f",  # {op}",
        f"({', '.join(inputs)}),",
        attribute_tuple(op, " " * 8) + ",",
        f"{shape},",
        "out,",
        "diff_bias," if has("diff_bias") else "None,",
        "accumulate," if has("accumulate") else "False,",
        "relu," if has("relu") else "False,",
        "dtype," if has("dtype") else "None,",
        "engine,",
    ]
    body = "".join(f"        {line}\n" for line in passed)
    text += header(name, positional, keywords, result)
    return f'{text}\n    """{DOCS[op]}"""\n    return _core.run({ignore}\n{body}    )\n'


def both(op: str) -> str:
    """The function for both gradients of a layer."""
    keywords = [
        *attributes(op),
        "dtype: object = None",
        "diff_bias: bool = False",
        "out: Sequence[Any] | None = None",
        "accumulate: bool = False",
        "engine: _core.Engine | None = None",
    ]
    positional = ["src: Array", "diff_dst: Array", "weights: Array"]
    text = header(f"{function_name(op)}_backward", positional, keywords, "Gradients")
    return f'''{text}
    """{DOCS["both " + op]}"""
    return Gradients(
        *_core.run_both(
            {SCHEMAS[op]["kind"]},  # {op}
            (src, diff_dst, weights),
            {attribute_tuple(op, " " * 12)},
            gradient_outputs(out, diff_bias),
            accumulate,
            dtype,
            engine,
        )
    )
'''


def functions() -> str:
    parts = [single(op) for op in SCHEMAS] + [both("Convolution"), both("ConvTranspose")]
    return (
        HEAD
        + '''"""One function per op.

Arrays are NumPy's (bf16 through ml_dtypes) or anything with `__dlpack__`; results are of the kind of
the first argument. Nothing is copied, except inputs whose strides are negative, zero or not whole
elements. Attributes have the specification's names; one integer stands for all spatial axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

from . import _core
from ._arguments import gradient_outputs
from ._types import (
    Array,
    AutoPad,
    DataFormat,
    Gradients,
    Ints,
    TransposedWeightsFormat,
    WeightsFormat,
)


'''
        + "\n\n".join(parts)
    )


def any_attributes() -> list[str]:
    """Attributes of any op, for functions that take the op's name."""
    found: dict[str, str] = {}
    for op in SCHEMAS:
        for line in attributes(op):
            found.setdefault(line.split(":")[0], line)
    found["weights_format"] = "weights_format: str | None = None"
    return [found[name] for name in _core.ATTRIBUTES]


# What compile and explain hand on alike.
OP_IN_CALL = """op,
        inputs,
        op_outputs(op, inputs, outputs, dst_shape, weights_shape, diff_bias),
        {tuple_in_call},
        accumulate,
        relu,
        add,
        diff_bias,
        engine,"""

COMPILE = '''"""Ops compiled for many calls, explained, or asked for shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _core
from ._arguments import op_outputs
from ._types import AutoPad, DataFormat, Ints


{compile}
    """An op made ready for many calls with arrays of the same shapes and strides.

    `op` is the name of a function of this package or of the specification. `inputs` are arrays that
    serve as patterns, or `LogicalTensor`s, in the op's order: src, weights, optionally bias, and with
    `add` one more. `outputs` may describe the outputs (for strides, or an f32 weights gradient of
    16-bit data). Call the result with arrays; `out=` gives memory to write to.
    """
    return _core.compile(
        {op_in_call}
    )


{explain}
    """What the library would do with an op: algorithm, instruction set, blocks, workspace, and why
    not otherwise. Arguments as for `compile`; nothing is computed.
    """
    return _core.explain(
        {op_in_call}
    )


{infer_shape}
    """The shape of an op's output for inputs 0 and 1 (where it has two) of these shapes."""
    return _core.infer_shape(
        op,
        first,
        second,
        {tuple_in_call},
    )


{resolve_pads}
    """The padding (begin, end) that `auto_pad` stands for.

    `data` is the shape from which it is taken: src, or diff_dst for the gradients of the transposed
    convolution, or diff_src for `convolution_backward_data`, whose diff_dst is `other`.
    """
    return _core.resolve_pads(
        op,
        data,
        other,
        kernel,
        {tuple_in_call},
    )
'''


def compile_functions() -> str:
    shapes = {i["name"]: None for s in SCHEMAS.values() for i in s["inputs"] if i["shape_input"]}
    keywords = [
        *any_attributes(),
        *[f"{name}: Sequence[int] | None = None" for name in shapes],
        *[f"{name}: bool = False" for name in ("accumulate", "relu", "add", "diff_bias")],
        "engine: _core.Engine | None = None",
    ]
    positional = ["op: str", "inputs: Sequence[Any]", "outputs: Sequence[Any] | None = None"]
    names = "".join(f"            {name},\n" for name in _core.ATTRIBUTES)
    tuple_in_call = f"(\n{names}        )"
    return HEAD + COMPILE.format(
        compile=header("compile", positional, keywords, "_core.CompiledPartition"),
        explain=header("explain", positional, keywords, "_core.Explanation"),
        infer_shape=header(
            "infer_shape",
            ["op: str", "first: Sequence[int]", "second: Sequence[int] = ()"],
            any_attributes(),
            "tuple[int, ...]",
        ),
        resolve_pads=header(
            "resolve_pads",
            [
                "op: str",
                "data: Sequence[int] | None",
                "kernel: Sequence[int]",
                "other: Sequence[int] | None = None",
            ],
            any_attributes(),
            "tuple[tuple[int, ...], tuple[int, ...]]",
        ),
        tuple_in_call=tuple_in_call,
        op_in_call=OP_IN_CALL.format(tuple_in_call=tuple_in_call),
    )


def jax_function(op: str) -> str:
    name = function_name(op)
    positional = [a.replace("Array", "jax.Array") for a in arguments(op)]
    return f'''{header(name, positional, attributes(op), "jax.Array")}
    """`convgrad.{name}` as a differentiable function of JAX."""
    return run(
        "{name}",
        src,
        weights,
        bias,
        {attribute_tuple(op, " " * 8)},
    )
'''


def jax_functions() -> str:
    layers = [op for op in SCHEMAS if not is_gradient(op)]
    return (
        HEAD
        + '''"""The differentiable functions."""

from __future__ import annotations

import jax

from .._types import AutoPad, DataFormat, Ints, TransposedWeightsFormat, WeightsFormat
from ._calls import run


'''
        + "\n\n".join(jax_function(op) for op in layers)
    )


def files() -> dict[pathlib.Path, str]:
    """All files that are written here."""
    return {
        PACKAGE / "_functions.py": functions(),
        PACKAGE / "_compile.py": compile_functions(),
        PACKAGE / "jax" / "_functions.py": jax_functions(),
    }


if __name__ == "__main__":
    for path, text in files().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path}")
