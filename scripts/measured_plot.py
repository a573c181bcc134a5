"""The picture of the README: how fast layers are beside other libraries, by class, as SVG."""

import math

THEMES = {
    "light": {"text": "#1f2328", "muted": "#59636e", "grid": "#d1d9e0", "one": "#59636e", "bars": ["#1d5fd1", "#e07b00"]},
    "dark": {"text": "#f0f6fc", "muted": "#9198a1", "grid": "#30363d", "one": "#9198a1", "bars": ["#6ca6ff", "#ffab4a"]},
}
TICKS = [0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8]
WIDTH, LABELS, PANEL, GAP = 960, 128, 392, 32
TOP, ROW, BAR = 108, 38, 13


class Scale:
    """From ratios to pixels from the left of a panel: logarithmic, with room for the numbers beside bars."""

    def __init__(self, ratios):
        self.low, self.high = min([*ratios, 0.95]) / 1.16, max([*ratios, 1.05]) * 1.16
        self.ticks = [t for t in TICKS if self.low <= t <= self.high]

    def place(self, ratio):
        return math.log(ratio / self.low) / math.log(self.high / self.low) * PANEL


def text(x, y, words, color, size=13, anchor="start", weight=400):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{color}">{words}</text>'


def bar(left, y, ratio, color, theme, scale):
    one, end = scale.place(1), scale.place(ratio)
    x, width = left + min(one, end), max(abs(end - one), 1)
    found = [f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BAR}" rx="2" fill="{color}"/>']
    if ratio >= 1:
        found.append(text(left + end + 5, y + BAR - 2.5, f"{ratio:.2f}", theme["text"], 11.5))
    else:
        found.append(text(left + end - 5, y + BAR - 2.5, f"{ratio:.2f}", theme["text"], 11.5, "end"))
    return found


def panel(left, title, peers, theme, height, scale):
    parts = [text(left + scale.place(1), TOP - 30, title, theme["text"], 14, "middle", 600)]
    for tick in scale.ticks:
        x = left + scale.place(tick)
        color, width = (theme["one"], 1.4) if tick == 1 else (theme["grid"], 1)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{height}" stroke="{color}" stroke-width="{width}"/>')
        parts.append(text(x, TOP - 10, f"{tick:g}×", theme["muted"], 12, "middle"))
    for number, bars in enumerate(peers.values()):
        for row, (_, ratio) in enumerate(bars):
            parts += bar(left, TOP + row * ROW + 5 + number * (BAR + 2), ratio, theme["bars"][number], theme, scale)
    return parts


def opening(width, height):
    """The first tag of a picture."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        'font-family="-apple-system, BlinkMacSystemFont, &quot;Segoe UI&quot;, &quot;Noto Sans&quot;, Helvetica, Arial, sans-serif">'
    )


def draw(panels, about, name):
    """`panels`: {type: {peer: [(class, ratio)]}}"""
    theme = THEMES[name]
    first = next(iter(panels.values()))
    classes = [kind for kind, _ in next(iter(first.values()))]
    scale = Scale([ratio for peers in panels.values() for bars in peers.values() for _, ratio in bars])
    bottom = TOP + len(classes) * ROW + 4
    height = bottom + 54
    parts = [
        opening(WIDTH, height),
        "<title>Speed of convgrad beside oneDNN and PyTorch, by class of layers</title>",
        text(0, 22, "How many times as fast convgrad is", theme["text"], 19, weight=600),
        text(0, 44, f"{about['machine']}, {about['threads']} threads, {about['date']}", theme["muted"]),
    ]
    x = WIDTH
    for number, (peer, words) in reversed(list(enumerate(about["peers"].items()))):
        words = f"as {words}"
        x -= 7.1 * len(words) + 26
        parts.append(f'<rect x="{x:.1f}" y="12" width="13" height="13" rx="2" fill="{theme["bars"][number]}"/>')
        parts.append(text(x + 19, 23, words, theme["text"]))
    for row, kind in enumerate(classes):
        parts.append(text(LABELS - 14, TOP + row * ROW + 24, kind, theme["text"], 13.5, "end"))
    for number, (dtype, peers) in enumerate(panels.items()):
        parts += panel(LABELS + number * (PANEL + GAP), dtype, peers, theme, bottom, scale)
    note = "Geometric mean over layers, forward, data gradient and weights gradient, NXC and NCX; every case is in docs/measured/layers.csv."
    parts.append(text(0, bottom + 28, note, theme["muted"], 12))
    parts.append(text(0, bottom + 46, "Right of 1×: convgrad is faster. oneDNN gets its weights in the order it likes best for free.", theme["muted"], 12))
    return "\n".join([*parts, "</svg>", ""])
