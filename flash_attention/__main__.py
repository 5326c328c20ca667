import sys

from .doctor.cli import command

if __name__ == "__main__":
    sys.exit(command())
