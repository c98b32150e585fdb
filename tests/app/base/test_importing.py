"""Imports of large modules."""

from __future__ import annotations

import os
import subprocess
import sys


def test_numpy_comes_without_threads_and_a_command_does_not_inherit_that() -> None:
    code = (
        "import gc, os\n"
        "from perftop.base.importing import lean\n"
        "with lean():\n"
        "    assert not gc.isenabled()\n"
        "    import numpy\n"
        "assert gc.isenabled() and gc.get_freeze_count()\n"
        "assert len(os.listdir('/proc/self/task')) == 1\n"
        "assert 'OPENBLAS_NUM_THREADS' not in os.environ\n"
    )
    env = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)
