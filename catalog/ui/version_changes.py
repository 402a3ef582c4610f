"""Changes between two versions of a tool, as sentences and as texts for a diff."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from django.utils.translation import gettext as _

from catalog.exports.providers import for_json
from catalog.models import Tool, ToolVersion
from catalog.schemas.description import ParameterRow, parameter_tables
from catalog.ui.labels import reversibility_badge, safety_badge

MOST_SENTENCES = 100
# Displayed separately, or different in every version.
NOT_COMPARED = ("version", "fingerprint")


@dataclass(frozen=True, slots=True)
class ChangeSentence:
    """One change: `kind` is add, del or edit; `subject` is the path of a parameter or the name of a property."""

    kind: str
    subject: str
    text: str
    is_parameter: bool = False


@dataclass(frozen=True, slots=True)
class VersionChange:
    """The change from one version to the next; `old` is None for the first version."""

    old: ToolVersion | None
    new: ToolVersion
    request: str = ""
    """Changes to the HTTP request, which belongs to no version, by a held change; empty if there are none."""

    @property
    def is_new_version(self) -> bool:
        """True if the contract changes. If only the request of a held change differs, no new version exists."""
        return self.old != self.new

    @property
    def sentences(self) -> list[ChangeSentence]:
        """The changes, contract first, then parameters; at most MOST_SENTENCES."""
        if self.old is None:
            return []
        found = [ChangeSentence("edit", _("Request"), self.request)] if self.request else []
        found += [*_contract_changes(self.old, self.new), *_parameter_changes(self.old, self.new)]
        if not found and not self.described:
            found = [ChangeSentence("edit", _("Schema"), _("written differently; parameters and limits are the same"))]
        return found[:MOST_SENTENCES]

    @property
    def described(self) -> tuple[str, str] | None:
        """The description before and after, each ending in a newline; None if it is unchanged."""
        if self.old is None or self.old.description == self.new.description:
            return None
        return f"{self.old.description}\n", f"{self.new.description}\n"

    @property
    def before(self) -> str | None:
        return None if self.old is None else _as_text(self.old)

    @property
    def after(self) -> str:
        return _as_text(self.new)


def _as_text(version: ToolVersion) -> str:
    whole = {key: value for key, value in for_json(version).items() if key not in NOT_COMPARED}
    return json.dumps(whole, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def _contract_changes(old_version: ToolVersion, new_version: ToolVersion) -> Iterator[ChangeSentence]:
    """Yield all changes except those of description and parameters."""
    before, after = _contract_terms(old_version), _contract_terms(new_version)
    for subject, said in after.items():
        if before[subject] != said:
            yield ChangeSentence("edit", subject, f"{before[subject]} → {said}")
    if old_version.output_schema != new_version.output_schema:
        yield ChangeSentence("edit", _("Result"), _("the description of the result changed"))


def _contract_terms(version: ToolVersion) -> Mapping[str, str]:
    return {
        _("Safety level"): safety_badge(version.safety_level).label,
        _("Reversibility"): reversibility_badge(version.reversibility).label,
        _("Automatic retries"): _("after a failure") if version.retry_safe else _("none"),
        _("Timeout"): f"{version.timeout:g} s",
        _("Output key"): version.output_key or _("none"),
    }


def _parameter_changes(old_version: ToolVersion, new_version: ToolVersion) -> Iterator[ChangeSentence]:
    before, after = _parameter_rows(old_version), _parameter_rows(new_version)
    for path, row in after.items():
        if path not in before:
            need = _("required") if row.required else _("optional")
            yield ChangeSentence(
                "add",
                path,
                _("added: %(type)s") % {"type": ", ".join([row.kind, need, *row.limits])},
                is_parameter=True,
            )
    for path in before:
        if path not in after:
            yield ChangeSentence("del", path, _("removed"), is_parameter=True)
    for path, row in after.items():
        for text in _row_differences(before[path], row) if path in before else ():
            yield ChangeSentence("edit", path, text, is_parameter=True)


def _parameter_rows(version: ToolVersion) -> dict[str, ParameterRow]:
    tables = parameter_tables(version.input_schema, version.query_types)
    return {f"{table.query_type} {row.path}".strip(): row for table in tables for row in table.rows}


def _row_differences(old_row: ParameterRow, new_row: ParameterRow) -> Iterator[str]:
    if old_row.kind != new_row.kind:
        yield f"{old_row.kind} → {new_row.kind}"
    if old_row.required != new_row.required:
        yield _("now required") if new_row.required else _("now optional")
    gone = [limit for limit in old_row.limits if limit not in new_row.limits]
    come = [limit for limit in new_row.limits if limit not in old_row.limits]
    if gone and come:
        yield _("limits: %(change)s") % {"change": f"{', '.join(gone)} → {', '.join(come)}"}
    elif gone:
        yield _("no longer: %(limits)s") % {"limits": ", ".join(gone)}
    elif come:
        yield _("now: %(limits)s") % {"limits": ", ".join(come)}
    if old_row.description != new_row.description:
        text = _("described as “%(text)s”") % {"text": new_row.description}
        yield text if new_row.description else _("no longer described")


def held_change(tool: Tool) -> VersionChange | None:
    held = tool.held_version
    if held is None:
        return None
    before, after = ((each or {}).get("http") or {} for each in (tool.definition, tool.held_definition))
    request_change = ""
    if before != after:
        lines = [f"{http.get('method', '')} {http.get('url', '')}" for http in (before, after)]
        moved = _("the parameters stand in other places of the request")
        request_change = " → ".join(lines) if lines[0] != lines[1] else moved
    return VersionChange(tool.current_version, held, request_change)


def pair_versions(versions: list[ToolVersion]) -> list[VersionChange]:
    """Return the changes between successive versions; `versions` is sorted newest first.

    The oldest version in the list has no change of its own, unless it is the tool's first version.
    """
    pairs = [VersionChange(old, new) for new, old in pairwise(versions)]
    if versions and versions[-1].number == 1:
        pairs.append(VersionChange(None, versions[-1]))
    return pairs
