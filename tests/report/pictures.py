"""Takes the pictures of the documentation from a report.

pictures.py REPORT.html BROWSER DIRECTORY
Each section of the page becomes DIRECTORY/report-<name>.png.
"""

import os
import sys
import tempfile

from browser import Browser

SECTIONS = {"Loss": "loss", "Time by op": "time", "Roofline": "roofline", "By layer and pass": "layers"}


def main():
    report, program, folder = sys.argv[1:]
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(program, profile)
        try:
            browser.open(os.path.abspath(report), 920, 800, False)
            for title, name in SECTIONS.items():
                box = browser.evaluate(f"""(() => {{
                    const h = [...document.querySelectorAll('h2')].find((e) => e.textContent === {title!r});
                    const b = h.closest('section').getBoundingClientRect();
                    return {{ x: b.x + scrollX, y: b.y + scrollY, width: b.width, height: b.height, scale: 1 }}; }})()""")
                browser.screenshot(os.path.join(folder, f"report-{name}.png"), clip=box)
        finally:
            browser.close()


main()
