"""Commands: `python -m toolgate_client resume --config FILE`."""

import argparse
import logging
import sys
from pathlib import Path

from toolgate_client import resume
from toolgate_client.errors import ToolgateError


def main(arguments: list[str]) -> int:
    """Run a command and return its exit code: 2 for a wrong configuration."""
    parser = argparse.ArgumentParser(prog="python -m toolgate_client", description="Commands of Toolgate's client.")
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("resume", help="resume sessions of coding agents that wait for a decision")
    runner.add_argument("--config", type=Path, required=True, help="the owner's configuration, a TOML file")
    runner.add_argument("--once", action="store_true", help="resume what is decided now, wait for it, and end")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        resume.main(options.config, once=options.once)
    except ToolgateError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
