"""The API reference: pages made from the public headers, one for each.

A header begins with a comment that says what it is for. `///` comments stand before what they describe; what
follows without a blank line in between belongs to the same comment. Of classes the public part is shown, with
the comments of its members, up to what is there for the library itself.
"""

import re


class Entry:
    """A comment and the declarations that it describes."""

    def __init__(self, comment, code):
        self.comment, self.code = comment, code

    def names(self):
        found = []
        for declaration in declarations(self.code):
            name = name_of(declaration)
            if name and name not in found:
                found.append(name)
        return found


def declarations(lines):
    """Lines grouped into declarations: each ends where brackets are closed and a ';' or '}' stands."""
    group, depth, found = [], 0, []
    for line in lines:
        plain = re.sub(r"//.*", "", line)
        group.append(line)
        depth += sum(plain.count(c) for c in "({[") - sum(plain.count(c) for c in ")}]")
        if depth == 0 and plain.rstrip().endswith((";", "}")):
            found.append("\n".join(group))
            group = []
    return found + (["\n".join(group)] if group else [])


def name_of(declaration):
    text = re.sub(r"//.*", "", declaration).replace("CONVGRAD_API", "")
    text = re.sub(r"^template <[^>]*>\s*", "", text.strip())
    for pattern in (
        r"(?:class|struct|enum class|enum|namespace)\s+(\w+)",
        r"using (\w+)\s*=",
        r"#define (\w+)",
        r"^[^(]*?(\w+)(?:\[\])? =",
        r"(operator\W+?)\(",
        r"(\w+)\s*\(",
    ):
        match = re.search(pattern, text)
        if match:
            return match.group(1)
    return None


def split_header(text):
    """(introduction, entries) of a header."""
    lines = text.split("\n")
    intro = []
    while lines and lines[0].startswith("//"):
        intro.append(lines.pop(0)[2:].removeprefix(" "))
    entries, comment, code, depth, hidden = [], [], [], 0, False

    def close():
        nonlocal comment, code
        if code and not re.match(r"(class|struct) \w+;|\}", code[0].strip()):
            entries.append(Entry(comment, code))
        comment, code = [], []

    for line in lines:
        plain = re.sub(r"//.*", "", line)
        opens = sum(plain.count(c) for c in "({[") - sum(plain.count(c) for c in ")}]")
        outer = depth == 0
        if re.match(r"namespace convgrad(::\w+)? \{|inline namespace CONVGRAD_ABI \{|\}  // namespace", line):
            close()
            continue
        if outer and re.match(r"#(pragma|include|if|endif|undef)", line):
            close()
            continue
        if outer and re.match(r"namespace \w+ \{", line):  # names that the public ones only mention
            close()
            hidden, depth = True, depth + opens
            continue
        depth += opens
        if hidden:
            hidden = depth > 0
        elif outer and not line.strip():
            close()
        elif outer and line.startswith("///"):
            if code:
                close()
            comment.append(line[3:].removeprefix(" "))
        elif not (outer and line.startswith("//")):
            code.append(line)
    close()
    return intro, joined(entries)


def joined(entries):
    """Overloads one after the other become one entry, whose comments stand in its code."""
    found = []
    for entry in entries:
        if found and entry.names() == found[-1].names():
            last = found.pop()
            lines = [f"/// {line}".rstrip() for line in entry.comment] + entry.code
            entry = Entry([], [f"/// {line}".rstrip() for line in last.comment] + last.code + lines)
        found.append(entry)
    return found


def public_part(lines):
    """A class without what is private or there for the library itself."""
    kept, skipped = [], False
    for line in lines:
        if re.match(r"(private|protected):", line):
            skipped = True
        elif re.match(r"public:", line):
            skipped = False
        elif re.match(r"\};", line):
            while kept and not kept[-1].strip():
                kept.pop()
            kept.append(line)
            break
        if skipped:
            continue
        if "For the library itself" in line:
            skipped = True
            while kept and re.match(r"\s*(struct impl;)?$", kept[-1]):
                kept.pop()
            continue
        if re.match(r"\s*struct impl;", line):
            continue
        kept.append(line)
    return kept


def prose_of(comment):
    return re.sub(r"\n{3,}", "\n\n", "\n".join(comment).strip())


def title(names):
    if len(names) <= 2:
        return ", ".join(f"`{n}`" for n in names)
    return f"`{names[0]}` … `{names[-1]}`"


def render(header, intro, entries):
    parts = [f"# {header}", "", f"`#include <convgrad/{header}>`", ""]
    text, example = [], []
    for line in intro:
        (example if line.startswith("  ") else text).append(line)
    parts += [prose_of(text), ""]
    if example:
        body = "\n".join(line.removeprefix("  ") for line in example)
        parts += ["```cpp", body, "```", ""]
    for entry in entries:
        code = [line.replace("CONVGRAD_API ", "") for line in public_part(entry.code)]
        names = entry.names()
        if not names:
            raise ValueError(f"{header}: no name in {code}")
        text = [prose_of(entry.comment), ""] if entry.comment else []
        parts += [f"## {title(names)}", "", *text, "```cpp", *code, "```", ""]
    return "\n".join(parts)


def pages(folder):
    """{file name: text} of the reference."""
    found, rows = {}, []
    for path in sorted(folder.glob("*.hpp")):
        intro, entries = split_header(path.read_text(encoding="utf-8"))
        if path.name in ("convgrad.hpp", "export.hpp") or not entries:
            continue
        page = path.stem + ".md"
        found[page] = render(path.name, intro, entries)
        names = ", ".join(f"`{n}`" for n in dict.fromkeys(n for entry in entries for n in entry.names()))
        rows.append(f"| [{path.name}]({page}) | {intro[0].rstrip('.')} | {names} |")
    if not found:
        raise ValueError(f"no headers in {folder}")
    found["index.md"] = "\n".join(
        ["# API reference", "", "Made from the public headers. `#include <convgrad/convgrad.hpp>` brings them all.", "",
         "| header | what | names |", "| --- | --- | --- |", *rows, ""])  # fmt: skip
    return found
