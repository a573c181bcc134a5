"""What a freshly installed package must do on a machine that has no compiler: all ops, exactly."""

import os
import shutil
import sys

import numpy as np

import convgrad


def gather(src, taps, steps):
    """(N, Y, K, C): what each output position sees."""
    at = np.arange(steps)[:, None] + np.arange(taps)[None, :]
    return src[:, at, :]


def check(dtype):
    rng = np.random.default_rng(0)
    whole = lambda *shape: rng.integers(-4, 5, shape).astype(np.float64)
    src, weights, diff_dst = whole(3, 40, 20), whole(3, 20, 36), whole(3, 38, 36)
    seen = gather(src, 3, 38)
    dst = np.einsum("nykc,kco->nyo", seen, weights)
    diff_weights = np.einsum("nykc,nyo->kco", seen, diff_dst)
    diff_src = np.zeros_like(src)
    for k in range(3):
        diff_src[:, k : k + 38] += np.einsum("nyo,co->nyc", diff_dst, weights[k])
    a, w, d = (x.astype(dtype) for x in (src, weights, diff_dst))
    got = convgrad.convolution_backward(a, d, w, dtype="f32")
    pairs = (
        (convgrad.convolution(a, w), dst),
        (got.diff_src, diff_src),
        (got.diff_weights, diff_weights),
        (convgrad.convolution_backward_data(d, w), diff_src),
        (convgrad.convolution_backward_weights(a, d, weights.shape, dtype="f32"), diff_weights),
        (convgrad.conv_transpose(d, w), diff_src),
    )
    for mine, expected in pairs:
        assert np.array_equal(mine, expected.astype(mine.dtype)), dtype


if __name__ == "__main__":
    compilers = [name for name in ("cc", "c++", "gcc", "g++", "clang", "cmake") if shutil.which(name)]
    assert not compilers, compilers
    assert os.path.realpath(convgrad.__file__).startswith(os.path.realpath(sys.argv[1]))
    types = [np.float32, np.float16]
    try:
        import ml_dtypes
    except ImportError:
        pass
    else:
        types.append(ml_dtypes.bfloat16)
    for dtype in types:
        check(dtype)
    isa = convgrad.default_engine().instruction_set
    print(f"convgrad {convgrad.__version__}: {len(types)} types exact on {isa}")
