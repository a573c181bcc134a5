"""Speed and error of Winograd's tiles side by side, as SVG."""

import math

from measured_plot import THEMES, opening, text

COLORS = {"light": ["#1d5fd1", "#2a8f5c", "#e07b00"], "dark": ["#6ca6ff", "#58c48c", "#ffab4a"]}
TILES = {"winograd2x2": "F(2×2)", "winograd4x2": "F(4×2)", "winograd4x4": "F(4×4)"}
PASSES = {"fwd": ("forward", "channels"), "wei": ("weights gradient, 128 channels", "positions that a sum has")}
VALUES = {"speed": ("times as fast as direct sums", [0.7, 1, 1.5, 2, 3, 4]), "error": ("root mean square error, of a plain f32 sum's", [0.25, 0.5, 1, 2, 4])}
WIDTH, LEFT, PANEL, GAP = 960, 44, 408, 92
TOP, HEIGHT, BETWEEN = 96, 190, 92


def place(value, low, high, length):
    return math.log(value / low) / math.log(high / low) * length


def panel(rows, left, top, what, value, name):
    """One pass; speed or error by length of the sum, a line for each tile."""
    theme, (words, ticks) = THEMES[name], VALUES[value]
    sizes = sorted({r["size"] for r in rows})
    found = [r[value] for r in rows]
    low, high = min([*found, ticks[0]]) / 1.06, max([*found, ticks[-1]]) * 1.06

    def at(size, number):
        return left + place(size, sizes[0] / 1.2, sizes[-1] * 1.2, PANEL), top + HEIGHT - place(number, low, high, HEIGHT)

    title = f"{PASSES[what][0]}: {words}"
    parts = [text(left - 30, top - 14, title, theme["text"], 13.5, weight=600)]
    for tick in ticks:
        _, y = at(sizes[0], tick)
        color, width = (theme["one"], 1.4) if tick == 1 else (theme["grid"], 1)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + PANEL}" y2="{y:.1f}" stroke="{color}" stroke-width="{width}"/>')
        parts.append(text(left - 6, y + 4, f"{tick:g}×", theme["muted"], 12, "end"))
    for size in sizes:
        parts.append(text(at(size, 1)[0], top + HEIGHT + 18, f"{size:,}", theme["muted"], 12, "middle"))
    parts.append(text(left + PANEL / 2, top + HEIGHT + 36, PASSES[what][1], theme["muted"], 12, "middle"))
    for color, tile in zip(COLORS[name], TILES):
        points = [at(r["size"], r[value]) for r in sorted(rows, key=lambda r: r["size"]) if r["tile"] == tile]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2.2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" fill="{color}"/>' for x, y in points]
    return parts


def draw(rows, about, name):
    """`rows`: pass, tile, size, speed, error."""
    theme = THEMES[name]
    height = TOP + 2 * HEIGHT + BETWEEN + 84
    parts = [
        opening(WIDTH, height),
        "<title>Speed and error of Winograd's tiles</title>",
        text(0, 22, "Winograd's tiles: speed and error", theme["text"], 19, weight=600),
        text(0, 44, f"3×3 layers, f32 NXC, AVX-512, one thread, {about['machine']}", theme["muted"]),
    ]
    x = WIDTH - 3 * 84
    for color, words in zip(COLORS[name], TILES.values()):
        parts.append(f'<rect x="{x}" y="12" width="13" height="13" rx="2" fill="{color}"/>')
        parts.append(text(x + 19, 23, words, theme["text"]))
        x += 84
    for row, what in enumerate(PASSES):
        chosen = [r for r in rows if r["pass"] == what]
        for column, value in enumerate(VALUES):
            parts += panel(chosen, LEFT + column * (PANEL + GAP), TOP + row * (HEIGHT + BETWEEN), what, value, name)
    note = "Left, above 1×: faster than direct sums. Right, below 1×: a smaller root mean square error than a plain f32 sum's, and so allowed by default."
    parts.append(text(0, height - 12, note, theme["muted"], 12))
    return "\n".join([*parts, "</svg>", ""])
