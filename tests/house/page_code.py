#!/usr/bin/env python3
"""The programs in the documents compile: page_code.py ROOT COMPILER INCLUDE_FOLDER...

A program is a block of C++ with a main function that includes this library's header.
"""

import re
import subprocess
import sys
from pathlib import Path

root, compiler, includes = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", "-"]
found = failed = 0
for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
    for block in re.findall(r"^```cpp\n(.*?)^```", path.read_text(encoding="utf-8"), re.S | re.M):
        if "#include <convgrad/" not in block or "int main(" not in block:
            continue
        found += 1
        command = [compiler, *(f"-I{folder}" for folder in includes), *flags]
        result = subprocess.run(command, input=block, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            failed += 1
            print(f"{path.relative_to(root)}: this program does not compile:\n{block}\n{result.stderr}")
print(f"{found} programs in documents, {failed} that do not compile")
sys.exit(1 if failed or not found else 0)
