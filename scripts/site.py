#!/usr/bin/env python3
"""The documents as the source of a site, and the check that every link among them leads somewhere.

    scripts/site.py FOLDER     writes the pages of the site, and FOLDER/../mkdocs.yml to build it (`make docs` does both)
    scripts/site.py --check    fails if a link or an anchor of any document of the tree leads nowhere

Documents stay where people read them in the tree, and link there. On the site the README is the first
page, source files that a document links to become pages with their text, folders become lists, and the
API reference is made from the public headers (scripts/api_pages.py). Needs Python alone.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

sys.dont_write_bytecode = True
import api_pages  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent

# Documents outside of docs/ that have a place on the site. Those of docs/ keep theirs.
PLACES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "security.md",
    "bench/README.md": "measuring.md",
    "examples/train/README.md": "training.md",
}
# Folders that documents link to, and the pages that stand for them.
FOLDERS = {"docs/ops": "ops/index.md", "include/convgrad": "api/index.md"}
LANGUAGES = {".cpp": "cpp", ".hpp": "cpp", ".inl": "cpp", ".c": "c", ".py": "python", ".sh": "sh", ".json": "json"}

FENCE = re.compile(r"^ *(```|~~~)")
# A picture for light and one for dark surroundings.
PICTURE = re.compile(r'<picture>\s*<source media="[^"]*dark[^"]*" srcset="([^"]*)">\s*<img alt="([^"]*)" src="([^"]*)">\s*</picture>')
# [text](target), with text that may hold `code` or an image; src="…" and the like of HTML.
LINK = re.compile(r"(\]\()([^()\s]+)(\))|(\b(?:src|srcset|href)=\")([^\"]+)(\")")


def documents():
    """Every Markdown file of the tree, as git knows them (new ones too), else as they lie there."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        names = listed.stdout.split("\n")
    else:
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*.md") if p.relative_to(ROOT).parts[0] != "build"]
    return sorted(n for n in names if n and (ROOT / n).exists())


def prose(text):
    """Pairs (line, whether it is prose): code blocks are not."""
    fence = None
    for line in text.split("\n"):
        mark = FENCE.match(line)
        if mark and fence in (None, mark.group(1)):
            fence = None if fence else mark.group(1)
            yield line, False
        else:
            yield line, fence is None and not line.startswith("    ")


def replace_links(text, change):
    """The text with each link's target replaced by change(target, is_html); code stays as it is."""

    def changed(match):
        if match.group(2) is not None:
            return match.group(1) + change(match.group(2), False) + match.group(3)
        return match.group(4) + change(match.group(5), True) + match.group(6)

    lines = []
    for line, is_prose in prose(text):
        if is_prose:
            # Targets stand outside of `code`; the text of a link may be code.
            spans = re.split(r"(`[^`]*`)", line)
            masked = "".join(s if i % 2 == 0 else "\0" * len(s) for i, s in enumerate(spans))
            parts, last = [], 0
            for match in LINK.finditer(masked):
                parts += [line[last : match.start()], changed(match)]
                last = match.end()
            line = "".join(parts) + line[last:]
        lines.append(line)
    return "\n".join(lines)


def anchor(heading):
    """The anchor of a heading, as hosts of repositories and the site's generator make it."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def anchors(path):
    found = set()
    for line, is_prose in prose(path.read_text(encoding="utf-8")):
        heading = re.match(r"#+ (.*)", line)
        if is_prose and heading:
            found.add(anchor(heading.group(1)))
    return found


def target_of(document, link):
    """(path in the tree, anchor) of a link in a document; None for one that leaves the tree."""
    if re.match(r"[a-z]+:", link):
        return None
    path, _, part = link.partition("#")
    base = PurePosixPath(document).parent / path if path else PurePosixPath(document)
    return os.path.normpath(base), part


def check_links():
    """Messages about links that lead nowhere."""
    wrong, known = [], {}
    names = documents()
    for name in names:

        def look(link, _, name=name):
            target = target_of(name, link)
            if target is None:
                return link
            path, part = target
            if path.startswith("..") or not (ROOT / path).exists():
                wrong.append(f"{name}: {link}: there is no {path}")
            elif (ROOT / path).is_dir() and path not in FOLDERS and name in site_places(names):
                wrong.append(f"{name}: {link}: a folder that has no page on the site (scripts/site.py, FOLDERS)")
            elif part and path.endswith(".md"):
                if path not in known:
                    known[path] = anchors(ROOT / path)
                if part not in known[path]:
                    wrong.append(f"{name}: {link}: {path} has no heading #{part}")
            return link

        replace_links((ROOT / name).read_text(encoding="utf-8"), look)
    return wrong, len(names)


def site_places(names):
    """{document: its place on the site}"""
    places = {n: n.removeprefix("docs/") for n in names if n.startswith("docs/")}
    return places | {n: p for n, p in PLACES.items() if n in names}


class Site:
    def __init__(self, folder):
        self.folder = folder
        self.places = site_places(documents())
        self.pages = {}
        self.sources = set()

    def place(self, path):
        """Where a file or folder of the tree is on the site."""
        if path in self.places:
            return self.places[path]
        if path in FOLDERS:
            return FOLDERS[path]
        if path.startswith("docs/"):
            return path.removeprefix("docs/")
        self.sources.add(path)
        return f"source/{path}.md"

    def add_document(self, name):
        page = PurePosixPath(self.places[name])

        def change(link, is_html):
            target = target_of(name, link)
            if target is None:
                return link
            path, part = target
            place = self.place(path)
            if is_html:  # mkdocs follows Markdown's links and leaves those of HTML as they are
                place = re.sub(r"\.md$", ".html", place)
            return os.path.relpath(place, page.parent) + ("#" + part if part else "")

        # The site has a switch of its own between light and dark, which a <picture> does not follow.
        text = PICTURE.sub(r"![\2](\3#only-light)\n![\2](\1#only-dark)", (ROOT / name).read_text(encoding="utf-8"))
        self.pages[str(page)] = replace_links(text, change)

    def add_sources(self):
        for path in sorted(self.sources):
            text = (ROOT / path).read_text(encoding="utf-8").rstrip("\n")
            language = LANGUAGES.get(Path(path).suffix, "text")
            fence = "````"
            self.pages[f"source/{path}.md"] = f"# {path}\n\n{fence}{language}\n{text}\n{fence}\n"

    def add_ops(self):
        lines = ["# Operations", "", "One page for each, made from the table of ops. `convgrad ops` prints the same.", ""]
        for place in sorted(p for p in self.places.values() if p.startswith("ops/")):
            name = PurePosixPath(place).name
            lines.append(f"- [{name.removesuffix('.md')}]({name})")
        self.pages["ops/index.md"] = "\n".join(lines) + "\n"

    def write(self):
        for name in self.places:
            self.add_document(name)
        self.add_sources()
        self.add_ops()
        for name, text in api_pages.pages(ROOT / "include/convgrad").items():
            self.pages["api/" + name] = text
        shutil.rmtree(self.folder, ignore_errors=True)
        for place, text in self.pages.items():
            path = self.folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        shutil.copytree(ROOT / "docs/images", self.folder / "images")
        shutil.copytree(ROOT / "docs/measured", self.folder / "measured")
        self.write_settings()
        print(f"{len(self.pages)} pages in {self.folder}")

    def write_settings(self):
        """docs/site/mkdocs.yml, with `folder/*` of its navigation spelt out, the folder's own page first."""

        def spelt_out(match):
            indent, folder = match.groups()
            inside = sorted(p for p in self.pages if p.startswith(folder + "/"))
            inside.sort(key=lambda place: not place.endswith("/index.md"))
            return "\n".join(f"{indent}- {place}" for place in inside)

        text = (ROOT / "docs/site/mkdocs.yml").read_text(encoding="utf-8")
        text = re.sub(r"^( *)- ([\w-]+)/\*$", spelt_out, text, flags=re.M)
        (self.folder.parent / "mkdocs.yml").write_text(text, encoding="utf-8")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    wrong, count = check_links()
    for message in wrong:
        print(message, file=sys.stderr)
    if wrong:
        sys.exit(1)
    if sys.argv[1] == "--check":
        # That every public header can be read is part of the check: the reference is made from them.
        found = len(api_pages.pages(ROOT / "include/convgrad"))
        print(f"links of {count} documents, {found} pages of the API: as they should be")
        return
    Site(Path(sys.argv[1])).write()


if __name__ == "__main__":
    main()
