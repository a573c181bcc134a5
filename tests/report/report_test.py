"""Opens the reports in a browser: no complaints, the right number of marks, working controls.

report_test.py CONVGRAD BROWSER DIRECTORY
Leaves the pages and their pictures in DIRECTORY.
"""

import json
import os
import re
import shutil
import subprocess
import sys

from browser import Browser

WINDOWS = [(1440, 900, False), (1440, 900, True), (390, 844, False), (390, 844, True)]
HOSTILE = 'mb1ic4ih6oc8kh3ph1n"a</script><img/src=x>&amp;\u00e9"'

failures = []


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def data_of(path):
    with open(path, encoding="utf-8") as file:
        page = file.read()
    expect(not re.search(r"https?://(?!www\.w3\.org/)", page.split('id="data"')[0]), f"{path}: names a server")
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(match.group(1))


def check_layout(browser, name, folder):
    path = os.path.join(folder, f"{name}.html")
    colours = set()
    for width, height, dark in WINDOWS:
        what = f"{name}, {width} pixels, {'dark' if dark else 'light'}"
        browser.open(path, width, height, dark)
        expect(browser.evaluate("document.documentElement.dataset.ready") == "yes", f"{what}: did not finish")
        expect(browser.evaluate("document.documentElement.scrollWidth") <= width, f"{what}: wider than the window")
        # Text of charts must lie inside its chart's card.
        outside = browser.evaluate("""[...document.querySelectorAll('.chart text')].filter((t) => {
            const a = t.getBoundingClientRect(), b = t.closest('section').getBoundingClientRect();
            return a.left < b.left - 1 || a.right > b.right + 1;
        }).map((t) => t.textContent)""")
        expect(not outside, f"{what}: text outside of its card: {outside}")
        colours.add(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        whole = browser.evaluate("document.documentElement.scrollHeight")
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=int(whole),
                     deviceScaleFactor=1, mobile=width < 600)
        browser.screenshot(os.path.join(folder, f"{name}_{width}_{'dark' if dark else 'light'}.png"))
    expect(len(colours) == 2, f"{name}: light and dark look the same")
    expect(not browser.complaints, f"{name}: {browser.complaints}")
    browser.complaints.clear()


def count(browser, selector):
    return browser.evaluate(f"document.querySelectorAll('{selector}').length")


def check_cases(browser, name, results, engines):
    n = len(results)
    expect(count(browser, ".point") == n, f"{name}: {count(browser, '.point')} points for {n} results")
    expect(count(browser, "rect.bar") == n, f"{name}: {count(browser, 'rect.bar')} bars for {n} results")
    expect(count(browser, "#cases tbody tr") == n, f"{name}: rows of the table")
    expect(count(browser, ".limit-line.peak") == sum(len(e["peaks"]) for e in engines), f"{name}: arithmetic limits")
    expect(count(browser, ".limit-line.bandwidth") == sum(len(e["bandwidths"]) for e in engines), f"{name}: bandwidths")


def check_bench(browser, folder):
    path = os.path.join(folder, "bench.html")
    data = data_of(path)
    results = data["results"]
    expect(len(results) == 27, f"bench: {len(results)} results")
    browser.open(path, 1440, 900, False)
    check_cases(browser, "bench", results, data["engines"])
    expect(browser.evaluate("[...document.querySelectorAll('#cases td')].some((c) => c.textContent.includes('</script><img'))"),
           "bench: the name with a tag is not shown as text")
    expect(count(browser, "main img") == 0, "bench: a name became an element")

    # Filters act on points, bars and rows alike.
    browser.evaluate("""(() => { const s = document.getElementById('choose-dtype'); s.value = 'bf16';
        s.dispatchEvent(new Event('change')); })()""")
    for mark in (".point", "rect.bar", "#cases tbody tr"):
        expect(count(browser, mark) == 9, f"bench: {mark} after choosing a type: {count(browser, mark)}")
    find = "(() => { const i = document.getElementById('find'); i.value = %s; i.dispatchEvent(new Event('input')); })()"
    browser.evaluate(find % "'strided Weights'")
    for mark in (".point", "rect.bar", "#cases tbody tr"):
        expect(count(browser, mark) == 1, f"bench: {mark} after searching: {count(browser, mark)}")
    browser.evaluate(find % "'nothing like this'")
    expect(count(browser, ".point") == 0, "bench: points that match nothing")
    browser.evaluate(find % "''")
    browser.evaluate("""(() => { const s = document.getElementById('choose-dtype'); s.value = '';
        s.dispatchEvent(new Event('change')); })()""")

    # Sorting, both ways.
    column = "[...document.querySelectorAll('#cases tbody tr')].map((r) => Number(r.cells[8].textContent))"
    click = "document.querySelectorAll('#cases th button')[8].click()"
    browser.evaluate(click)
    times = browser.evaluate(column)
    expect(times == sorted(times, reverse=True) and len(times) == 27, "bench: sorted by time, downwards")
    browser.evaluate(click)
    times = browser.evaluate(column)
    expect(times == sorted(times), "bench: sorted by time, upwards")
    expect(count(browser, 'th[aria-sort="ascending"]') == 1, "bench: the sorted column is not marked")

    # A point tells about itself. (Scrolling hides the tooltip, so let that end first.)
    x, y = browser.evaluate("""(async () => { const p = document.querySelector('.point'); p.scrollIntoView({ block: 'center' });
        await new Promise((done) => setTimeout(done, 300));
        const b = p.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()""")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    expect("GFLOP/s" in browser.evaluate("document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent"),
           "bench: no tooltip")
    expect(count(browser, ".own-limit") == 2, "bench: the point's own limit is not shown")

    # The button changes the theme.
    before = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    browser.evaluate("document.getElementById('theme').click()")
    expect(browser.evaluate("getComputedStyle(document.body).backgroundColor") != before, "bench: the theme stays")
    expect(not browser.complaints, f"bench: {browser.complaints}")


def write_two_engines(folder):
    """The page of bench as it is where a GPU took part: its figures are invented here."""
    with open(os.path.join(folder, "bench.html"), encoding="utf-8") as file:
        page = file.read()
    data = data_of(os.path.join(folder, "bench.html"))
    for e in data["engines"]:
        e["name"] = "cpu"
    for i, r in enumerate(list(data["results"])):
        speed = 0.25 if i % 9 == 0 else 40.0  # one in nine belongs on the CPU
        data["results"].append({**r, "engine": "cuda device 0 (some GPU)", "on": "cuda:0", "isa": "sm_90", "threads": 0,
                                "algorithm": "cuda.general", "min_ms": r["min_ms"] / speed, "median_ms": r["median_ms"] / speed,
                                "gflops": r["gflops"] * speed, "gbs": r["gbs"] * speed, "limit_gflops": r["gflops"] * speed * 2,
                                "share": 0.5, "limit": "memory"})
    data["engines"].append({"label": "cuda device 0 (some GPU)", "name": "cuda:0",
                            "peaks": [{"label": "f32 FMA", "gflops": 60000}, {"label": "tensor cores", "gflops": 640000}],
                            "bandwidths": [{"label": "memory", "gbs": 4200}, {"label": "L2", "gbs": 7800}]})
    text = json.dumps(data).replace("<", "\\u003c")
    before, rest = page.split('id="data">', 1)
    with open(os.path.join(folder, "engines.html"), "w", encoding="utf-8") as file:
        file.write(f'{before}id="data">{text}</script>{rest.split("</script>", 1)[1]}')


def check_two_engines(browser, folder):
    path = os.path.join(folder, "engines.html")
    data = data_of(path)
    cases = len(data["results"]) // 2
    browser.open(path, 1440, 900, False)
    check_cases(browser, "engines", data["results"], data["engines"])
    expect(count(browser, ".contestant") == 2 * cases, "engines: a mark for each engine and case")
    expect(count(browser, ".point.hollow") == cases, "engines: points of the second engine look different")
    expect(count(browser, "#engines tbody tr") == cases, "engines: rows of the table")
    expect(count(browser, "#engines th") == 8, "engines: a column for each engine")
    wins = browser.evaluate("document.getElementById('wins').textContent")
    expect(f"cpu is the fastest in {cases // 9} of {cases} cases, by a factor of 4 " in wins, f"engines: {wins}")
    expect(f"cuda:0 is the fastest in {cases - cases // 9} of {cases} cases, by a factor of 40 " in wins, f"engines: {wins}")
    # One engine alone has nobody beside it.
    choose = "(() => { const s = document.getElementById('choose-%s'); s.value = %s; s.dispatchEvent(new Event('change')); })()"
    browser.evaluate(choose % ("engine", "'cuda device 0 (some GPU)'"))
    expect(count(browser, ".contestant") == 0 and count(browser, ".point") == cases, "engines: one engine chosen")
    expect(count(browser, ".limit-line.peak") == 2, "engines: the roof of one engine alone")
    browser.evaluate(choose % ("engine", "''"))
    browser.evaluate(choose % ("dtype", "'bf16'"))
    expect(count(browser, "#engines tbody tr") == cases // 3, "engines: rows after choosing a type")
    expect(not browser.complaints, f"engines: {browser.complaints}")


def check_training(browser, folder, name, charts, layers):
    path = os.path.join(folder, f"{name}.html")
    data = data_of(path)
    training = data["training"]
    epochs = len(training["epochs"])
    browser.open(path, 1440, 900, False)
    check_cases(browser, name, data["results"], data["engines"])
    expect(len({r["name"] for r in data["results"]}) == layers, f"{name}: layers")
    expect(count(browser, "circle.dot.test") == charts * epochs, f"{name}: dots of the curves")
    expect(count(browser, ".chart path.curve") == 2 * charts + 1, f"{name}: curves")
    expect(len(training["step_losses"]) == training["steps"], f"{name}: losses of steps")
    expect(count(browser, "rect.share") == len(training["shares"]), f"{name}: time by op")
    pictures = len(training["samples"]) * (2 if name == "autoencoder" else 1)
    expect(count(browser, "figure canvas") == pictures == (40 if name == "autoencoder" else 20), f"{name}: pictures")
    expect(not browser.complaints, f"{name}: {browser.complaints}")


def main():
    convgrad, program, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    page = lambda name: os.path.join(folder, f"{name}.html")
    run = lambda *words: subprocess.run([convgrad, *words], check=True, stdout=subprocess.DEVNULL)
    run("bench", "mb1ic8ih8oc8kh3ph1", 'mb2ic8ih12oc8kh3sh2ph1n"strided"', HOSTILE, "--dtype", "all",
        "--seconds", "0.001", "--html", page("bench"), "--quiet")
    run("train", "--epochs", "2", "--html", page("classifier"), "--quiet")
    run("train", "--epochs", "2", "--model", "autoencoder", "--html", page("autoencoder"), "--quiet")
    write_two_engines(folder)
    profile = os.path.join(folder, "profile")
    browser = Browser(program, profile)
    try:
        for name in ("bench", "engines", "classifier", "autoencoder"):
            check_layout(browser, name, folder)
        check_bench(browser, folder)
        check_two_engines(browser, folder)
        check_training(browser, folder, "classifier", 2, 7)
        check_training(browser, folder, "autoencoder", 1, 7)
    finally:
        browser.close()
        shutil.rmtree(profile, ignore_errors=True)
    print(f"{len(failures)} failures")
    return 1 if failures else 0


sys.exit(main())
