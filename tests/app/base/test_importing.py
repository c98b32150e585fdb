"""What a program that runs for long imports."""

from __future__ import annotations

import os
import subprocess
import sys


def test_asyncio_comes_without_ssl_which_can_be_imported_later() -> None:
    code = (
        "import sys\n"
        "from perftop.base.importing import lean\n"
        "with lean():\n"
        "    import asyncio\n"
        "assert '_ssl' not in sys.modules\n"
        "import ssl\n"
        "assert ssl.OPENSSL_VERSION\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_numpy_comes_without_threads_and_a_command_is_not_told() -> None:
    code = (
        "import os\n"
        "from perftop.base.importing import lean\n"
        "with lean():\n"
        "    import numpy\n"
        "assert len(os.listdir('/proc/self/task')) == 1\n"
        "assert 'OPENBLAS_NUM_THREADS' not in os.environ\n"
    )
    env = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)
