"""What people say of verdicts: checked, kept with the runs it is about, and made into lessons."""

from __future__ import annotations

from analyzer.labels.label import Label, LabelKind, LabelRefused, Said, as_label, place_of, to_json

__all__ = ["Label", "LabelKind", "LabelRefused", "Said", "as_label", "place_of", "to_json"]
