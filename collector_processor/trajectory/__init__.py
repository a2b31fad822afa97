"""Ordering of a sound trace: which spans are steps, in which order, and which agent each belongs to.

``acts`` reads the spans through the dialects, ``PASSES`` turn the acts into ordered steps, and
``build_trajectory`` writes the trajectory. A pass takes an immutable record and returns a new one
(the shape is that of Jaeger's ``internal/adjuster/standard.go``). Steps are ordered by start in
integer nanoseconds; ties are broken by place in the tree, never by arrival. Pure.
"""

from __future__ import annotations

from typing import Final

from collector_processor.trajectory.acts import Pass, fail_unended, read_acts
from collector_processor.trajectory.agents import (
    add_unseen_handoffs,
    drop_trailing_summaries,
    name_by_handoff,
    name_by_instructions,
    name_by_messages,
    name_by_request,
    name_lead,
)
from collector_processor.trajectory.build_trajectory import trajectory_of
from collector_processor.trajectory.endings import mark_stops
from collector_processor.trajectory.functions import (
    name_behind_classes,
    name_behind_tools,
    name_by_function,
    name_by_prompt,
)
from collector_processor.trajectory.leaves import add_unseen_tools, choose_steps
from collector_processor.trajectory.relations import group_parallel_steps
from collector_processor.trajectory.siblings import attach_detached_agents, merge_duplicate_calls
from collector_processor.trajectory.step_texts import inherit_content
from semconv.dialects import USUAL, Reader
from semconv.model import Completion, Trace, Trajectory

PASSES: Final[tuple[Pass, ...]] = (
    mark_stops,  # before any pass that asks what failed
    attach_detached_agents,  # first of the names: an agent whose calls are its siblings is not a step itself
    merge_duplicate_calls,  # before steps are chosen, which counts the model calls below an act
    name_by_function,  # after agents beside calls are found; before steps are chosen, which compares agents
    name_by_prompt,  # where one function is around several agents' calls
    name_behind_tools,
    name_behind_classes,
    choose_steps,  # all passes below work on the steps alone
    drop_trailing_summaries,
    inherit_content,  # arguments may name the target of a handoff: before the passes that follow handoffs
    group_parallel_steps,  # before names are given: only tools whose agent the spans name end a model call
    add_unseen_tools,  # after groups, which are of spans; before names, which requests and results tell
    name_by_messages,
    name_by_instructions,
    name_by_request,  # after the model calls have their names
    name_by_handoff,  # last of the run's names, since it relies on order alone; not inside parallel groups
    name_lead,  # a name of ours, where no other is found
    add_unseen_handoffs,  # once all agents are known and no later pass takes it for a step with a span
)


def order(trace: Trace, reader: Reader = USUAL) -> Trajectory:
    """Return the run's steps in order, with its task, answer and outcome.

    Expects the output of ``repair``; ``trace`` may hold several trace ids that form one run. A trace without
    steps gives an empty trajectory with a warning that says why.
    """
    ordering = read_acts(trace.spans, reader)
    if trace.completion is not Completion.IDLE_OPEN:  # else the call may still go on
        ordering = fail_unended(ordering)
    for each in PASSES:
        ordering = each(ordering)
    return trajectory_of(trace, ordering)


__all__ = ["PASSES", "order"]
