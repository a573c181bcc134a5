"""Problems in benchdnn's syntax, as the files of this folder list them; docs/command.md has the rules."""

import re


class Problem:
    """One layer: its sizes, for each spatial axis those of `x`."""

    def __init__(self, text, deconv):
        self.deconv = deconv
        body, _, name = text.partition("n")
        self.name = name.strip('"') or text
        found = {}
        for key, number in re.findall(r"([a-z]+)(\d+)", body.replace("_", "")):
            found[key] = int(number)
        if "".join(f"{k}{v}" for k, v in found.items()) != body.replace("_", ""):
            raise ValueError(f"not a problem: {text}")
        self.groups, self.mb = found.get("g", 1), found.get("mb", 2)
        self.ic, self.oc = found["ic"], found["oc"]
        axes = [a for a in "dhw" if "i" + a in found or "k" + a in found]
        if axes in (["h"], ["d"]):  # a square, a cube
            rest = {"h": "w", "d": "hw"}[axes[0]]
            for other in rest:
                for kind in "ioksdp":
                    if kind + axes[0] in found:
                        found[kind + other] = found[kind + axes[0]]
            axes += rest
        self.x = [self.axis(found, a) for a in axes]

    def axis(self, found, a):
        size, kernel = found["i" + a], found["k" + a]
        stride, dilation = found.get("s" + a, 1), found.get("d" + a, 0) + 1
        extent = (kernel - 1) * dilation + 1
        out, pad = found.get("o" + a), found.get("p" + a)
        long, short = (out, size) if self.deconv else (size, out)
        if pad is None and out is not None:
            pad = max(0, ((short - 1) * stride + extent - long) // 2)
        pad = pad or 0
        if self.deconv:
            plain = (size - 1) * stride + extent - 2 * pad
        else:
            plain = (size + 2 * pad - extent) // stride + 1
        extra = 0 if out is None else out - plain
        if extra != 0 and not (self.deconv and 0 <= extra < max(stride, dilation)):
            raise NotImplementedError("PyTorch pads both sides alike")
        return {"in": size, "out": plain + extra, "kernel": kernel, "stride": stride,
                "dilation": dilation, "pad": pad, "extra": extra}  # fmt: skip

    def all(self, key):
        return [a[key] for a in self.x]


def read_batch(path):
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            for word in line.split():
                if word.startswith("#"):
                    break
                if not word.startswith("-"):
                    yield word
