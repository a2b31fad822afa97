"""Failures that come again: which are the same, how often, and whether it is more than it was.

Pure, told the time. What is kept and who is told are ``issues/store.py``'s and the
notifiers' business.
"""

from __future__ import annotations

from analyzer.recurrence.fingerprint import Fingerprint, fingerprint
from analyzer.recurrence.issue import (
    Change,
    Issue,
    IssueRules,
    IssueState,
    Seen,
    age,
    mute,
    resolve,
    seen,
    withdrawn,
)
from analyzer.recurrence.share import Count, Share, compared, share_of
from analyzer.recurrence.watch import Watch, begin_watch, observe, threshold

__all__ = [
    "Change",
    "Count",
    "Fingerprint",
    "Issue",
    "IssueRules",
    "IssueState",
    "Seen",
    "Share",
    "Watch",
    "age",
    "begin_watch",
    "compared",
    "fingerprint",
    "mute",
    "observe",
    "resolve",
    "seen",
    "share_of",
    "threshold",
    "withdrawn",
]
