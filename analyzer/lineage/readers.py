"""The readers of a run's lineage: each looks for one way in which a value goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from analyzer.lineage.after_nothing import filled_gaps, values_after_nothing
from analyzer.lineage.arguments import contradicting_arguments
from analyzer.lineage.barred import barred_times
from analyzer.lineage.changed import changed_values
from analyzer.lineage.checks import refused_deeds
from analyzer.lineage.clue import Clue
from analyzer.lineage.cut_short import cut_lists
from analyzer.lineage.deeds import claimed_deeds, exceeded_maxima, exceeded_orders, misreported_deeds
from analyzer.lineage.done_again import repeated_deeds
from analyzer.lineage.dropped import dropped_entries
from analyzer.lineage.failed_tests import failed_tests
from analyzer.lineage.flags import unmet_flags
from analyzer.lineage.known import Known
from analyzer.lineage.limits import broken_limits
from analyzer.lineage.misstated import misstated_values
from analyzer.lineage.offered import unmade_calls
from analyzer.lineage.older import older_values, values_before_update, values_of_other_times
from analyzer.lineage.other_calls import calls_for_other_rows
from analyzer.lineage.out_of_date import other_periods, other_years, outdated_results
from analyzer.lineage.overstated import overstated_deeds
from analyzer.lineage.pages import unread_pages
from analyzer.lineage.records import contradicting_fields
from analyzer.lineage.relayed import relayed_values
from analyzer.lineage.retold import retold_figures
from analyzer.lineage.rows import values_of_other_rows
from analyzer.lineage.ruled_out import barred_deeds, deeds_after_correction, deeds_on_barred
from analyzer.lineage.selected import wrongly_selected
from analyzer.lineage.siblings import figures_of_siblings, figures_of_unasked
from analyzer.lineage.superseded import replaced_versions
from analyzer.lineage.targets import deeds_on_siblings, deeds_on_untold
from analyzer.lineage.totals import wrong_aggregates, wrong_totals
from analyzer.lineage.units import changed_units
from analyzer.lineage.weekdays import wrong_weekdays

MOST_CLUES: Final = 20
"""Clues of one reader that are looked at: a run with more has one cause for them."""
LineageReader: TypeAlias = Callable[[Known], Iterator[Clue]]

READERS: Final[tuple[LineageReader, ...]] = (
    changed_values,
    contradicting_fields,
    misstated_values,
    contradicting_arguments,
    deeds_on_siblings,
    deeds_on_barred,
    barred_deeds,
    deeds_on_untold,
    deeds_after_correction,
    cut_lists,
    dropped_entries,
    wrongly_selected,
    unread_pages,
    outdated_results,
    other_periods,
    other_years,
    replaced_versions,
    older_values,
    values_before_update,
    values_of_other_times,
    changed_units,
    broken_limits,
    barred_times,
    unmet_flags,
    exceeded_maxima,
    exceeded_orders,
    refused_deeds,
    relayed_values,
    retold_figures,
    misreported_deeds,
    claimed_deeds,
    unmade_calls,
    failed_tests,
    overstated_deeds,
    repeated_deeds,
    values_after_nothing,
    filled_gaps,
    calls_for_other_rows,
    values_of_other_rows,
    figures_of_siblings,
    figures_of_unasked,
    wrong_weekdays,
    wrong_totals,
    wrong_aggregates,
)
