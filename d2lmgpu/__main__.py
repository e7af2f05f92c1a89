"""``python -m d2lmgpu`` is the command ``d2lmgpu``."""

import sys

from .cli import main

sys.exit(main())
