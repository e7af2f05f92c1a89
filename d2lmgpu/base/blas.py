"""Limit BLAS, which multiplies matrices for NumPy, to one thread, because each virtual device computes with one thread.

threadpoolctl does this for the libraries that it knows. It does not know Accelerate, which NumPy may use on Macs, and
which reads an environment variable instead. Importing this package sets that variable, unless the user has set it; this
has an effect only if NumPy is imported later.
"""

import os
import sys

VARIABLE = "VECLIB_MAXIMUM_THREADS"
IN_TIME = "numpy" not in sys.modules

os.environ.setdefault(VARIABLE, "1")


def limit_blas_threads():
    """Limit BLAS to one thread in the whole process."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=1, user_api="blas")


def check_blas_threads():
    """Raise RuntimeError if no BLAS could be limited to one thread."""
    from threadpoolctl import threadpool_info

    is_known = any(pool["user_api"] == "blas" for pool in threadpool_info())
    is_asked = sys.platform == "darwin" and IN_TIME and os.environ.get(VARIABLE) == "1"
    if not is_known and not is_asked:
        why = "threadpoolctl does not know the BLAS of NumPy"
        if sys.platform == "darwin":
            why += f"; if it is Accelerate, import d2lmgpu before NumPy, and set {VARIABLE} to 1 or not at all"
        raise RuntimeError(why)
