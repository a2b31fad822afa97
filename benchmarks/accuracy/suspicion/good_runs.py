# ruff: noqa: E501, RUF001 - agents' texts, one per line
"""Good runs of varied shape, with harmless features that look like faults.

Answers round, convert, restate and add up tools' results, cite ids and dates, contain general knowledge, and
give advice with their own numbers; tools fail and are retried, are polled until a job is done, or fail where
nothing depends on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from benchmarks.accuracy.suspicion.author import CITIES, GOODS, PEOPLE, Author, money
from benchmarks.accuracy.suspicion.good_texts import (
    coding,
    documents,
    essay,
    german,
    honest,
    polling,
    recipe,
    repeated,
    spanish,
    support,
)
from benchmarks.accuracy.suspicion.story import Constraint, Story


def power(author: Author) -> Story:
    """Racks and their loads: sums, rounding, W and kW."""
    c, (one, two, three) = author.chance, author.agents
    racks = {f"Rack {name}": c.randint(21, 99) * 100 for name in author.some("ABCDEFG", 2, 5)}
    rack, watts = c.choice(list(racks.items()))
    story = Story(kind="power", task=f"How much power does {rack} draw, and all racks together?")
    as_json = author.maybe(0.5)
    result: Any = {name: {"draw_w": draw} for name, draw in racks.items()}
    if not as_json:
        result = "\n".join(f"{name} draws {draw} W" for name, draw in racks.items())
    author.fetch(story, one, "read_meters", {"site": c.choice(CITIES)}, result)
    shown = f"⟦{watts:,} W⟧" if author.maybe(0.6) else f"⟦{watts / 1000:g} kW⟧"
    total = sum(racks.values())
    in_all = f"⟦={total:,} W⟧" if author.maybe(0.6) else f"⟦={total / 1000:.1f} kW⟧"
    story.hand(one, two)
    story.say(two, f"{rack} draws {shown}; the {len(racks)} racks together draw {in_all}.{author.aside()}")
    if author.maybe(0.6):
        story.say(three, f"{rack} draws {shown}. All racks together draw {in_all}.")
    return story


def invoices(author: Author) -> Story:
    """Invoices with ids, tax and totals in a currency."""
    c, (one, _two, three) = author.chance, author.agents
    sign = c.choice(["$", "€", "£", "CHF "])
    rows: list[dict[str, Any]] = [
        {
            "id": f"INV-{c.randint(1000, 9999)}",
            "amount": c.randint(4_000, 250_000) / 100,
            "status": c.choice(["open", "paid"]),
        }
        for _ in range(c.randint(2, 7))
    ]
    rows[0]["status"] = "open"
    due = [row for row in rows if row["status"] == "open"]
    total = round(sum(row["amount"] for row in due), 2)
    customer = c.choice(PEOPLE)
    story = Story(kind="invoices", task=f"Which invoices of {customer} are open, and what is the total due?")
    shape = c.randrange(3)
    if shape == 0:
        result: Any = {"customer": customer, "invoices": rows}
    elif shape == 1:
        result = "id,amount,status\n" + "\n".join(f"{r['id']},{r['amount']:.2f},{r['status']}" for r in rows)
    else:
        result = "| id | amount | status |\n|---|---|---|\n" + "\n".join(
            f"| {r['id']} | {sign}{money(r['amount'])} | {r['status']} |" for r in rows
        )
    author.fetch(story, one, "list_invoices", {"customer": customer, "limit": 50}, result)
    lines = [f"- ⟦{row['id']}⟧: ⟦{sign}{money(row['amount'])}⟧" for row in due]
    if author.maybe(0.5):
        story.hand(one, three)
    told = f"Open invoices of {customer}:\n" + "\n".join(lines) + f"\nTotal due: ⟦={sign}{money(total)}⟧"
    if author.maybe(0.3):
        tax = round(total * 0.2, 2)
        told += f"\nWith 20 % tax: ⟦={sign}{money(total + tax)}⟧"
    story.say(three, told + author.aside())
    return story


def growth(author: Author) -> Story:
    """Percentages, differences and averages of a series by quarter."""
    c, (one, two, three) = author.chance, author.agents
    series = [c.randint(1_100, 9_800) * 10 for _ in range(c.randint(3, 6))]
    first, last = series[0], series[-1]
    change = 100 * (last - first) / first
    mean = sum(series) / len(series)
    name = c.choice(["signups", "visits", "downloads", "tickets"])
    story = Story(kind="growth", task=f"How did {name} develop over the last {len(series)} quarters?")
    result = c.choice(
        [
            [{"quarter": f"Q{n % 4 + 1}", name: value} for n, value in enumerate(series)],
            "\n".join(f"Q{n % 4 + 1}: {value} {name}" for n, value in enumerate(series)),
            {name: series},
        ]
    )
    author.fetch(story, one, "query_metrics", {"metric": name, "quarters": len(series)}, result)
    direction = "rose" if change >= 0 else "fell"
    if author.maybe(0.4):
        story.say(two, f"({last} - {first}) / {first} = {change / 100:.4f}")
    text = (
        f"{name.capitalize()} {direction} from ⟦{first:,}⟧ to ⟦{last:,}⟧, by ⟦={abs(change):.1f} %⟧."
        f" On average there were ⟦={mean:,.0f}⟧ a quarter."
    )
    if author.maybe(0.3):
        text += f" That is a difference of ⟦={abs(last - first):,}⟧."
    if author.maybe(0.25):
        text += f" The peak was about {max(series) / 1000:.0f}k."
    story.say(three, text + author.aside())
    return story


def travel(author: Author) -> Story:
    """Flights, times, dates, a price per person and for all."""
    c, (one, two, three) = author.chance, author.agents
    city, people = c.choice(CITIES), c.randint(2, 6)
    price, code = c.randint(61, 640), f"{c.choice(['TP', 'LH', 'KL', 'AY'])}{c.randint(100, 2999)}"
    day = f"2025-{c.randint(1, 12):02d}-{c.randint(1, 28):02d}"
    minutes = c.randint(55, 660)
    story = Story(
        kind="travel",
        task=f"Find the cheapest flight to {city} on {day} for {people} people and tell me the total price.",
    )
    others = [
        {"flight": f"XX{c.randint(100, 999)}", "price_eur": price + c.randint(9, 300)} for _ in range(3)
    ]
    flights = [
        {"flight": code, "price_eur": price, "duration_min": minutes, "departs": f"{day}T10:45"},
        *others,
    ]
    c.shuffle(flights)
    author.fetch(
        story, one, "search_flights", {"to": city, "date": day, "passengers": people}, {"flights": flights}
    )
    hours = f"{minutes // 60} h {minutes % 60} min" if author.maybe(0.5) else f"⟦{minutes} minutes⟧"
    if author.maybe(0.4):
        story.say(two, f"{people} × {price} = {people * price}")
    story.say(
        three,
        f"The cheapest flight is ⟦{code}⟧ at 10:45 on {day}. It costs ⟦{price} EUR⟧ a person,"
        f" so ⟦={people * price:,} EUR⟧ for {people}, and takes {hours}.{author.aside()}",
    )
    return story


def inventory(author: Author) -> Story:
    """Stock by item: counts, sums of products, one lookup per item."""
    c, (one, _two, three) = author.chance, author.agents
    items = author.some(GOODS, 2, 4)
    stock = {item: (c.randint(13, 480), c.randint(1_100, 89_900) / 100) for item in items}
    story = Story(kind="inventory", task=f"What is the stock of {', '.join(items)} worth?")
    for item, (count, price) in stock.items():
        result = c.choice(
            [{"item": item, "stock": count, "unit_price": price}, f"{item}: {count} in stock at ${price:.2f}"]
        )
        author.fetch(story, one, "get_stock", {"item": item}, result)
    lines = []
    for item, (count, price) in stock.items():
        worth = count * price
        lines.append(f"{item}: ⟦{count}⟧ × ⟦${price:,.2f}⟧ = ⟦=${worth:,.2f}⟧")
    total = sum(count * price for count, price in stock.values())
    story.say(three, "\n".join(lines) + f"\nTotal: ⟦=${total:,.2f}⟧{author.aside()}")
    return story


def weather(author: Author) -> Story:
    """Temperatures in two units, ranges, chances of rain."""
    c, (one, _two, three) = author.chance, author.agents
    city, degrees, rain, wind = c.choice(CITIES), c.randint(-9, 36), c.randint(3, 97), c.randint(11, 79)
    story = Story(kind="weather", task=f"What will the weather in {city} be tomorrow? I think in Fahrenheit.")
    author.fetch(
        story,
        one,
        "forecast",
        {"city": city},
        {"temp_c": degrees, "rain_probability": rain / 100, "wind_kmh": wind},
    )
    story.say(
        three,
        f"In {city} it will be ⟦={degrees * 9 / 5 + 32:.0f} °F⟧ ({degrees} °C) with a ⟦{rain} %⟧ chance of rain and"
        f" wind of ⟦{wind} km/h⟧ (about {wind / 1.609344:.0f} mph).{author.aside()}",
    )
    return story


def calculator(author: Author) -> Story:
    """Arithmetic by a tool."""
    c, (one, two, three) = author.chance, author.agents
    users, calls, cost = c.randint(120, 9_900), c.randint(3, 60), c.randint(2, 90) / 10_000
    per_day = users * calls
    month = per_day * 30 * cost
    story = Story(kind="calculator", task="What will the API cost us a month?")
    author.fetch(
        story, one, "get_usage", {}, {"users": users, "calls_per_user_per_day": calls, "usd_per_call": cost}
    )
    story.call(two, "calculate", {"expression": f"{users}*{calls}"}, str(per_day), is_key=True)
    story.call(two, "calculate", {"expression": f"{per_day}*30*{cost}"}, f"{month:.6g}", is_key=True)
    story.say(
        three,
        f"With ⟦{users:,}⟧ users and {calls} calls each, that is ⟦{per_day:,}⟧ calls a day. At ${cost:g} a call a month (30 days) costs ⟦${month:,.0f}⟧.{author.aside()}",
    )
    return story


def schedule(author: Author) -> Story:
    """Plans with durations and budgets of the agent's own making, as the task asks."""
    c, (one, two, three) = author.chance, author.agents
    days, budget = c.randint(3, 7), c.randint(8, 60) * 100
    city = c.choice(CITIES)
    story = Story(kind="schedule", task=f"Plan {days} days in {city} with a budget of {budget} euros.")
    author.fetch(
        story,
        one,
        "search_hotels",
        {"city": city},
        [
            {"hotel": "Central", "eur_per_night": budget // days // 3},
            {"hotel": "Park", "eur_per_night": budget // days},
        ],
    )
    night = budget // days // 3
    split = [0.35, 0.2]
    story.say(
        two,
        f"Hotel {night * days} euros; about {budget * split[0]:.0f} for food and {budget * split[1]:.0f} for museums.",
    )
    lines = [
        f"Day {n}: {c.choice(['old town', 'museum', 'market', 'river walk'])}, from {c.randint(8, 11)}:30, about {c.choice([2, 3, 4])} hours"
        for n in range(1, days + 1)
    ]
    story.say(
        three,
        f"Hotel Central at ⟦{night} euros⟧ a night, ⟦={night * days} euros⟧ in all. Budget some {budget * split[0]:.0f} euros for food.\n"
        + "\n".join(lines)
        + author.aside(),
    )
    return story


def estimate(author: Author) -> Story:
    """A question with figures of its own, one look-up, a product; with or without the working shown."""
    c, (one, two, three) = author.chance, author.agents
    count, hours, price = c.randint(6, 480), c.randint(3, 60), c.randint(2, 39)
    thing = c.choice(["machines", "drivers", "stalls", "licences", "boats"])
    total = count * hours * price
    story = Story(
        kind="estimate",
        task=f"How many {thing} do we have, and what do all of them cost for {hours} hours at ${price} an hour?",
    )
    author.fetch(
        story,
        one,
        "lookup",
        {"what": thing},
        c.choice([f"{count} {thing}", {thing: count}, f"The register lists {count} {thing} as of today."]),
    )
    story.hand(one, two)
    working = f" ({count} × {hours} × {price} = ⟦={total:,}⟧)" if author.maybe(0.5) else ""
    story.say(two, f"We have ⟦{count}⟧ {thing}; {hours} hours cost ⟦=${total:,}⟧{working}.{author.aside()}")
    if author.maybe(0.3):
        story.say(three, f"There are ⟦{count}⟧ {thing}. For {hours} hours they cost ⟦=${total:,}⟧.")
    return story


def grading(author: Author) -> Story:
    """A pupil's sums, right and wrong ones, quoted and corrected."""
    c, (one, _two, three) = author.chance, author.agents
    rows = [(c.randint(12, 99), c.randint(12, 99)) for _ in range(4)]
    off = c.randint(1, 9)
    lines = [f"{a} + {b} = {a + b}" for a, b in rows[1:]]
    (a, b) = rows[0]
    wrong = f"{a} + {b} = {a + b + off}"
    story = Story(kind="grading", task="Grade this homework and name the mistake.")
    author.fetch(story, one, "read_file", {"path": "homework.txt"}, "\n".join([wrong, *lines]))
    said = c.choice(
        [
            f"{wrong} is wrong: {a} + {b} = ⟦={a + b}⟧.",
            f'The pupil wrote "{wrong}"; the right result is ⟦={a + b}⟧.',
            f"Line 1 ({wrong}) is incorrect, it should be ⟦={a + b}⟧.",
        ]
    )
    story.say(three, f"{said} The other {len(lines)} sums are right, so 3 of 4 points.{author.aside()}")
    return story


KINDS: Final[tuple[Callable[[Author], Story], ...]] = (
    power, invoices, growth, travel, inventory, support, weather, essay, coding, polling, german, spanish,
    repeated, documents, honest, calculator, schedule,
    estimate, grading, recipe,
)  # fmt: skip


def good_run(seed: int) -> Story:
    """Return the good run of a number; always the same for the same number."""
    author = Author(seed)
    story = KINDS[seed % len(KINDS)](author)
    if author.maybe(0.35):
        _constrain(story, author)
    return story


def _constrain(story: Story, author: Author) -> None:
    """Add a demand to the task that the answer meets."""
    last = story.events[-1].text  # type: ignore[union-attr]
    words = len(last.split())
    lines = last.count("\n") + 1
    filler = (
        " In addition, it may be worth looking at the matter from another side before any decision is taken,"
    )
    forbidden = author.chance.choice(["obviously", "synergy", "delve", "leverage"])
    options = [
        Constraint(
            words=f"Use at most {words + author.chance.randint(5, 30)} words.",
            broken=lambda text: text + filler * (3 + words // 10) + " as always.",
        ),
        Constraint(
            words=f"Do not use the word '{forbidden}'.",
            broken=lambda text: text + f" This is {forbidden} what was asked for.",
        ),
    ]
    if lines == 1 and "```" not in last:
        options.append(
            Constraint(words="Answer in a single paragraph without bullet points.", broken=_as_bullets)
        )
    story.constraint = author.chance.choice(options)
    story.task = f"{story.task} {story.constraint.words}"


def _as_bullets(text: str) -> str:
    return (
        "\n".join(f"- {part.strip()}" for part in text.replace(". ", ".\n").splitlines() if part.strip())
        + "\n- Done"
    )
