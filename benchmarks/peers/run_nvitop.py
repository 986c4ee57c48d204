"""Runs nvitop-exporter over idlewatt's constant stand-in; started by `benchmarks/agent.py`.

::

    PYTHON run_nvitop.py CHECKOUT GPUS PORT

PYTHON is an environment that holds nvitop-exporter and not idlewatt, whose sources are found in
CHECKOUT.
"""

from __future__ import annotations

import importlib
import sys


def main() -> int:
    """Put the stand-in below this process's pynvml and serve."""
    checkout, gpus, port = sys.argv[1:4]
    sys.path.insert(0, checkout)
    constant = importlib.import_module("collector.simulator.constant")
    constant.install_constant(gpus=int(gpus), model="H100")
    sys.path.remove(checkout)
    sys.argv[:] = ["nvitop-exporter", "--hostname", "bench", "--port", port, "--interval", "1"]
    return int(importlib.import_module("nvitop_exporter.cli").main())


if __name__ == "__main__":
    sys.exit(main())
