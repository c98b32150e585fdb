import sys

from perftop.cli import main

sys.exit(main())
