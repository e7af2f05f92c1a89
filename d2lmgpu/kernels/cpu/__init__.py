"""The training step's arithmetic on one CPU core: the same results as the layers', several times as fast.

Images are *last* here: a micro-batch of n images is an array (C, H, W, n), so that whatever is done to a pixel is done
to n neighbours in memory. Notebook 10 leads from the layers to these stages, one step at a time.
"""

from .passes import Pass as Pass
from .program import DTYPES as DTYPES, loss_and_grads as loss_and_grads, outputs as outputs
