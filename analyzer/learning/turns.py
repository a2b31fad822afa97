"""Who acts when, as figures a step: its place in the run, and its turn among its speaker's. Pure.

Names are compared and never read: the same run under other names has the same figures.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

from analyzer.agent_names import normalise
from analyzer.learning.columns import READ, Columns, counted_before
from analyzer.reading import Reading, Role
from semconv.model import StepKind

PLACE: Final = (
    "place",
    "place_share",
    "place_log",
    "place_from_end",
    "run_length",
    "acted_before",
    "acted_before_share",
    "first_act",
)
SPEAKER: Final = (
    "speaker_share",
    "speaker_count",
    "speaker_before",
    "speaker_first",
    "speaker_last",
    "speaker_again",
    "speaker_goes_on",
    "acting",
    "coordinating",
    "calling",
    "stating",
    "handing_over",
    "after_handover",
    "after_tool",
    "before_tool",
    "speakers_before",
    "acting_in_code",
    "acting_in_prose",
)
LED: Final = (
    "led_acting",
    "led_place",
    "led_place_share",
    "led_acted_before",
    "led_first_act",
    "led_speaker_before",
)


def place_figures(reading: Reading) -> Columns:
    """Return ``PLACE``: where in the run each step stands, counted in steps and in turns of work."""
    steps = range(len(reading.steps))
    n = len(reading.steps)
    acted = counted_before(role is Role.ACTING for role in reading.roles)
    acting = max(1, sum(role is Role.ACTING for role in reading.roles))
    return {
        "place": steps,
        "place_share": [i / max(1, n - 1) for i in steps],
        "place_log": [math.log1p(i) for i in steps],
        "place_from_end": [math.log1p(n - 1 - i) for i in steps],
        "run_length": [math.log1p(n)] * n,
        "acted_before": [math.log1p(count) for count in acted],
        "acted_before_share": [count / acting for count in acted],
        "first_act": [
            float(role is Role.ACTING and not count) for role, count in zip(reading.roles, acted, strict=True)
        ],
    }


def speaker_figures(reading: Reading) -> Columns:
    """Return ``SPEAKER``: how much and when its agent speaks, in what role, and around which tools."""
    names = [normalise(step.agent) for step in reading.steps]
    n, said = len(names), Counter(names)
    before, so_far = [], Counter[str]()
    for name in names:
        before.append(so_far[name])
        so_far[name] += 1
    roles = reading.roles
    new = counted_before(not count for count in before)
    code = ["```" in step.output[:READ] for step in reading.steps]
    return {
        "speaker_share": [said[name] / n for name in names],
        "speaker_count": [math.log1p(len(said))] * n,
        "speaker_before": [math.log1p(count) for count in before],
        "speaker_first": [float(not count) for count in before],
        "speaker_last": [float(count + 1 == said[name]) for name, count in zip(names, before, strict=True)],
        "speaker_again": [float(i > 0 and names[i - 1] == name) for i, name in enumerate(names)],
        "speaker_goes_on": [float(i + 1 < n and names[i + 1] == name) for i, name in enumerate(names)],
        "acting": [float(role is Role.ACTING) for role in roles],
        "coordinating": [float(role is Role.COORDINATING) for role in roles],
        "calling": [float(role in (Role.CALL, Role.RELAYING)) for role in roles],
        "stating": [float(role is Role.STATING) for role in roles],
        "handing_over": [float(step.kind is StepKind.HANDOFF) for step in reading.steps],
        "after_handover": [float(i > 0 and reading.steps[i - 1].kind is StepKind.HANDOFF) for i in range(n)],
        "after_tool": [float(i > 0 and reading.steps[i - 1].kind is StepKind.TOOL) for i in range(n)],
        "before_tool": [float(i + 1 < n and reading.steps[i + 1].kind is StepKind.TOOL) for i in range(n)],
        "speakers_before": [math.log1p(count) for count in new],
        "acting_in_code": [
            float(role is Role.ACTING and coded) for role, coded in zip(roles, code, strict=True)
        ],
        "acting_in_prose": [
            float(role is Role.ACTING and not coded) for role, coded in zip(roles, code, strict=True)
        ],
    }


def led_figures(reading: Reading) -> Columns:
    """Return ``LED``: place and turn once more, where an agent says who works next, and 0 where none does.

    A place means something else there: turns are handed out, and taken over and over.
    """
    led = float(any(role is Role.COORDINATING for role in reading.roles))
    place, speaker = place_figures(reading), speaker_figures(reading)
    return {
        name: [led * value for value in column]
        for name, column in (
            ("led_acting", speaker["acting"]),
            ("led_place", place["place_log"]),
            ("led_place_share", place["place_share"]),
            ("led_acted_before", place["acted_before"]),
            ("led_first_act", place["first_act"]),
            ("led_speaker_before", speaker["speaker_before"]),
        )
    }
