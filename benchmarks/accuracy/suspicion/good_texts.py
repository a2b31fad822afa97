# ruff: noqa: E501, RUF001 - agents' texts, one per line
"""Good runs whose answers are texts: advice, code, translations, quotations."""

from __future__ import annotations

from benchmarks.accuracy.suspicion.author import CITIES, GOODS, PEOPLE, Author
from benchmarks.accuracy.suspicion.story import Story


def support(author: Author) -> Story:
    """A customer's case: ids, dates, policies in the instructions of a tool, few figures."""
    c, (one, two, three) = author.chance, author.agents
    order, name = f"#{c.randint(10_000, 99_999)}", c.choice(PEOPLE)
    amount = c.randint(1_900, 45_000) / 100
    days = c.choice([14, 21, 28, 45])
    story = Story(kind="support", task=f"Customer {name} wants to return order {order}. Can we refund it?")
    author.fetch(
        story,
        one,
        "get_order",
        {"order": order},
        {"order": order, "total": amount, "delivered": "2025-03-02", "items": 2},
    )
    author.fetch(
        story,
        two,
        "get_policy",
        {"topic": "returns"},
        f"Returns are accepted within {days} days of delivery. Refunds take 5 to 7 business days.",
    )
    story.say(two, f"The order is within the {days} days of the policy.")
    story.say(
        three,
        f"Hello {name.split()[0]}, your order {order} can be returned within ⟦{days} days⟧ of delivery."
        f" We will refund ⟦${amount:,.2f}⟧; this takes 5–7 business days.{author.aside()}",
    )
    return story


def essay(author: Author) -> Story:
    """A long text with figures from general knowledge and one from a tool."""
    c, (one, two, three) = author.chance, author.agents
    year, height = c.randint(1702, 1988), c.randint(23, 318)
    tower = f"the {c.choice(CITIES)} tower"
    story = Story(kind="essay", task=f"Write two paragraphs on {tower} for our city guide.")
    author.fetch(
        story,
        one,
        "search",
        {"q": tower},
        f"{tower.capitalize()} was finished in {year} and is {height} m high. It has 3 platforms.",
    )
    story.say(two, f"Outline: 1. History ({year}). 2. The view from {height} m. 3. Tips.")
    story.say(
        three,
        f"Finished in {year}, {tower} rises ⟦{height} metres⟧ above the old town. Iron construction had its heyday in"
        " the 19th century; the Eiffel Tower, opened in 1889, is the best-known example, and some 7 million people"
        " visit it every year.\n\nFrom the upper platform you can see as far as 60 km on a clear day. Plan about 90"
        f" minutes for your visit and wear good shoes: there are many steps.{author.aside()}",
    )
    return story


def coding(author: Author) -> Story:
    """Code, tests and their counts; versions and line numbers."""
    c, (one, two, three) = author.chance, author.agents
    tests, failed = c.randint(41, 900), c.randint(2, 14)
    version = f"{c.randint(1, 4)}.{c.randint(0, 19)}.{c.randint(0, 9)}"
    story = Story(kind="coding", task="Fix the failing tests of the parser and report the result.")
    trace = f"tests/test_parser.py:{c.randint(10, 400)}: AssertionError\n{failed} failed, {tests - failed} passed in {c.randint(3, 90)}.12s"
    story.call(one, "run_tests", {"path": "tests"}, trace)
    story.say(
        one, f"{failed} tests fail because the tokenizer drops the last line. I will fix `MAX_TOKENS = 4096`."
    )
    story.call(
        one, "edit_file", {"path": "parser.py", "text": "for i in range(0, 4096):\n    yield tokens[i]"}, "ok"
    )
    author.fetch(story, two, "run_tests", {"path": "tests"}, f"{tests} passed in {c.randint(3, 90)}.48s")
    story.say(
        three,
        f"All ⟦{tests}⟧ tests pass now with version {version}; {failed} failed before. The change:\n"
        "```python\nMAX_TOKENS = 4096\nfor i in range(0, MAX_TOKENS + 1):\n    yield tokens[i]\n```"
        f"{author.aside()}",
    )
    return story


def polling(author: Author) -> Story:
    """A job that is polled until it is done."""
    c, (one, _two, three) = author.chance, author.agents
    job, rows = f"job-{c.randint(1000, 9999)}", c.randint(1_200, 98_000)
    story = Story(kind="polling", task="Start the export and tell me how many rows it wrote.")
    story.call(one, "start_export", {"table": "orders"}, {"job": job, "state": "queued"})
    for _ in range(c.randint(2, 7)):
        story.call(one, "get_job", {"job": job}, {"job": job, "state": "running"})
        if author.maybe(0.3):
            story.call(one, "wait", {"seconds": 5}, "ok")
    story.call(one, "get_job", {"job": job}, {"job": job, "state": "done", "rows": rows}, is_key=True)
    story.say(three, f"The export ⟦{job}⟧ is done: it wrote ⟦{rows:,}⟧ rows.{author.aside()}")
    return story


def german(author: Author) -> Story:
    """German text and numbers."""
    c, (one, _two, three) = author.chance, author.agents
    gross, share = c.randint(120_000, 990_000) / 100, c.randint(11, 64)
    net = gross * (1 - share / 100)
    story = Story(
        kind="german", task="Wie hoch war der Umsatz im März, und was bleibt nach Abzug der Kosten?"
    )
    written = f"{gross:,.2f}".replace(",", "_").replace(".", ",").replace("_", ".")
    left = f"{net:,.2f}".replace(",", "_").replace(".", ",").replace("_", ".")
    author.fetch(
        story,
        one,
        "umsatz_abfragen",
        {"monat": "2025-03"},
        c.choice([{"umsatz": gross, "kosten_prozent": share}, f"Umsatz: {written} €, Kosten: {share} %"]),
    )
    story.say(
        three,
        f"Der Umsatz im März betrug ⟦{written} €⟧. Nach Abzug von ⟦{share} %⟧ Kosten bleiben ⟦={left} €⟧.{author.aside()}",
    )
    return story


def spanish(author: Author) -> Story:
    """Spanish text; a distance, a duration, a speed."""
    c, (one, _two, three) = author.chance, author.agents
    km, hours = c.randint(110, 980), c.randint(2, 9)
    city = c.choice(CITIES)
    story = Story(kind="spanish", task=f"¿A qué distancia está {city} y cuánto se tarda?")
    author.fetch(story, one, "ruta", {"destino": city}, {"distancia_km": km, "duracion_min": hours * 60 + 15})
    story.say(
        three,
        f"{city} está a ⟦{km} km⟧ y se tarda unas {hours} horas y cuarto, a una media de ⟦={km / (hours + 0.25):.0f} km/h⟧.{author.aside()}",
    )
    return story


def repeated(author: Author) -> Story:
    """Three agents that look up the same thing, and a reviewer with scores of its own."""
    c, (one, two, three) = author.chance, author.agents
    people = c.randint(11_000, 990_000)
    city = c.choice(CITIES)
    story = Story(kind="repeated", task=f"How many people live in {city}? Double-check it.")
    for agent in (one, two):
        author.fetch(story, agent, "lookup", {"city": city}, f"{city} has {people} inhabitants (2024).")
        story.say(agent, f"{city}: ⟦{people:,}⟧ inhabitants.")
    if author.maybe(0.4):
        story.say(two, "Accuracy 9/10, clarity 8/10. I give it 85 of 100 points.")
    rounded = f"⟦{people:,}⟧" if author.maybe(0.6) else f"about {round(people, -3):,}"
    story.say(three, f"{city} has {rounded} inhabitants, as two lookups in 2024 agree.{author.aside()}")
    return story


def documents(author: Author) -> Story:
    """Retrieval: passages, quotations and links that the answer cites."""
    c, (one, _two, three) = author.chance, author.agents
    share, cases, page = c.randint(12, 88), c.randint(120, 9_700), c.randint(2, 90)
    url = f"https://library.example.org/reports/{c.randint(100, 999)}"
    quote = f"{share} % of the {cases} cases were closed within a week"
    story = Story(kind="documents", task="What does the report say on how fast cases are closed? Cite it.")
    author.fetch(
        story,
        one,
        "retrieve",
        {"query": "case closure time", "k": 3},
        [
            {"url": url, "page": page, "text": f"In the pilot, {quote}; the rest took longer."},
            {
                "url": "https://library.example.org/about",
                "page": 1,
                "text": "The library holds 45,000 volumes.",
            },
        ],
    )
    closed = round(cases * share / 100)
    story.say(
        three,
        f'The report says that "{quote}" (p. {page}, {url}).'
        + (f" That is roughly ⟦={closed:,}⟧ cases." if author.maybe(0.5) else "")
        + (f" So ⟦{share} %⟧ were fast." if author.maybe(0.5) else "")
        + author.aside(),
    )
    return story


def honest(author: Author) -> Story:
    """A task of which part cannot be done, as the answer says."""
    c, (one, _two, three) = author.chance, author.agents
    price, item = c.randint(1_900, 89_900) / 100, c.choice(GOODS)
    story = Story(kind="honest", task=f"What does the {item} cost, and when is it delivered?")
    author.fetch(story, one, "get_price", {"item": item}, {"item": item, "price_usd": price})
    for _ in range(c.randint(1, 2)):
        story.fail(one, "get_delivery", {"item": item}, "HTTP 503 Service Unavailable")
    story.say(
        three,
        f"The {item} costs ⟦${price:,.2f}⟧. The delivery date could not be looked up: the service is unavailable.{author.aside()}",
    )
    return story


def recipe(author: Author) -> Story:
    """Amounts scaled from a recipe, in grams and spoons."""
    c, (one, _two, three) = author.chance, author.agents
    base, wanted = c.choice([2, 4]), c.choice([6, 8, 10, 12])
    flour, sugar, milk = c.randint(12, 60) * 10, c.randint(3, 25) * 10, c.randint(8, 60) * 10
    factor = wanted / base
    story = Story(kind="recipe", task=f"Scale the pancake recipe to {wanted} people.")
    author.fetch(
        story,
        one,
        "get_recipe",
        {"name": "pancakes"},
        f"Pancakes for {base}: {flour} g flour, {sugar} g sugar, {milk} ml milk, 2 eggs. Fry 3 minutes a side at 180 °C.",
    )
    story.say(
        three,
        f"For {wanted} people: ⟦={flour * factor:g} g⟧ flour, ⟦={sugar * factor:g} g⟧ sugar, ⟦={milk * factor:g} ml⟧ milk and"
        f" {2 * factor:g} eggs. Fry 3 minutes a side at ⟦180 °C⟧.{author.aside()}",
    )
    return story
