"""_build.py SOURCE TARGET [--wait]: compiles PyTorch's operators, a program of its own.

One at a time: whoever finds another at work leaves, or waits for it. The target appears complete or
not at all; what the compiler said when it failed is kept beside it.
"""

import fcntl
import os
import pathlib
import subprocess
import sys
import sysconfig


def flags() -> tuple[list[str], list[str]]:
    """For compiling and for linking against the PyTorch of this Python."""
    import torch
    from torch.utils import cpp_extension

    includes = [*cpp_extension.include_paths(), sysconfig.get_path("include")]
    compiling = ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w"]
    compiling += [f"-isystem{folder}" for folder in includes]
    compiling += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    folder = pathlib.Path(torch.__file__).parent / "lib"
    return compiling, [f"-L{folder}", "-ltorch_cpu", "-ltorch_python", "-lc10"]


def main() -> int:
    source, target, wait = sys.argv[1], pathlib.Path(sys.argv[2]), "--wait" in sys.argv
    if not wait:
        os.nice(10)
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return 0
        if target.exists():
            return 0
        made = target.with_suffix(f".{os.getpid()}")
        compiling, linking = flags()
        compiler = os.environ.get("CXX", "c++")
        command = [compiler, *compiling, source, "-o", str(made), *linking]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode == 0:
            os.replace(made, target)
        else:
            (target.parent / "failed.txt").write_text(done.stderr)
            sys.stderr.write(done.stderr)
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())
