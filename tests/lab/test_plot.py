from __future__ import annotations

from xml.etree import ElementTree as ET

from analyzer.inquiry.conversation import Label
from analyzer.lab.evaluation.bench_tables import to_svg
from analyzer.lab.evaluation.scores import Subject, score, tabulate
from semconv.model import Attribution, Blame

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*blamed: int, title: str = "t") -> ET.Element:
    scores = [
        score(
            Attribution(
                run_id=f"r{n}",
                verdict=Blame(agent="a", step=at, reason="", confidence=1 / (n + 1)),
                method="m",
            ),
            Label(agent="a", step=1),
            "sub<set>",
            steps=4,
            history=f"{n}",
        )
        for n, at in enumerate(blamed)
    ]
    return ET.fromstring(to_svg(tabulate(scores, Subject(dataset="d", method="m")), title))


def test_every_line_has_its_row_its_intervals_and_its_curve() -> None:
    picture = drawn(1, 2, 1, 1, title="a & b")
    words = [text.text for text in picture.iter(f"{SVG}text")]
    assert "a & b" in words
    assert "m, sub<set> (n=4)" in words
    assert "step 75.0" in words
    assert "agent 100.0" in words
    curves = list(picture.iter(f"{SVG}polyline"))
    assert len(curves) == 2
    assert all(len(curve.attrib["points"].split()) == 4 for curve in curves)


def test_nothing_is_drawn_outside_the_picture() -> None:
    picture = drawn(1, 1, 2, 3, 1, 2)
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    for circle in picture.iter(f"{SVG}circle"):
        assert 0 <= float(circle.attrib["cx"]) <= width
        assert 0 <= float(circle.attrib["cy"]) <= height


def test_nothing_measured_is_an_empty_picture() -> None:
    assert list(drawn().iter(f"{SVG}circle")) == []
