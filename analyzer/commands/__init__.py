"""The subcommands of ``blamespan``, one module a command or a family."""
