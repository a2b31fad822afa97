"""Lint of traces: what a run lacks for good verdicts (``span_rules``), and what adds it (``fix_lines``)."""

from collector_processor.lint.span_rules import (
    INFERRED,
    RULES,
    Finding,
    Severity,
    content_lines,
    limit_line,
    lint,
)

__all__ = ["INFERRED", "RULES", "Finding", "Severity", "content_lines", "limit_line", "lint"]
