"""``python -m phalanx.cli``."""

from phalanx.cli import main

if __name__ == "__main__":
    main()
