"""Format of all log lines, of Toolgate, Django, uvicorn and tools; text for people or JSON.

Exceptions are logged by type and location, because their messages may contain arguments. For the same reason unknown
`extra` attributes are dropped, and Django's error pages and mails contain no values, even with DEBUG. Values cannot
contain line breaks or terminal escapes.
"""

import logging
import traceback
from collections.abc import ItemsView, Mapping, MutableMapping
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import structlog
from django.http import HttpRequest
from django.views.debug import SafeExceptionReporterFilter

LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MAX_FIELD_CHARACTERS = 2000
MAX_STACK_CHARACTERS = 20_000
STRUCTLOG_KEYS = frozenset({"event", "_record", "_from_structlog", "exc_info", "stack_info"})

LogLine = MutableMapping[str, Any]


def logging_config(style: str, level: str) -> dict[str, Any]:
    """Return Django's LOGGING: one handler on stderr for every logger, `level` for Toolgate's own."""
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": "config.operations.logging.formatter", "style": style}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {
            "toolgate": {"level": level},
            # Parameters of statements are arguments and results, so Django's log of statements stays off.
            "django.db.backends": {"level": "INFO"},
            # It logs each second that Redis is unavailable; `plans.live.broadcast` does so once.
            "channels_redis": {"level": "CRITICAL"},
            # The MCP client quotes upstreams, such as their tools' names and events of a stream, which may contain
            # credentials and results. `client` is the name of its session's logger. Errors reach us as exceptions.
            "mcp.client": {"level": "CRITICAL"},
            "client": {"level": "CRITICAL"},
        },
    }


def formatter(style: str) -> logging.Formatter:
    renderer = structlog.processors.JSONRenderer(default=str) if style == "json" else _render_line
    return structlog.stdlib.ProcessorFormatter(
        processors=[structlog.contextvars.merge_contextvars, _build_line, renderer],
    )


def _build_line(logger: Any, method: str, event: LogLine) -> LogLine:
    record: logging.LogRecord = event["_record"]
    line: LogLine = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": _truncate(str(event.get("event", ""))),
    }
    fields = {name: value for name, value in event.items() if name not in STRUCTLOG_KEYS}
    facts: Mapping[str, Any] = getattr(record, "facts", {})
    for name, value in {**fields, **facts}.items():
        line.setdefault(name, value if isinstance(value, int | float) or value is None else _truncate(str(value)))
    if "stack" in facts:
        line["stack"] = str(facts["stack"])[-MAX_STACK_CHARACTERS:]
    line.update(_exception_facts(event.get("exc_info")))
    return line


def _exception_facts(exc_info: object) -> dict[str, str]:
    if isinstance(exc_info, BaseException):
        exc_info = (type(exc_info), exc_info, exc_info.__traceback__)
    if not isinstance(exc_info, tuple) or exc_info[0] is None:
        return {}
    stack = "".join(traceback.format_tb(exc_info[2]))
    return {"error": exc_info[0].__name__, "stack": stack[-MAX_STACK_CHARACTERS:]}


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_FIELD_CHARACTERS else f"{text[:MAX_FIELD_CHARACTERS]}…"


def _render_line(logger: Any, method: str, line: LogLine) -> str:
    stack = str(line.pop("stack", ""))
    head = [
        f"{line.pop('time')} {line.pop('level').upper()} {line.pop('logger')} {_escape_unprintable(line.pop('event'))}"
    ]
    words = [f"{_escape_unprintable(str(name))}={_render_value(value)}" for name, value in line.items()]
    lines = [" ".join(head + words), *(f"    {_escape_unprintable(each)}" for each in stack.splitlines())]
    return "\n".join(lines)


def _render_value(value: object) -> str:
    text = _escape_unprintable(str(value))
    return f'"{text}"' if " " in text or not text else text


def _escape_unprintable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


class RedactingReporterFilter(SafeExceptionReporterFilter):
    """Hides submitted values and values of variables in error reports; names remain."""

    def is_active(self, request: HttpRequest | None) -> bool:
        """Return True, so that values are hidden even with DEBUG."""
        return True

    def get_post_parameters(self, request: HttpRequest | None) -> dict[str, Any]:
        return dict.fromkeys(request.POST, self.cleansed_substitute) if request is not None else {}

    def get_traceback_frame_variables(self, request: HttpRequest | None, tb_frame: FrameType) -> ItemsView[str, Any]:
        return dict.fromkeys(tb_frame.f_locals, self.cleansed_substitute).items()
