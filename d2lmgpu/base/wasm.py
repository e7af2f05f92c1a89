"""Whether this is Python for WebAssembly, as in a browser tab, which has no threads, processes or signals."""

import sys

IN_A_TAB = sys.platform in ("emscripten", "wasi")
