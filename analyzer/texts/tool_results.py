"""What the result of a tool says about its call: it failed, it found nothing, or it answers. Pure.

Many tools report a failure in their result, under a span that says OK: MCP's ``isError``, ``{"error": …}``,
``{"status": "declined"}``, the text of an exception. A field named ``status`` is the tool's own report only
if the tool changes something; what a tool looks up may have any status (a payment that was declined).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from analyzer.texts.commands import call_name, commands_of, prints_others_words
from analyzer.texts.normalize import lowercased
from analyzer.texts.tool_names import deed_of, looks_up, words_in
from analyzer.texts.vocabulary import worded, words_for
from analyzer.texts.wordings import Kind, languages_in, says
from semconv.dialects.reading.python_repr import from_repr
from semconv.dialects.reading.values import mapping, structured
from semconv.model import ContentState, Step, StepKind

_HEAD: Final = 2_000
"""Characters of a result that are searched for the text of an error."""
_LONGEST_OBJECT: Final = 20_000
_SHORT: Final = 300
"""Characters below which words such as ``not supported`` are a report, not part of a document."""
_SENTENCE: Final = 120
"""Characters of a result that is a sentence or two."""
_EXIT_CODE: Final = re.compile(
    r"\W{0,3}(?:(?:process|command) )?exit(?:ed)?(?: with)?[ _]?(?:code|status):?\s*(-?\d{1,9})",
    re.IGNORECASE,
)
_EXITS: Final = frozenset({"exit_code", "exitcode", "returncode", "return_code"})
_LAST_EXIT: Final = re.compile(
    r"\bexit(?:ed)?(?: with)?[ _]?(?:code|status):?\s*-?[1-9]\d{0,8}\W*$", re.IGNORECASE
)
_LAST_REPORT: Final = re.compile(
    r"\W{0,3}(?:[\w./-]{1,40}:\s)?"
    r"(?:error(?:\s?:|\[|\s[A-Z]{0,4}\d|\sfrom server\b)|fatal\s?:|npm ERR!|E:\s)",
    re.IGNORECASE,
)
"""The last line of a command that failed, as git, npm, apt, kubectl and compilers write it.

``Error rate: 3 %`` is none.
"""
_CANNOT_READ: Final = re.compile(
    r".{1,200}: (?:command not found|not found|No such file or directory|Permission denied)\W*$",
    re.IGNORECASE,
)
"""The last line of a command that could not run, or could not read its file."""
_RAISED: Final = re.compile(
    r"[^\w{\[]{0,5}(?:Traceback \(most recent call last\)|[\w.]*(?:Error|Exception)\b[ \t]*:"
    r"|(?:error|fatal)\"?[ \t]*:)",
    re.IGNORECASE,
)
"""The beginning of a result that is the text of an exception."""
_TRACEBACK: Final = "Traceback (most recent call last)"
_LAST_LINE: Final = re.compile(r"\s*[\w.]*(?:Error|Exception|Interrupt|Exit)\b")
_REPORT: Final = re.compile(
    r"[^\w{]{0,3}(?:exception\b|error\b|failed to\b|failure\b|unable to\b|(?:could|can|did) ?not\b|cannot\b"
    r"|an error occurred|(?:tool|http) error\b|tool_use_error|econnrefused|access denied|forbidden"
    r"|unauthori[sz]ed|service unavailable|internal server error|too many requests"
    r"|[45]\d\d (?:bad|client|conflict|forbidden|gateway|internal|not found|server|service|too many|unauth)"
    r"|tool (?:call |execution )?failed|rpc error: code = (?!OK\b))",
    re.IGNORECASE,
)
"""The beginning of a short result that is the report of a failure."""
_MAIL_REFUSED: Final = re.compile(r"[45]\d\d[ -][45]\.\d{1,3}\.\d{1,3} ")
"""SMTP's codes for a mail that was not taken; of a look-up, they may be what was found."""
_LABEL: Final = r"[^\w{\[]{0,3}{failure}[ \xa0]?(?:[45]\d\d)?[ \xa0]?[:\uff1a]"
"""``Error:`` in other languages than English, also with a code of HTTP: ``Erreur 403 :``."""
_LABELLED_CLAUSE: Final = (
    r"[^\w{\[]{0,3}(?:{failure}|error)(?:\s[^\W\d][\w'\u2019]{0,24}){1,4}[ \xa0]?[:\uff1a.,]"
)
"""``Error while saving:`` in any language; of a look-up, it may be what was found."""
_CANNOT: Final = r"[^\w{]{0,3}{cannot}"
"""``could not`` at the beginning of a short result in other languages."""
_SAID: Final = re.compile(
    r"\b(?:HTTP|status(?: code)?)\W{0,3}[45]\d\d\b|command not found|timed out|connection refused"
    r"|permission denied|please fix your mistakes?|error (?:invoking|executing|running|calling) (?:the )?tool"
    r"|(?:is|are) not supported|rate limit (?:exceeded|reached|hit)|quota exceeded",
    re.IGNORECASE,
)
"""Words of a report of one line; in a longer text they may be its subject."""
_SAYING: Final = (
    *("http", "status", "not found", "timed out", "refused", "denied", "fix your", "error ", "supported"),
    *("rate limit", "quota"),
)
"""Each match of ``_SAID`` contains one of these; texts without any are not searched."""
_ERROR_PAGE: Final = re.compile(
    r"\s*<[\s\S]{0,400}?<title>\s*(?:error )?[45]\d\d (?:bad|forbidden|gateway|internal|not found|service"
    r"|too many|unauth)[^<]{0,30}</title>"
    r"|\s*(?:<\?xml[^>]{0,99}>\s*)?(?:<Error>|<(?:\w{1,20}:)?(?:Envelope|methodResponse)\b"
    r"(?=[\s\S]{0,999}<(?:\w{1,20}:)?fault>))",
    re.IGNORECASE,
)
"""The beginning of a page or of XML that stands for an error: ``502 Bad Gateway``, ``<soap:Fault>``."""
_CRASHED: Final = re.compile(
    r"\s*(?:thread '[^'\n]{0,80}'(?: \(\d+\))? panicked at "  # Rust
    r"|panic: [^\n]{1,400}\n\s*(?:\[signal [^\n]{0,200}\n\s*)?goroutine \d"  # Go
    r"|(?:PHP )?(?:Fatal|Parse) error: "
    r"|[^\s:]{1,200}\.rb:\d+:in ['`]"  # Ruby
    r"|Exception in thread \"|Unhandled exception[.:]"  # Java, .NET
    r"|\{:error, |Err\(|Failure\("  # Elixir, Rust, Scala
    r"|\([\w.]{0,60}err(?:or)?s?\.\w{1,60}\) |\([\w.]{1,60}Error\) |SQLSTATE\["  # drivers of databases
    r"|[\w.-]{1,60}\s?: [^\n]{1,400}\n(?:[^\n]{0,200}\n){0,6}\s+\+ CategoryInfo\s*: "  # PowerShell
    r"|HTTP/\d(?:\.\d)? [45]\d\d\b)"
)
"""The beginning of what programs print when they crash, in other forms than ``SomeError: …``."""
_OUTPUT_LABEL: Final = re.compile(r"^(?:code )?(?:output|results?)\s*:\s*", re.IGNORECASE)
_FIELD: Final = re.compile(r"([\w-]{1,30}): (.{0,200})")
_MOST_FIELDS: Final = 12
_NOTHING: Final = re.compile(
    r"(?:none|null|nan|\[\]|\{\}|\"\"|''|\(\)"
    r"|(?:no|0|zero) (?:results?|data|entries|matches|records?|rows|output)\b"
    r"[^.\n]*|not found|nothing found)?[\s.]*",
    re.IGNORECASE,
)
_LONGEST_NOTHING: Final = 120
_COLOURS: Final = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_ABSENT: Final = re.compile(
    r"\bnot[ _]?found\b|\bno such\b|\b(?:does|do|did) not exist\b|\b(?:doesn't|don't) exist\b"
    r"|\bunknown (?:id|order|user|customer|account|item|key|record)\b|\b(?:HTTP|status)\D{0,8}404\b"
    r"|^\W*404\b|\bno (?:matching|results?|match(?:es)?|records?|entries|rows|data)\b",
    re.IGNORECASE,
)
_MEANS_MISSING: Final = re.compile(
    r"command not found|\b(?:sh|bash|zsh|ash): (?:line )?(?:\d+: )?[\w./-]+: not found"
    r"|not recognized as (?:an? |the name)"
    r"|\b(?:relation|table|column|view|schema|function|procedure|database) [\"'`\w.]{1,80}"
    r" does(?:n't| not) exist"
    r"|\bno such (?:table|column|function|module|index|host|command|tool|method)\b"
    r"|\bunknown (?:column|function|database|host)\b|\bcould not resolve host\b"
    r"|(?:index|table|module|tool|method|function|command|endpoint)_?not_?found"
    r"|\bUndefined(?:Table|Column|Function)\b|\bNo module named\b|\bgetaddrinfo\b|\bENOTFOUND\b",
    re.IGNORECASE,
)
"""Words for the lack of what a call works with, unlike that of what it was to find."""
_DONE_BEFORE: Final = re.compile(
    r"\balready (?:\w{2,}(?<!start)(?<!lock)ed|sent|paid|done|set|there|in|active|current|up.to.date"
    r"|an? \w+)\b|\bexists\b|\bduplicate\b",
    re.IGNORECASE,
)
_DECIDED: Final = re.compile(
    r"refus|reject|declin|denied|forb[ai]d|ineligib|insufficient|expired|clos(?:ed|ing)\b|sold.?out|violat|policy|already"
    r"|can(?:not|.t) be \w+(?:ed|en)\b.{0,40}\b(?:state|status|stage)\b|StateError"
    r"|(?:invalid|illegal).?(?:state|transition)"
    r"|not?.?(?:longer|allow|permit|eligib|entitl)|may.?not|permission|conflict|exceed|\blimit"
    r"|\b4(?:02|03|09|10|22|23|51)\b",
    re.IGNORECASE,
)
"""Words and HTTP codes by which a service says that it will not do something, or cannot by its own rules."""
_USED_UP: Final = r"{used_up}"
"""Words by which it says that there is none left."""
_BROKEN: Final = re.compile(
    r"connect|socket|stream|channel|session|time.?out|timed|rate.?limit|quota|too many|errno|traceback"
    r"|api.?key|credential|token|context|unavailable|internal|\b5\d\d\b|\b4(?:00|01|08|29)\b",
    re.IGNORECASE,
)
"""Words of failures of the machinery, some of which are refusals in form: a connection that was refused."""
_ERROR_REPR: Final = re.compile(r"\bis_?error['\"]?\s*[=:]\s*true$", re.IGNORECASE)
_OBJECT: Final = re.compile(r"\s*(?:[\[{]|\w+[(=])")
_ERROR_MARKS: Final = ("iserror", "is_error")
_NO_ERROR: Final = frozenset({"", "ok", "none", "null", "false", "success", "no_error", "noerror"})
"""Values by which a code of errors says that there was none; zeros and ``200`` do too."""
_STATE_KEYS: Final = ("status_key", "result_key")
"""Kinds of keys whose value says how a call went."""
_SET: Final = (*_STATE_KEYS, "error_key", "error_code_key")
"""Kinds of keys whose value a call may set itself."""
_FINDS_ERRORS: Final = frozenset(
    "error errors exception exceptions fault faults failure failures crash crashes".split()  # noqa: SIM905
)
"""Words in the name of a tool that looks up errors."""
_CHECKS: Final = r"{check_tool}|lint|test|scan|review|audit|diagnos"
"""Parts of the name of a tool that returns the errors of what it checks."""
_SEVERE: Final = frozenset({"error", "fatal", "e", "a"})
"""Severities of messages, with SAP's letters for an error and for the end of its program."""
_CLASSES: Final = ("__type", "@type", "type")
_ERROR_CLASS: Final = re.compile(r"[A-Za-z](?:Exception|Error|Fault)$|_(?:error|exception)$")
"""The end of a type that stands for an error: ``ResourceInUseException``."""
_PLACES: Final = frozenset({"path", "loc", "instancepath"})
_INVALID: Final = re.compile(
    r"invalid_|missing\b|too_(?:big|small|long|short)|unrecogni[sz]ed_|value_error|type_error"
)
"""Codes of an argument that is not valid."""
_WRAPPERS: Final = frozenset({"result", "data", "response", "output", "payload", "return"})
_ENDS_OF_WRAPPER: Final = ("_response", "_result")
_MOST_WRAPPERS: Final = 3
_SIGNATURES: Final = ("sign", "signature")
_ERROR_LISTS: Final = frozenset({"usererrors", "validationerrors"})
_ENDS_OF_REPORT: Final = ("id", "reason", "message", "messages", "_msg", "errorcode")
_VERB: Final = 4
"""Letters from which a verb is told from other words by its beginning."""
_HTTP_ERRORS: Final = range(400, 600)
_CODE_WORDS: Final = re.compile(
    r"[A-Z0-9_]*(?:DENIED|FAILED|FAILURE|ERROR|INVALID|TIMEOUT|TIMED_OUT|UNAVAILABLE|FORBIDDEN|UNAUTHORIZED"
    r"|EXCEEDED|CONFLICT|REJECTED|ABORTED)[A-Z0-9_]*"
)
"""Codes of errors in words: ``PERMISSION_DENIED``."""
_REFUSED: Final = frozenset({"rejected", "failed", "failures", "errors", "refused", "undelivered", "bounced"})
_TAKEN: Final = frozenset({"accepted", "sent", "delivered", "succeeded", "done", "created", "updated"})
"""Keys under which the result of a deed lists for whom it was refused, and for whom it was done."""
_EMPTY: Final[tuple[object, ...]] = (None, "", [], {})
_COUNTS: Final = frozenset(
    """
    total count size length n hits page pages limit offset took took_ms next cursor has_more query
    status ok success message request_id total_count per_page
    """.split()  # noqa: SIM905 - readable in this form
)
"""Keys that say how something was searched for or how much was found, not what."""


class Fault(StrEnum):
    """Kind of failure that a step itself reports."""

    NONE = "none"
    EMPTY = "empty"
    FAILED = "failed"


def fault_of(step: Step, output: str) -> Fault:
    """Return the failure that a step reports; ``output`` is its output with plain typography."""
    if step.is_failed:
        return Fault.FAILED
    if step.kind is not StepKind.TOOL:
        return Fault.NONE  # agents also talk about errors that they did not make
    text = _COLOURS.sub("", output).strip()
    name = call_name(step)
    if commands_of(step) and looks_up(name):
        is_failed = _look_failed(text) if prints_others_words(step) else _check_failed(text, name)
    else:
        is_failed = reports_failure(text, name, step.input) or (
            bool(commands_of(step)) and _command_failed(text)
        )
    if is_failed:
        return Fault.FAILED
    if not text and step.content is not ContentState.COMPLETE:
        return Fault.NONE  # its result was not recorded
    if deed_of(name) or (commands_of(step) and not looks_up(name)):
        return Fault.NONE  # a tool that changes something may return nothing
    return Fault.EMPTY if _is_nothing(text) else Fault.NONE


def reports_failure(result: str, tool: str = "", arguments: str = "") -> bool:
    """Tell whether a result says that the call failed.

    Args:
        result: the text of the result.
        tool: the tool's name, if known.
        arguments: those of the call, as JSON; a state or an error that they set is not the call's own.
    """
    text = result.strip()
    code = _EXIT_CODE.match(text)
    if code:
        return int(code.group(1)) != 0
    if _is_failed_object(text, tool, arguments) or _is_labelled(text) or _ends_in_traceback(text):
        return True
    if len(text) > _SHORT:
        return False
    if _REPORT.match(text) or worded(_CANNOT).match(text) or (not looks_up(tool) and _is_clause(text)):
        return True
    if deed_of(tool) and len(text) <= _SENTENCE and _gives_up(text):
        return True
    return "\n" not in text and _says_failure(text) and not _is_state(text, tool, arguments)


def _says_failure(text: str) -> bool:
    small = lowercased(text)
    return any(part in small for part in _SAYING) and _SAID.search(text) is not None


def _is_clause(text: str) -> bool:
    """Tell whether a text begins with ``Error while …:`` or a mail server's refusal.

    A look-up may have found such a text, so it tells nothing about one.
    """
    return bool(worded(_LABELLED_CLAUSE).match(text) or _MAIL_REFUSED.match(text))


def _gives_up(text: str) -> bool:
    """Tell whether a short result in another language than English says only that something was not done."""
    languages = tuple(code for code in languages_in(text) if code != "en")
    if text.isascii() or not languages or says(Kind.CLAIM_DONE, text, languages):
        return False
    return any(says(kind, text, languages) for kind in (Kind.EVADES, Kind.GIVING_UP))


def _is_labelled(text: str) -> bool:
    """Tell whether a result begins as the text of an exception does, in any language, or as an error page."""
    is_page = text[:1] == "<" and _ERROR_PAGE.match(text[:_HEAD]) is not None
    patterns = (_RAISED, _CRASHED, worded(_LABEL))
    return is_page or any(pattern.match(text) is not None for pattern in patterns)


def _ends_in_traceback(text: str) -> bool:
    """Tell whether a result ends in the traceback of an exception, after what was printed before."""
    if _TRACEBACK not in text[-_HEAD:]:
        return False
    return _LAST_LINE.match(text[text.rfind("\n") + 1 :]) is not None


def deed_failed(result: str, name: str) -> bool:
    """Tell whether the result of a call that changes something is an error, not a text that speaks of one."""
    if not deed_of(name):
        return False
    is_told = len(result) <= _SENTENCE and (worded(_CANNOT).match(result) is not None or _gives_up(result))
    return is_told or _is_labelled(result) or _command_failed(result)


def _command_failed(result: str) -> bool:
    """Tell whether a command that does more than read or check says at its end that it failed."""
    fields = mapping(result) if result[:1] == "{" else {}
    codes = [value for key, value in fields.items() if str(key).casefold() in _EXITS]
    if fields:
        return any(isinstance(code, int) and code != 0 for code in codes)
    last = result.rpartition("\n")[2]
    patterns = (_LAST_EXIT.search(last), _LAST_REPORT.match(last), _CANNOT_READ.match(last))
    return any(found is not None for found in patterns)


def _check_failed(result: str, name: str) -> bool:
    """Tell whether a look-up or a check of a shell failed: with 1 it found nothing, or tests fail."""
    code = _EXIT_CODE.match(result)
    return int(code[1]) not in {0, 1} if code else reports_failure(result, name)


def _look_failed(result: str) -> bool:
    """Tell whether a shell could not print what it was to print; what it prints may be any error."""
    code, last = _EXIT_CODE.match(result), result.rpartition("\n")[2]
    return (code is not None and int(code[1]) not in {0, 1}) or _CANNOT_READ.match(last) is not None


def is_whole_report(result: str, tool: str = "") -> bool:
    """Tell whether a result is nothing but the report of a failure: short, or an object that says so."""
    return len(result) <= _SHORT or _is_failed_object(result, tool)


def says_absent(text: str) -> bool:
    """Tell whether an error says that the thing asked for does not exist: an answer rather than a failure."""
    return _ABSENT.search(text[:_SHORT]) is not None


def lacks_means(text: str) -> bool:
    """Tell whether an error says that a program, a table or a host that the call needs is missing."""
    return _MEANS_MISSING.search(text[:_SHORT]) is not None


def says_broken(text: str) -> bool:
    """Tell whether an error is one of the machinery between the call and what it was for."""
    return _BROKEN.search(text[:_SHORT]) is not None


def says_done_before(text: str) -> bool:
    """Tell whether an error says that what was to be done is so already."""
    return _DONE_BEFORE.search(text[:_SHORT]) is not None


def says_refused(text: str) -> bool:
    """Tell whether an error is a decision: what was asked for is not allowed, or no longer possible."""
    head = text[:_SHORT]
    is_decided = _DECIDED.search(head) is not None or worded(_USED_UP).search(head) is not None
    return is_decided and _BROKEN.search(head) is None


def _is_failed_object(result: str, tool: str, arguments: str = "") -> bool:
    if len(result) > _LONGEST_OBJECT:
        return False
    lines = _lines(result) if deed_of(tool) else None
    if lines is None and not _OBJECT.match(result):
        return False
    if _ERROR_REPR.search(result.rstrip(" )}\n")):
        return True
    value = _parsed(result) if lines is None else lines
    if isinstance(value, list):
        return _is_failed_block(value) or _are_errors(value, tool)
    if not isinstance(value, Mapping):
        return False
    given = _texts_of(arguments)
    fields = _unwrapped(value).items()
    own = {key: one for key, one in fields if not _is_given(key, one, given, tool)}
    return _says_failed(_folded(own), tool, given)


def _texts_of(arguments: str) -> frozenset[str]:
    """Return the texts among a call's arguments, in lower case."""
    values = mapping(arguments).values() if arguments[:_LONGEST_OBJECT] == arguments else ()
    return frozenset(one.strip().casefold() for one in values if isinstance(one, str) and one.strip())


def _is_given(key: Any, value: Any, given: frozenset[str], tool: str) -> bool:
    """Tell whether a call set a state or an error: by its arguments, or by its verb (``reject``)."""
    if not isinstance(value, str) or not any(str(key).casefold() in words_for(kind) for kind in _SET):
        return False
    text, words = value.strip().casefold(), words_in(tool)
    return text in given or any(len(one) >= _VERB and text == _participle(one) for one in words)


def _participle(verb: str) -> str:
    if verb[-1] == "y":
        return f"{verb[:-1]}ied"
    return f"{verb.removesuffix('e')}ed"


def _is_failed_block(value: Sequence[Any]) -> bool:
    """Tell whether a list is one content block with the report of a failure."""
    block = value[0].get("text") if len(value) == 1 and isinstance(value[0], Mapping) else None
    return isinstance(block, str) and bool(_is_labelled(block) or _REPORT.match(block[:_SHORT]))


def _unwrapped(value: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return the object inside ``{"result": {…}}`` or ``{"data": {"closeIssue": {…}}}``, else ``value``.

    A signature beside it, as Alipay sends it, does not count.
    """
    for _ in range(_MOST_WRAPPERS):
        whole = [(str(key).casefold(), one) for key, one in value.items() if key not in _SIGNATURES]
        key, inner = whole[0] if len(whole) == 1 else ("", None)
        is_wrapper = key in _WRAPPERS or key.endswith(_ENDS_OF_WRAPPER) or _holds_errors(inner)
        if not is_wrapper or not isinstance(inner, Mapping):
            return value
        value = inner
    return value


def _holds_errors(value: Any) -> bool:
    """Tell whether an object lists the errors of a mutation of GraphQL."""
    return isinstance(value, Mapping) and any(str(key).casefold() in _ERROR_LISTS for key in value)


def _folded(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key).casefold(): each for key, each in value.items()}


def _are_errors(entries: Sequence[Any], tool: str) -> bool:
    """Tell whether each entry of a list does nothing but report an error, or an invalid argument."""
    fields = [_folded(one) for one in entries if isinstance(one, Mapping)]
    return len(fields) == len(entries) > 0 and all(
        _is_error(one, tool) or _is_invalid(one, tool) for one in fields
    )


def _is_invalid(fields: Mapping[str, Any], tool: str) -> bool:
    """Tell whether an object says which argument is not valid, as Zod and Pydantic write it."""
    if fields.keys().isdisjoint(_PLACES) or _checks(tool):
        return False
    return any(_INVALID.match(str(fields.get(key, ""))) is not None for key in ("code", "type"))


def _is_error(fields: Mapping[str, Any], tool: str) -> bool:
    """Tell whether an object does nothing but report an error."""
    return _only_reports(fields) and _has_error(fields, tool)


def _only_reports(fields: Mapping[str, Any]) -> bool:
    return all(each in _EMPTY or _is_of_report(key, each) for key, each in fields.items())


def _has_error(fields: Mapping[str, Any], tool: str) -> bool:
    """Tell whether an object has an error or its code, and is not what a tool that looks up errors found."""
    is_subject = len(fields) > 1 and looks_up(tool) and not _FINDS_ERRORS.isdisjoint(words_in(tool))
    has_error = any(_of_kind("error_key", fields)) or any(
        _is_error_class(fields.get(key)) for key in _CLASSES
    )
    return (has_error and not is_subject) or _has_error_code(fields, tool)


def _is_error_class(value: Any) -> bool:
    return isinstance(value, str) and _ERROR_CLASS.search(value) is not None


def _parsed(result: str) -> Any:
    value = structured(result)
    return from_repr(result) if isinstance(value, str) else value


def _is_state(text: str, tool: str, arguments: str) -> bool:
    """Tell whether a text is an object with the name that a look-up was given and with a state."""
    fields = {} if deed_of(tool) else _folded(mapping(text))
    return any(_of_kind("status_key", fields)) and _is_named(fields, _texts_of(arguments))


def _is_of_thing(fields: Mapping[str, Any], given: frozenset[str]) -> bool:
    """Tell whether an object describes a thing, whose state it has: it names it, or says more of it."""
    return _is_named(fields, given) or any(
        key not in _COUNTS and not _is_of_report(key, fields[key]) for key in fields
    )


def _is_named(fields: Mapping[str, Any], given: frozenset[str]) -> bool:
    """Tell whether an object has the name or the id that its call asked for."""
    names = (each for key, each in fields.items() if key == "name" or key.endswith("id"))
    return any(str(each).strip().casefold() in given for each in names)


def _lines(text: str) -> Mapping[str, str] | None:
    """Return the fields of a text that is a few lines of YAML, each a key and a value, else ``None``."""
    lines = text.strip().split("\n", _MOST_FIELDS)
    found = [_FIELD.fullmatch(line) for line in lines] if len(lines) > 1 else []
    fields = {one[1]: one[2] for one in found if one is not None}
    return fields if 1 < len(fields) == len(found) else None


def _says_failed(fields: Mapping[str, Any], tool: str, given: frozenset[str]) -> bool:
    """Tell whether the fields of a result say that its call failed, not the thing that it describes."""
    only_reports, deed = _only_reports(fields), deed_of(tool)
    if any(_is(fields.get(key), True) for key in _ERROR_MARKS) or (only_reports and _has_error(fields, tool)):
        return True
    if _is_outcome_of_failure(fields, tool) or _is_denied(fields, deed):
        return True
    if _denies_success(fields) and (only_reports or not looks_up(tool)):
        return True
    is_in_error = _state(fields.get("status")) == "error"
    is_of_thing = is_in_error and not deed and _is_of_thing(fields, given)
    if is_in_error and not is_of_thing:
        return True
    acts = bool(deed) or (only_reports and not looks_up(tool) and not is_of_thing)
    return (acts and _is_in_failed_state(fields)) or (bool(deed) and _lists_refusals(fields, tool))


def _lists_refusals(fields: Mapping[str, Any], tool: str) -> bool:
    """Tell whether the result of a deed lists errors, or for whom it was refused."""
    lists = (each for each in fields.values() if isinstance(each, list))
    return any(_are_errors(each, tool) for each in lists) or _is_refused_for_all(fields, tool)


def _is_outcome_of_failure(fields: Mapping[str, Any], tool: str) -> bool:
    """Tell whether a result is only a list of messages, one of them an error: FHIR's outcome, SAP's return.

    Such a list is what a tool that checks something is to return.
    """
    messages = [one for one in fields.values() if isinstance(one, list) and one]
    is_fhir = str(fields.get("resourcetype", "")).casefold() == "operationoutcome"
    if len(messages) != 1 or _checks(tool) or (looks_up(tool) and not is_fhir):
        return False
    rest = {key: one for key, one in fields.items() if one is not messages[0] and key != "resourcetype"}
    return _only_reports(rest) and any(
        isinstance(one, Mapping) and _is_severe(_folded(one)) for one in messages[0]
    )


def _checks(tool: str) -> bool:
    return worded(_CHECKS).search(tool) is not None


def _is_severe(message: Mapping[str, Any]) -> bool:
    """Tell whether a message with a text or a number has the severity of an error."""
    severity = message.get("severity", message.get("type") if "number" in message else None)
    return isinstance(severity, str) and severity.casefold() in _SEVERE and len(message) > 1


def _is_denied(fields: Mapping[str, Any], verb: str) -> bool:
    """Tell whether a flag named after a deed is false: ``removed`` of ``remove``."""
    flags = (key for key, each in fields.items() if each is False and key.endswith(("ed", "t")))
    return len(verb) >= _VERB and any(key.startswith(verb[:-1]) for key in flags)


def _is_of_report(key: str, value: Any) -> bool:
    """Tell whether a field belongs to the report of an error, by its name or as the code of HTTP."""
    is_code = type(value) is int and value in _HTTP_ERRORS
    kinds = ("beside_error_key", "success_key", "error_key", "error_code_key")
    if is_code or key.endswith(_ENDS_OF_REPORT) or any(key in words_for(kind) for kind in kinds):
        return True
    is_state = any(key in words_for(kind) for kind in _STATE_KEYS)
    state = _state(value) if is_state else ""
    return state in words_for("failed_state") and state not in words_for("decided_state")


def refused_entries(result: str) -> tuple[Mapping[Any, Any], ...]:
    """Return the entries of a result's list that say that they failed, if others of it did not."""
    value = _parsed(result) if len(result) <= _LONGEST_OBJECT and _OBJECT.match(result) else None
    lists = [value] if isinstance(value, list) else []
    lists += [one for one in value.values() if isinstance(one, list)] if isinstance(value, Mapping) else []
    for one in lists:
        entries = [each for each in one if isinstance(each, Mapping)]
        refused = tuple([entry for entry in entries if _is_refused(entry)])
        if len(entries) == len(one) > len(refused) > 0:
            return refused
    return ()


def _is_refused(entry: Mapping[Any, Any]) -> bool:
    """Tell whether an entry of a list says that it failed: by its state, its flag or its error."""
    fields = _folded(entry)
    return _denies_success(fields) or any(_of_kind("error_key", fields)) or _is_in_failed_state(fields)


def _denies_success(fields: Mapping[str, Any]) -> bool:
    return any(_is(each, False) for each in _of_kind("success_key", fields))


def _is_in_failed_state(fields: Mapping[str, Any]) -> bool:
    states = (_state(each) for kind in _STATE_KEYS for each in _of_kind(kind, fields))
    return any(state in words_for("failed_state") for state in states)


def _of_kind(kind: str, fields: Mapping[str, Any]) -> list[Any]:
    """Return the values of the fields whose keys are words of a kind in any language."""
    return [fields[key] for key in fields.keys() & words_for(kind)]


def _is_refused_for_all(fields: Mapping[str, Any], tool: str) -> bool:
    """Tell whether a deed lists what was refused, and nothing that was done: ``accepted`` is empty.

    Of a deed that refuses, what it lists so is what it did.
    """
    listed = {key for key, value in fields.items() if isinstance(value, list) and value}
    refused = _REFUSED.difference(map(_participle, words_in(tool)))
    return not listed.isdisjoint(refused) and listed.isdisjoint(_TAKEN)


def _is(value: Any, wanted: bool) -> bool:  # noqa: FBT001 - a value, not a mode
    return value is wanted or (isinstance(value, str) and value.strip().casefold() == str(wanted).casefold())


def _is_error_code(code: Any) -> bool:
    """Tell whether the value of such a key is an error: not ``00000``, ``200`` and ``[]``."""
    text = str(code).casefold()
    is_fine = text in _NO_ERROR or re.fullmatch("0+|200+", text) is not None
    return bool(code) and not is_fine


def _has_error_code(fields: Mapping[str, Any], tool: str) -> bool:
    own = _of_kind("error_code_key", fields) if deed_of(tool) else []
    if any(map(_is_error_code, own)):
        return True
    return any(map(_stands_for_error, _of_kind("code_key", fields)))


def _stands_for_error(code: Any) -> bool:
    if isinstance(code, str):
        return _CODE_WORDS.fullmatch(code) is not None or (code.isdigit() and int(code[:9]) in _HTTP_ERRORS)
    return isinstance(code, int) and code in _HTTP_ERRORS


def _state(value: Any) -> str:
    value = value.get("state") if isinstance(value, Mapping) else value
    return value.strip().casefold().replace(" ", "_").replace("-", "_") if isinstance(value, str) else ""


def _is_nothing(text: str) -> bool:
    has_code = _EXIT_CODE.match(text) is not None
    body = re.sub(r"^[^\n]*\n?", "", text, count=1) if has_code else text
    body = _OUTPUT_LABEL.sub("", body.strip())
    if len(body) <= _LONGEST_NOTHING and _NOTHING.fullmatch(body):
        return True
    return body[:1] in ("{", "[") and len(body) <= _HEAD and _holds_nothing(_parsed(body))


def _holds_nothing(value: Any) -> bool:
    """Tell whether an object has an empty list or value, and beside it only how it was searched for."""
    if not isinstance(value, Mapping):
        return isinstance(value, (list, tuple)) and all(each in (None, "", [], {}) for each in value)
    empty = {key for key, each in value.items() if each is None or each in ("", [], {}, ())}
    rest = [(str(key).casefold(), each) for key, each in value.items() if key not in empty]
    return bool(empty) and all(
        key in _COUNTS and not isinstance(each, (Mapping, list, tuple)) for key, each in rest
    )
