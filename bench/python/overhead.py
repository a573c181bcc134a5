"""What a call costs beside its arithmetic, from Python.

python bench/python/overhead.py

A 3x3 convolution of one 8x8 image with one channel, whose kernel takes below a microsecond. The best
of many short batches counts, since everything else on a machine only adds.
"""

import time

import numpy as np

import convgrad


def microseconds(call, batches=300, calls=100):
    best = float("inf")
    for _ in range(batches):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - begin) / calls)
    return best * 1e6


def report(name, call):
    print(f"{name:32} {microseconds(call):6.2f} us")


src, weights = np.ones((1, 8, 8, 1), np.float32), np.ones((3, 3, 1, 1), np.float32)
dst = convgrad.convolution(src, weights)
out = np.empty_like(dst)
compiled = convgrad.compile("convolution", [src, weights])
report("NumPy, convolution", lambda: convgrad.convolution(src, weights))
report("NumPy, out given", lambda: convgrad.convolution(src, weights, out=out))
report(
    "NumPy, backward data",
    lambda: convgrad.convolution_backward_data(dst, weights, (1, 8, 8, 1)),
)
report(
    "NumPy, backward weights",
    lambda: convgrad.convolution_backward_weights(src, dst, (3, 3, 1, 1)),
)
report("NumPy, both gradients", lambda: convgrad.convolution_backward(src, dst, weights))
report("NumPy, compiled", lambda: compiled(src, weights))
report("NumPy, compiled, out given", lambda: compiled(src, weights, out=out))

try:
    import ml_dtypes
except ImportError:
    pass
else:
    half = [x.astype(ml_dtypes.bfloat16) for x in (src, weights)]
    report("NumPy, bf16", lambda: convgrad.convolution(*half))

try:
    import torch

    import convgrad.torch
except ImportError:
    pass
else:
    tensors = [torch.from_numpy(x) for x in (src, weights)]
    images = [torch.ones(1, 1, 8, 8), torch.ones(1, 1, 3, 3)]
    report("PyTorch, convolution", lambda: convgrad.convolution(*tensors))
    torch.set_num_threads(1)
    print("operators of convgrad.torch:", "C++" if convgrad.torch.native_operators else "Python")
    functions = {"convgrad.torch": convgrad.torch.conv2d, "torch": torch.nn.functional.conv2d}

    def compare(what, calls):
        """Both in turns, the best of each, and how they relate."""
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(10):
            for name, call in calls.items():
                best[name] = min(best[name], microseconds(call, batches=30))
        for name, time in best.items():
            print(f"{name + ', ' + what:32} {time:6.2f} us")
        print(f"{'ratio, ' + what:32} {best['convgrad.torch'] / best['torch']:6.2f}")

    with torch.no_grad():
        compare("conv2d", {n: lambda f=f: f(*images) for n, f in functions.items()})
    wanted = [t.clone().requires_grad_() for t in images]
    compare("conv2d, autograd", {n: lambda f=f: f(*wanted) for n, f in functions.items()})
    outs = {n: f(*wanted) for n, f in functions.items()}
    grad = torch.ones(1, 1, 6, 6)
    compare(
        "its backward",
        {
            n: lambda o=o: torch.autograd.grad(o, wanted, grad, retain_graph=True)
            for n, o in outs.items()
        },
    )
