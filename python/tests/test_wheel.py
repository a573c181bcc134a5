"""The wheel as others get it: with a tag that says where it runs, complete, used without a compiler.

`make wheel` does the same, with a wheel and an environment of its own."""

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

WHEEL = os.environ.get("CONVGRAD_WHEEL", "")


@pytest.mark.skipif(not WHEEL, reason="run by python/tests/run.sh, which builds the wheel")
def test_the_wheel_can_be_handed_on(tmp_path):
    tools = os.path.dirname(sys.executable)
    environment = {**os.environ, "PATH": tools + os.pathsep + os.environ["PATH"]}
    command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(tmp_path), WHEEL]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    (repaired,) = tmp_path.glob("*.whl")
    assert "manylinux_2_" in repaired.name and "linux_x86_64" not in repaired.name.split("-")

    place = tmp_path / "installed"
    with zipfile.ZipFile(repaired) as archive:
        names = archive.namelist()
        archive.extractall(place)
    package = [n.removeprefix("convgrad/") for n in names if n.startswith("convgrad/")]
    assert {"py.typed", "_core.pyi", "__init__.py", "jax/__init__.py"} <= set(package)
    assert any(n.endswith("licenses/LICENSE") for n in names)
    # Everything is in the one extension: nothing had to be brought along.
    assert not [n for n in names if ".libs/" in n], names

    smoke = pathlib.Path(__file__).with_name("smoke.py")
    command = [sys.executable, str(smoke), str(place)]
    for isa in ("portable", "avx2", "amx_bf16"):
        bare = {"PATH": str(tmp_path), "PYTHONPATH": str(place), "CONVGRAD_MAX_ISA": isa}
        done = subprocess.run(command, env=bare, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "exact" in done.stdout
