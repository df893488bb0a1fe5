"""The small NumPy backend that core is tested with serves here too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "amanda-core" / "tests"))
