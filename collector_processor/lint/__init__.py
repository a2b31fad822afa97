"""What a trace lacks for good attribution, and the line that mends it: the core of ``blamespan lint``.

``rules`` looks at one run, rule by rule; ``mends`` knows the line for the framework seen. Pure.
"""

from collector_processor.lint.finding import Finding, Severity
from collector_processor.lint.rules import RULES, lint

__all__ = ["RULES", "Finding", "Severity", "lint"]
