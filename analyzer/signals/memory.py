"""Caches that hold texts of runs, of signals, lineage and texts; cleared when a run is deleted."""

from __future__ import annotations

from typing import Final

from analyzer.lineage import after_nothing, claims, dates, deeds, entries, figures, known, sources, values
from analyzer.signals.suspicion import admitted, answer_parts
from analyzer.texts import numbers, run_view, tool_names, wordings, wrong_numbers
from analyzer.texts.commands import forget_commands
from analyzer.texts.wordings.folding import fold
from analyzer.texts.wordings.languages import forget_samples

_CACHES: Final = (
    *(
        sources.sources,
        sources.columns_of,
        claims.judged,
        claims.world_of,
        figures.figures,
        figures.words_near,
    ),
    *(dates.dates_in, dates.clocks_in, dates.writes_day_first),
    *(
        entries.document_in,
        entries.fields_in,
        entries.lists_in,
        entries.tables_in,
        entries.rows_in,
        after_nothing.is_empty,
    ),
    *(values.values_in, known.counts_in, known.words_in, known.known_of, fold),
    *(admitted.words_of, answer_parts.parts_of),
    *(numbers.numbers, wordings.mentions_fault, wrong_numbers.wrong_results),
    *(deeds.acts_of, deeds.claims_in, deeds.spaced, tool_names.words_in, tool_names.deed_of),
)


def forget_texts() -> None:
    """Drop the texts that this process remembers of the last runs that it read."""
    run_view.forget_last()
    forget_samples()
    forget_commands()
    for cache in _CACHES:
        cache.cache_clear()
