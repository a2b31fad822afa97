"""``python -m analyzer`` is ``blamespan``."""

from analyzer.cli import main

if __name__ == "__main__":
    main()
