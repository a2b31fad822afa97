# ruff: noqa: E501 - lines of Markdown tables cannot be wrapped
"""Generator of docs/files.md from the registry of formats: ``python -m tools.references.files_reference``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from analyzer.recordings.formats import FORMATS
from analyzer.recordings.recording import FileFormat

PAGE: Final = Path(__file__).parents[2] / "docs" / "files.md"
_HEAD: Final = """# Files blamespan reads

`blamespan attribute FILE` judges the runs in a file that you already have: the export of a tracing tool, the messages
that a framework keeps, or the session of a coding agent. `steps`, `diff`, `replay`, `experiment` and the page *Analyse a file*
read the same files.

```
blamespan attribute examples/files/openai-chat.json
```

- The format is recognised by the content, not by the name of the file. gzip and zstd are unpacked.
- JSON may be one document, one a line, or several one after another. YAML is read too. Tables of spans or runs may be
  CSV, a data frame as JSON, or Parquet (with the extra `history`; not on the page *Analyse a file*).
- A last line that is cut short is left out with a warning. Other damage is an error that names the line.
- A file may hold runs of several formats, pages of an API (`{"data": […], "next": …}`), hits of a search, or objects around the run (`{"result": {"trace": …}}`), as long as one
  key leads to it. Where an API lists messages or events newest first, they are read in their order.
- A log of a model API's calls may hold request and response under keys of their own, as objects or texts, one a line or in a list: of proxies, batches, VCR's
  cassettes, a browser's HAR. The calls may stand in any order. A call that failed is a step with its error, in the run that repeated it.
  What a HAR holds beside calls of a model (pages, embeddings) is left out.
- A streamed answer is read whole from its events: lines of `data:` as the server sent them, or their JSON; of chat completions, OpenAI Responses, Anthropic, Ollama, Bedrock's ConverseStream
  (one event as JSON a line, also as it comes over HTTP) and the AI SDK's UI message stream (version 4: lines of `0:"text"`).
- A transcript in Markdown is read if its turns begin with `**User:**` and `**Assistant:**` (or `**You:**`, `**Claude:**`, `**Tool:**` and alike), only titles stand before the
  first, which is a person's, one of the speakers speaks twice, and no tool answers a person. JSON that stands alone in a fence of three backticks is read as JSON.
- A file of none of these formats is refused with one line that says what it looks like. For spans with attributes of
  your own, `blamespan map` proposes [a mapping](mapping.md).
- A log of your own may name its messages' keys `author` and `body`, `from` and `value`, `speaker` and `utterance`, or alike: it is read
  if all authors but one are called as agents or models are (`ResearchAgent`, `assistant`, `gpt`, `AI`) and no key is one of e-mails, comments or commits.
  Call the keys `agent` and `content` to have any names read.
- Messages are read as the spans that an instrumented program would have sent. A conversation log with a `history` is
  taken as a failed run, as in the data sets that have this form; all other files are checked for a failure first.

Each format below has the command, the line of Python or the button by which you get such a file, and an example to compare with.
If your tool is not listed, try its file anyway: many tools write one of these formats, above all OpenAI's chat messages.

Made from `analyzer/recordings/formats.py` by `python -m tools.references.files_reference`; do not edit.
"""
_COLUMNS: Final = """
| format | how to get a file | example | read as described in |
|---|---|---|---|
"""
_PARTS: Final = {
    FORMATS[0].example: "Traces",
    "assistants-thread.json": "Runs of agent platforms and frameworks",
    "goose.jsonl": "Sessions of coding agents and other tools",
    "chatgpt-export.json": "Exports of chat programs",
    "openai-responses.json": "Messages",
}
"""Headings, by the example of the first format below each."""
_TAIL: Final = """
OTLP is also read as protobuf: one request, or several with length prefixes as the Collector's file exporter writes them.

[How fast each is read, how much memory it takes, and what damaged files do](reliability.md#damaged-and-large-files) was measured.
"""


def page() -> str:
    """Return the page."""
    return _HEAD + "".join(map(_row, FORMATS)) + _TAIL


def _row(one: FileFormat) -> str:
    heading = f"\n## {_PARTS[one.example]}\n{_COLUMNS}" if one.example in _PARTS else ""
    return f"{heading}| {one.name} | {one.how} | `examples/files/{one.example}` | {one.source} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
