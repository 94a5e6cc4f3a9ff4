"""Each file runs by itself, as a module (``python -m benchmarks.step``), and by the runner."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # they import each other as files of one folder
