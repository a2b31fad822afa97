"""The subcommands of ``blamespan``, one module per command or family."""
