"""``python -m driftnorm``: the command line."""

from driftnorm.cli import main

if __name__ == "__main__":
    main()
