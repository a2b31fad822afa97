"""Mining of a workflow's invariants from the facts of its known runs. Pure; linear in the runs.

Candidates are what the runs show. An invariant that one run alone breaks is counted against its kind: it is
what would have been believed without that run, and would then have accused it (leave one out).

Which kinds may accuse a run that reported nothing is decided in the fixed order of ``Kind``: kinds are added
while the upper 95 % limit of good runs that any of them accuses stays within ``MOST_ACCUSED``. The limit
counts what leaving one out shows, and for kinds with structure also ``_BELIEVED`` runs, an assumption: by
counting alone no kind could speak below 149 runs without an exception. Each exception takes back 88 runs.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations
from typing import Final

from analyzer.history.facts import ANSWER, MANY, TASK, TURN, Argument, Call, Facts
from analyzer.history.invariants import (
    CALLED,
    NOT_CALLED,
    Broken,
    Held,
    Invariant,
    Kind,
    Run,
    check,
    form_of,
    number_in,
)
from analyzer.inquiry.intervals import binomial_at_most
from semconv.record import record, replace

LEAST_RUNS: Final = 10
"""Known runs below which nothing is mined."""
LEAST_SUPPORT: Final = 5
"""Runs that must hold an invariant."""
_TENTATIVE_SUPPORT: Final = 3
"""The same, for one that only explains a failure which nothing else explains."""
_ENOUGH_RUNS: Final = 60
"""Known runs from which five show whatever a workflow does in one run of ten: nothing is tentative then."""
MAX_RUNS: Final = 300
MOST_ACCUSED: Final = 0.02
"""Upper limit of the share of good runs that all accusing kinds accuse together."""
_BELIEVED: Final[Mapping[Kind, int]] = {
    **dict.fromkeys((Kind.STANDS, Kind.NEEDS, Kind.AMONG), 139),
    **dict.fromkeys((Kind.HAPPENS, Kind.AFTER, Kind.WHEN, Kind.WHEN_NOT, Kind.EQUALS), 113),
    **dict.fromkeys((Kind.TIMES, Kind.CONSTANT, Kind.SOURCED), 113),
}
"""Runs without an exception that are assumed beside the known ones: with 139, ten known runs may accuse, with
113, forty. About the other kinds, habits and limits that more runs widen, nothing is assumed."""
ACROSS_VERSIONS: Final = frozenset(_BELIEVED)
"""Kinds that say something of runs with other prompts, tools or models."""
PASSING: Final = "passing"
"""Runs whose success somebody stated."""
UNREMARKABLE: Final = "unremarkable"
"""Runs that nothing says failed; they accuse none, for some may have failed."""
OTHER_VERSIONS: Final = "other versions' passing"
"""Passing runs with other prompts, tools or models: they accuse none, and say nothing of tools and texts."""
_ACCUSING_SUPPORT: Final = 20
"""Support below which only invariants with structure accuse."""
_MOST_TOOLS: Final = 32
_MOST_CHOICES: Final = 4
"""Values of a path that can be a condition, or that an argument is one of."""
_MOST_CONDITIONS: Final = 64
_CHANCE: Final = 0.1
"""Expected number of invariants, of all that were tried, that hold by chance."""
_TENTATIVE_CHANCE: Final = 1.0
"""The same, for what only explains a failure which nothing else explains."""
_RARE: Final = 0.02
"""Least share of a kind's invariants that one run breaks: many of a kind make it not much surer."""
_FEW: Final = 20
"""Runs that hold an invariant for each one that breaks it: fewer are no exceptions."""
_DOUBT: Final = 0.05
_PRECISE: Final = 1e-5
NO_TOOL: Final = "\t"
"""Name of no tool."""
_ORDERED: Final = 2
"""Runs that show an order, for the place of a missing call."""
_COVERING: Final = 3
"""Sources that an argument's values may come from in turn, and runs that must use each."""
STRUCTURED: Final = frozenset({Kind.STANDS, Kind.NEEDS, Kind.AMONG})


@record
class Mined:
    """A workflow's invariants."""

    runs: int
    basis: str
    """What says that the known runs are good: ``passing``, or ``unremarkable``."""
    held: tuple[Held, ...]
    exceptions: Mapping[Kind, float]
    """How often a run breaks an invariant of a kind that all others held, for each invariant and run."""
    accusing: frozenset[Kind]
    """Kinds that may accuse a run that reported nothing."""
    limit: float
    """Upper 95 % limit of the share of good runs that these accuse."""
    tentative: tuple[Held, ...] = ()
    """What few runs held, or what may have held by chance: explains a failure that nothing else explains."""

    def accuses(self, one: Held) -> bool:
        """Return whether an invariant may accuse a run that reported nothing."""
        return one.invariant.kind in self.accusing and not one.broken and _is_strong(one)

    def evidence(self, one: Held) -> float:
        """Return the log-odds that a run which breaks an invariant is no other good run."""
        seen = one.broken + one.lone
        return math.log(
            (one.support + 1) / (seen + 1 if seen else self.exceptions.get(one.invariant.kind, 1.0))
        )


def _is_strong(one: Held) -> bool:
    if one.invariant.kind in {Kind.STANDS, Kind.AMONG}:
        return one.distinct >= LEAST_SUPPORT
    return one.invariant.kind in STRUCTURED or one.support >= _ACCUSING_SUPPORT


def mine(known: Sequence[Facts], basis: str = PASSING) -> Mined:
    """Return what held in all, or nearly all, of a workflow's known runs."""
    runs = [Run(facts) for facts in known[:MAX_RUNS]]
    if len(runs) < LEAST_RUNS:
        return Mined(runs=len(runs), basis=basis, held=(), exceptions={}, accusing=frozenset(), limit=1.0)
    found = _search(runs, basis, LEAST_SUPPORT, _CHANCE)
    is_few = len(runs) < _ENOUGH_RUNS
    tentative = _search(runs, basis, _TENTATIVE_SUPPORT, _TENTATIVE_CHANCE).held if is_few else []
    accusing, limit = _accusing(found.lone, len(runs)) if basis == PASSING else (frozenset[Kind](), 0.0)
    return Mined(
        runs=len(runs),
        basis=basis,
        held=tuple(found.held),
        exceptions=found.exceptions(),
        accusing=accusing,
        limit=limit,
        tentative=tuple(tentative),
    )


def _search(runs: Sequence[Run], basis: str, support: int, chance: float) -> _Found:
    found = _Found(runs, support, chance)
    found.try_all(_sources_of_arguments(found))
    found.try_all(_orders(found))
    found.try_all(_conditions(found))
    found.try_all(_shapes(found))
    if basis == OTHER_VERSIONS:
        found.held[:] = [one for one in found.held if one.invariant.kind in ACROSS_VERSIONS]
    return found


class _Found:
    """Invariants found so far, and the runs that alone break another one."""

    def __init__(self, runs: Sequence[Run], support: int, chance: float) -> None:
        """Start without any; ``support`` is the fewest runs, ``chance`` the expected number by chance."""
        self.runs: Final = runs
        self.least: Final = support
        self._chance: Final = chance
        self.held: Final[list[Held]] = []
        self.lone: Final[defaultdict[Kind, set[int]]] = defaultdict(set)
        self._exceptions: Final[Counter[Kind]] = Counter()
        self.most_broken: Final = max(1, len(runs) // _FEW)
        shown = Counter(source for run in runs for source in run.sources)
        self.familiar: Final = frozenset(source for source, count in shown.items() if count > 1)
        with_tool = Counter(tool for run in runs for tool in run.first)
        agents = sum(tool.startswith(TURN) for tool in with_tool)
        self.with_tool: Final = {
            tool: count
            for tool, count in with_tool.most_common(_MOST_TOOLS)
            if agents > 1 or not tool.startswith(TURN)
        }

        self.before: Final = Counter(
            (one, other)
            for run in runs
            for one in run.first
            for other in run.first
            if run.first[one] < run.first[other] and one in self.with_tool and other in self.with_tool
        )
        """Runs by pairs of tools: the first was called before the second."""
        self._conditions: Final = self.conditions()

    def earlier(self, tool: str) -> frozenset[str]:
        """Return the tools that are called before a tool, if both are called."""
        pairs = ((one, self.before[one, tool], self.before[tool, one]) for one in self.with_tool)
        return frozenset(one for one, count, reverse in pairs if count >= _ORDERED and not reverse)

    def later(self, tool: str) -> frozenset[str]:
        """Return the tools that are called after a tool, if both are called."""
        pairs = ((one, self.before[tool, one], self.before[one, tool]) for one in self.with_tool)
        return frozenset(
            one
            for one, count, reverse in pairs
            if count >= _ORDERED and not reverse and one != ANSWER and not one.startswith(TURN)
        )

    def conditions(self) -> dict[tuple[str, str], frozenset[int]]:
        """Return what may decide about a call, with its runs: values of results and arguments, other calls.

        Of those of one sort that the same runs have, the first stands for all.
        """
        found: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        for number, run in enumerate(self.runs):
            for path, values in run.choices.items():
                for value in values:
                    found[path, value].add(number)
        of_path = Counter(path for path, _ in found)
        few = {one: runs for one, runs in found.items() if 1 < of_path[one[0]] <= _MOST_CHOICES}
        for tool, count in self.with_tool.items():
            if count < len(self.runs):
                few[tool, CALLED] = self.calling(tool)
                few[tool, NOT_CALLED] = set(range(len(self.runs))) - few[tool, CALLED]
        alone = {
            (_sort_of(one), frozenset(runs)): one
            for one, runs in reversed(few.items())
            if len(runs) >= self.least
        }
        most = sorted(alone.items(), key=lambda one: (-len(one[0][1]), one[1]))[:_MOST_CONDITIONS]
        return {one: runs for (_, runs), one in most}

    def calling(self, tool: str) -> set[int]:
        """Return the runs that call a tool."""
        return {number for number, run in enumerate(self.runs) if tool in run.first}

    def deciding(self, having: set[int], among: set[int], tried: int) -> Iterator[tuple[str, str]]:
        """Yield conditions of which all runs ``among`` these have something, which would hardly be chance.

        The chance is that of drawing as many runs without a single one that does not have it.
        """
        tried = max(1, len(self._conditions) * tried)
        n, without = len(among), len(among - having)
        for condition, runs in self._conditions.items():
            own = runs & among
            if own and own <= having:
                chance = math.comb(n - len(own), without) / math.comb(n, without)
                if chance * tried <= self._chance:
                    yield condition

    def try_all(self, candidates: Iterable[Invariant]) -> None:
        for candidate in candidates:
            self.add(candidate)

    def add(self, one: Invariant) -> Held | None:
        """Check an invariant in all runs; return it unless more than a few break it."""
        support, broken, values = 0, list[int](), set[str]()
        for number, run in enumerate(self.runs):
            result = check(one, run)
            if isinstance(result, Broken):
                broken.append(number)
                if len(broken) > self.most_broken:
                    return None
            elif result:
                support += 1
                values.update(argument.value for _, _, argument in run.arguments(one) if one.path)
        held = Held(invariant=one, support=support, broken=len(broken), distinct=len(values))
        if support < self.least:
            return None
        if len(broken) == 1:
            self._count_lone(held, broken)
        if support < _FEW * len(broken):
            return None
        self.held.append(held)
        return held

    def settle(self, one: Invariant, support: int, lone: Sequence[int]) -> None:
        """Add an invariant whose limits are those of the runs; ``lone`` runs alone reach them."""
        held = Held(invariant=one, support=support, lone=len(lone))
        self.held.append(held)
        self._count_lone(held, lone)

    def has_source(self, tool: str, path: str) -> bool:
        """Return whether it is known where an argument's value stands before."""
        held = (one.invariant for one in self.held)
        return any(one.kind in STRUCTURED and (one.tool, one.path) == (tool, path) for one in held)

    def _count_lone(self, held: Held, runs: Sequence[int]) -> None:
        self._exceptions[held.invariant.kind] += len(runs)
        if _is_strong(held):
            self.lone[held.invariant.kind].update(runs)

    def exceptions(self) -> Mapping[Kind, float]:
        """Return how many runs alone break an invariant of each kind, for each invariant."""
        counts = Counter(one.invariant.kind for one in self.held)
        usual = (self._exceptions.total() + 1) / (counts.total() + 1)
        return {
            kind: min(1.0, max(_RARE, (self._exceptions[kind] + usual) / (count + 1)))
            for kind, count in counts.items()
        }


def _sort_of(condition: tuple[str, str]) -> str:
    """Return whether a condition is a call, a value of an argument or one of a result."""
    where, value = condition
    return value if value in {CALLED, NOT_CALLED} else "argument" if where.endswith("\t") else "result"


def _sources_of_arguments(found: _Found) -> Iterator[Invariant]:
    """Yield where values of arguments stand: in one place always, or else in few in turn."""
    counts: Counter[tuple[str, str, str]] = Counter()
    texts: Counter[tuple[str, str, str]] = Counter()
    for run in found.runs:
        for kind_of_text, counted in ((False, counts), (True, texts)):
            counted.update(
                {
                    (call.tool, argument.path, source)
                    for call in run.facts.calls
                    for argument in call.arguments
                    if (argument.kind == "text") is kind_of_text
                    for source in argument.sources
                    if source != MANY
                }
            )
    for (tool, path, source), count in texts.items():
        if count >= found.least:
            yield Invariant(kind=Kind.CONTAINS, tool=tool, path=path, other=source)
    by_argument: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for (tool, path, source), count in counts.items():
        if count >= _COVERING:
            by_argument[tool, path][source] = count
    for (tool, path), sources in by_argument.items():
        yield from _of_argument(found, tool, path, sources)


def _of_argument(found: _Found, tool: str, path: str, sources: Mapping[str, int]) -> Iterator[Invariant]:
    """Yield where an argument's value stands; ``sources`` are those that runs show, with their runs."""
    invariant = Invariant(kind=Kind.STANDS, tool=tool, path=path)
    least = sum(any(run.arguments(invariant)) for run in found.runs) - found.most_broken
    always = []
    for source in sources:
        one = Invariant(kind=Kind.EQUALS, tool=tool, path=path, other=source, familiar=found.familiar)
        held = found.add(one)
        if held is not None and not held.broken and held.support >= least:
            always.append(source)
    kind = Kind.STANDS if always else Kind.AMONG
    values = always or _cover(found, tool, path)
    if values:
        yield Invariant(kind=kind, tool=tool, path=path, values=frozenset(values), familiar=found.familiar)
    givers = {source.partition("\t")[0] for source in always if not source.endswith("\t") and source != TASK}
    if len(givers) == 1 and TASK not in always and tool not in givers:
        source = next(each for each in always if not each.endswith("\t"))
        yield Invariant(kind=Kind.NEEDS, tool=tool, path=path, other=givers.pop(), value=source)
    if not always:
        yield from _conditional(found, tool, path, sources)


def _cover(found: _Found, tool: str, path: str) -> list[str]:
    """Return the fewest sources, at most ``_COVERING``, of which nearly each run uses one; else nothing."""
    invariant = Invariant(kind=Kind.STANDS, tool=tool, path=path)
    shown = [argument.sources for run in found.runs for _, _, argument in run.arguments(invariant)]
    left = [sources for sources in shown if MANY not in sources and found.familiar.issuperset(sources)]
    chosen: list[str] = []
    while left and len(chosen) < _COVERING:
        counts = Counter(source for each in left for source in each)
        best, count = max(counts.items(), key=lambda one: (one[1], one[0]), default=("", 0))
        if count < _COVERING:
            break
        chosen.append(best)
        left = [each for each in left if best not in each]
    return chosen if len(left) <= max(1, len(shown) // _FEW) else []


def _conditional(found: _Found, tool: str, path: str, sources: Mapping[str, int]) -> Iterator[Invariant]:
    """Yield sources of a value that hold where a result has a value."""
    invariant = Invariant(kind=Kind.STANDS, tool=tool, path=path)
    using: defaultdict[str, set[int]] = defaultdict(set)
    among = set[int]()
    for number, run in enumerate(found.runs):
        for _, _, argument in run.arguments(invariant):
            among.add(number)
            for source in argument.sources:
                using[source].add(number)
    for source in sources:
        for where, value in found.deciding(using[source], among, tried=len(sources)):
            yield Invariant(
                kind=Kind.EQUALS,
                tool=tool,
                path=path,
                other=source,
                where=where,
                value=value,
                familiar=found.familiar,
            )


def _orders(found: _Found) -> Iterator[Invariant]:
    """Yield which tools are called at all, and which only before or after which other."""
    tools = list(found.with_tool)
    before = found.before
    for tool in tools:
        if found.with_tool[tool] >= len(found.runs) - found.most_broken:
            yield _missing(found, Kind.HAPPENS, (tool,))
    least = math.log2(max(2, len(tools) ** 2))
    for (one, other), count in before.items():
        if other != ANSWER and count >= max(found.least, least):
            yield Invariant(kind=Kind.AFTER, tool=other, other=one)
        if other != ANSWER and count >= found.least and found.with_tool[other] < len(found.runs):
            yield replace(_missing(found, Kind.LEADS, (other,)), other=one)


def _conditions(found: _Found) -> Iterator[Invariant]:
    """Yield what a result decides: the tools of which one is called where it has a value, or none is."""
    n = len(found.runs)
    branching = [(tool, count) for tool, count in found.with_tool.items() if count < n]
    everything = set(range(n))
    for tool, _ in branching:
        one, having = _missing(found, Kind.WHEN, (tool,)), found.calling(tool)
        yield from _where(found, one, having, len(branching))
        yield from _where(found, replace(one, kind=Kind.WHEN_NOT), everything - having, len(branching))
    for (tool, count), (other, more) in combinations(branching, 2):
        if min(count, more) < found.least or found.before[tool, other] or found.before[other, tool]:
            continue
        one = _missing(found, Kind.WHEN, (tool, other))
        if count + more >= n - found.most_broken:
            yield replace(one, kind=Kind.HAPPENS)
        else:
            yield from _where(found, one, found.calling(tool) | found.calling(other), len(branching) ** 2)


def _where(found: _Found, invariant: Invariant, having: set[int], tried: int) -> Iterator[Invariant]:
    """Yield an invariant for each condition that is known before its tool is called."""
    for where, value in found.deciding(having, set(range(len(found.runs))), tried=tried):
        giver = where.partition("\t")[0]
        is_before = found.before[giver, invariant.tool] and not found.before[invariant.tool, giver]
        is_call = value in {CALLED, NOT_CALLED}
        if (is_before and not is_call) or (invariant.kind is Kind.WHEN_NOT and value == CALLED):
            yield replace(invariant, where=where, value=value)


def _missing(found: _Found, kind: Kind, tools: Sequence[str]) -> Invariant:
    """Return an invariant about a call of one of two tools, with the tools before and after them."""
    tool, other = (*tools, NO_TOOL)[:2]
    later = found.later(tool) & found.later(other) if len(tools) > 1 else found.later(tool)
    return Invariant(kind=kind, tool=tool, other=other, values=found.earlier(tool), later=later)


def _shapes(found: _Found) -> Iterator[Invariant]:
    """Yield which arguments calls carry; settle limits of counts, values and texts."""
    _settle_values(found, Invariant(kind=Kind.KNOWN, tool=ANSWER), lambda run: set(run.first))
    for tool, count in found.with_tool.items():
        if count >= found.least:
            yield from _of_tool(found, tool)


def _of_tool(found: _Found, tool: str) -> Iterator[Invariant]:
    def calls(run: Run) -> list[Call]:
        return [call for _, call in run.of.get(tool, ())]

    if not tool.startswith(TURN):
        times = Invariant(kind=Kind.TIMES, tool=tool)
        _settle_limits(found, times, lambda run: [len(calls(run))] if tool in run.first else [])
        yield Invariant(kind=Kind.SUCCEEDS, tool=tool)
    caller = Invariant(kind=Kind.CALLER, tool=tool)
    _settle_values(found, caller, lambda run: {call.agent for call in calls(run)})
    paths = Counter(
        path for run in found.runs for path in {one.path for call in calls(run) for one in call.arguments}
    )
    for path, seen in paths.items():
        if seen >= found.least and tool != ANSWER:
            yield Invariant(kind=Kind.CARRIES, tool=tool, path=path)
        if seen >= found.least:
            yield from _of_path(found, tool, path)


def _of_path(found: _Found, tool: str, path: str) -> Iterator[Invariant]:
    def of(kind: Kind) -> Invariant:
        return Invariant(kind=kind, tool=tool, path=path)

    def each(run: Run) -> list[Argument]:
        return [argument for _, _, argument in run.arguments(of(Kind.FORMAT))]

    kinds = {argument.kind for run in found.runs for argument in each(run)}
    if "text" in kinds:
        _settle_limits(found, of(Kind.SOURCED), lambda run: [argument.unsourced for argument in each(run)])
        _settle_limits(found, of(Kind.LENGTH), lambda run: [argument.length for argument in each(run)])
        _settle_values(found, of(Kind.LANGUAGE), lambda run: {one.language for one in each(run)} - {""})
        _settle_words(found, of(Kind.WORDS), each)
        return
    _settle_values(found, of(Kind.FORMAT), lambda run: {form_of(argument) for argument in each(run)})
    if not found.has_source(tool, path):
        _settle_values(found, of(Kind.CONSTANT), lambda run: {argument.value for argument in each(run)})
        yield from _decided(found, of(Kind.CONSTANT))
        if kinds == {"number"}:
            _settle_limits(found, of(Kind.RANGE), lambda run: [number_in(argument) for argument in each(run)])


def _decided(found: _Found, invariant: Invariant) -> Iterator[Invariant]:
    """Yield the value that an argument has where a result has one, or another tool was called or not."""
    having: defaultdict[str, set[int]] = defaultdict(set)
    for number, run in enumerate(found.runs):
        for _, _, argument in run.arguments(invariant):
            having[argument.value].add(number)
    if not 1 < len(having) <= _MOST_CHOICES:
        return
    among = set[int]().union(*having.values())
    for value, runs in having.items():
        for where, said in found.deciding(runs, among, tried=len(having)):
            yield replace(invariant, where=where, value=said, values=frozenset({value}))


def _settle_values(found: _Found, invariant: Invariant, values_of: Callable[[Run], set[str]]) -> None:
    """Settle the values that runs show, if they are few; values of one run alone would be new without it."""
    per_run = [values_of(run) for run in found.runs]
    counts = Counter(chain.from_iterable(per_run))
    support = sum(map(bool, per_run))
    is_few = invariant.kind in {Kind.KNOWN, Kind.CALLER} or len(counts) <= _MOST_CHOICES
    if support >= found.least * max(1, len(counts) * (invariant.kind is not Kind.KNOWN)) and is_few:
        lone = [number for number, values in enumerate(per_run) if any(counts[each] == 1 for each in values)]
        found.settle(replace(invariant, values=frozenset(counts)), support, lone)


def _settle_limits(found: _Found, invariant: Invariant, numbers_of: Callable[[Run], Sequence[float]]) -> None:
    """Settle the lowest and the highest number that runs show; a run that alone reaches one breaks it."""
    per_run = [(min(numbers), max(numbers)) if (numbers := numbers_of(run)) else None for run in found.runs]
    seen = [(low, high) for each in per_run if each for low, high in [each]]
    if len(seen) < found.least:
        return
    lows, highs = Counter(low for low, _ in seen), Counter(high for _, high in seen)
    low, high = min(lows), max(highs)
    lone = [
        number
        for number, each in enumerate(per_run)
        if each and ((each[0] == low and lows[low] == 1) or (each[1] == high and highs[high] == 1))
    ]
    found.settle(replace(invariant, low=low, high=high), len(seen), lone)


def _settle_words(found: _Found, invariant: Invariant, each: Callable[[Run], Sequence[Argument]]) -> None:
    per_run = [{f"{word:x}" for argument in each(run) for word in argument.words} for run in found.runs]
    counts = Counter(chain.from_iterable(per_run))
    support = sum(bool(each(run)) for run in found.runs)
    new = [sum(counts[word] == 1 for word in words) for words in per_run]
    most = max(new)
    lone = [number for number, count in enumerate(new) if count == most and new.count(most) == 1]
    if support >= LEAST_RUNS:
        found.settle(replace(invariant, high=most, values=frozenset(counts)), support, lone)


def _accusing(lone: Mapping[Kind, set[int]], runs: int) -> tuple[frozenset[Kind], float]:
    """Return the kinds that may accuse, and the upper limit of good runs that they accuse together."""
    chosen: list[Kind] = []
    accused: set[int] = set()
    reached, believed = 0.0, max(_BELIEVED.values())
    for kind in Kind:
        together = accused | lone.get(kind, set())
        least = min(believed, _BELIEVED.get(kind, 0))
        limit = _upper(len(together), runs + least)
        if limit <= MOST_ACCUSED:
            chosen.append(kind)
            accused, reached, believed = together, limit, least
    return frozenset(chosen), reached


def _upper(accused: int, runs: int) -> float:
    """Return the upper 95 % limit of the share that ``accused`` of ``runs`` show (Clopper & Pearson)."""
    low, high = accused / runs, 1.0
    while high - low > _PRECISE:
        share = (low + high) / 2
        low, high = (share, high) if binomial_at_most(accused, runs, share) > _DOUBT else (low, share)
    return high


__all__ = ["ACROSS_VERSIONS", "LEAST_RUNS", "LEAST_SUPPORT", "MAX_RUNS", "Mined", "mine"]
