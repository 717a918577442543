"""`esopt` as a terminal starts it: a job in the background would be started with Ctrl-C ignored."""

import signal
import sys

from esopt_jax.cli.main import main

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
