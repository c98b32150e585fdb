"""What a program that runs for long imports."""

from __future__ import annotations

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
