"""The same convolution by this library and by PyTorch, for compare_torch.py: on a CPU, and on a GPU."""

import math
import time
import warnings

import torch

import convgrad

TYPES = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
# Of the largest result. tf32: PyTorch rounds both operands to 11 bits.
TOLERANCE = {"f32": 1e-4, "tf32": 2**-8, "bf16": 2**-7, "f16": 2**-9}


def spread(tensor, data_format):
    """The tensor in the memory layout of a data format; its shape stays N, C, X."""
    if data_format == "NCX":
        return tensor.contiguous()
    last = list(range(2, tensor.dim()))
    back = [0, tensor.dim() - 1] + list(range(1, tensor.dim() - 1))
    return tensor.permute(0, *last, 1).contiguous().permute(back)


def make_tensors(p, dtype, data_format, device):
    """src, dst and contiguous weights, random."""
    generator = torch.Generator(device).manual_seed(1)

    def tensor(*shape):
        return (torch.rand(shape, generator=generator, device=device) * 2 - 1).to(TYPES[dtype])

    src = spread(tensor(p.mb, p.ic, *p.all("in")), data_format)
    dst = spread(tensor(p.mb, p.oc, *p.all("out")), data_format)
    sides = (p.ic, p.oc // p.groups) if p.deconv else (p.oc, p.ic // p.groups)
    return src, dst, tensor(*sides, *p.all("kernel"))


def geometry_of(p):
    """As PyTorch's own operators take it."""
    return (p.all("stride"), p.all("pad"), p.all("dilation"), p.deconv, p.all("extra"), p.groups)


# Which gradients a pass computes: of the data, of the weights.
GRADIENTS = {"dat": (True, False), "wei": (False, True), "bwd": (True, True)}


def pytorch_call(p, what, src, dst, weights):
    geometry = geometry_of(p)
    if what == "fwd":
        return lambda: torch.ops.aten.convolution(src, weights, None, *geometry)
    wanted = GRADIENTS[what]

    def backward():
        found = torch.ops.aten.convolution_backward(dst, src, weights, None, *geometry, [*wanted, False])
        return [grad for grad, is_wanted in zip(found, wanted) if is_wanted]

    return backward


class Cpu:
    """This machine's processors: on `threads` threads; the fastest call counts."""

    def __init__(self, threads):
        self.threads = threads or torch.get_num_threads()
        torch.set_num_threads(self.threads)
        self.peer = "PyTorch " + torch.__version__

    def settings(self, dtype):
        pass

    def calls(self, p, what, dtype, data_format):
        src, dst, weights = make_tensors(p, dtype, data_format, "cpu")
        shared = {
            "strides": p.all("stride"), "dilations": p.all("dilation"), "groups": p.groups,
            "pads_begin": p.all("pad"), "pads_end": p.all("pad"), "data_format": "NCX",
            "weights_format": "IOX" if p.deconv else "OIX", "engine": convgrad.Engine(threads=self.threads),
        }  # fmt: skip
        if p.deconv:
            shared["output_padding"] = p.all("extra")
        outputs = {"fwd": (dst,), "dat": (src,), "wei": (weights,), "bwd": (src, weights)}[what]
        out = tuple(t.clone() for t in outputs)
        shared["out"] = out if what == "bwd" else out[0]
        function = lambda kind: getattr(convgrad, ("conv_transpose" if p.deconv else "convolution") + kind)
        if what == "fwd":
            ours = lambda: function("")(src, weights, **shared)
        elif what == "dat":
            extra = {} if p.deconv else {"dst_shape": tuple(src.shape)}
            ours = lambda: function("_backward_data")(dst, weights, **extra, **shared)
        elif what == "wei":
            ours = lambda: function("_backward_weights")(src, dst, tuple(weights.shape), **shared)
        else:
            ours = lambda: function("_backward")(src, dst, weights, **shared)[:2]
        return ours, pytorch_call(p, what, src, dst, weights)

    def times(self, calls, seconds, rounds):
        """The fastest call of each, in milliseconds."""
        best = [math.inf] * len(calls)
        for _ in range(rounds):
            for i, call in enumerate(calls):
                wait_until_quiet()
                call()
                begin = time.perf_counter()
                while True:
                    start = time.perf_counter()
                    call()
                    now = time.perf_counter()
                    best[i] = min(best[i], now - start)
                    if now - begin >= seconds / rounds / len(calls):
                        break
        return [one * 1e3 for one in best]


def wait_until_quiet():
    end = time.perf_counter() + 1
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(0.001)
        if time.process_time() - before < 0.0003:
            return


class Cuda:
    """A GPU: torch.ops.convgrad beside cuDNN, which measures its own algorithms first; the median of the device alone."""

    threads = 0

    def __init__(self, index):
        import convgrad.torch  # noqa: F401  the operators; not for CPUs, where it may start a compiler

        torch.cuda.set_device(index)
        torch.backends.cudnn.benchmark = True
        self.device = torch.device("cuda", index)
        self.peer = f"cuDNN {torch.backends.cudnn.version()} (PyTorch {torch.__version__})"

    def settings(self, dtype):
        with warnings.catch_warnings():  # newer releases have other names for it too
            warnings.simplefilter("ignore")
            torch.backends.cudnn.allow_tf32 = dtype == "tf32"

    def calls(self, p, what, dtype, data_format):
        src, dst, weights = make_tensors(p, dtype, data_format, self.device)
        weights = spread(weights, data_format)  # as models in channels_last have them
        stride, pad, *rest = geometry_of(p)
        geometry = (stride, pad, pad, *rest)
        if what == "fwd":
            ours = lambda: torch.ops.convgrad.forward(src, weights, None, *geometry)
        else:
            wanted = GRADIENTS[what]

            def ours():
                found = torch.ops.convgrad.backward(dst, src, weights, *geometry, [*wanted, False])
                return [grad for grad, is_wanted in zip(found, wanted) if is_wanted]

        return ours, pytorch_call(p, what, src, dst, weights)

    def times(self, calls, seconds, rounds):
        from gpu_clock import medians_in_turns

        return medians_in_turns(calls, seconds, rounds)


def difference(a, b):
    """The largest difference of results, each a tensor or some, in terms of the largest of its tensor."""
    a, b = ([one] if isinstance(one, torch.Tensor) else list(one) for one in (a, b))
    shapes = [[tuple(t.shape) for t in one] for one in (a, b)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"shapes differ: {shapes[0]} and {shapes[1]}")
    apart = [((x.float() - y.float()).abs().max() / x.float().abs().max().clamp_min(1e-30)).item() for x, y in zip(a, b)]
    return max(apart)
