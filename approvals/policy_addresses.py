"""The addresses that a policy tells: checked when they are written, kept encrypted, answered without their secrets.

What is shown of one stands for it when terms are sent back. Revisions from before hold addresses as they were typed.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from approvals.messaging.addresses import MAIL, Address, read_address
from catalog.calls.vault import keyring
from catalog.errors import ParameterError
from catalog.schemas import Problem

MAX_NOTIFY = 10
Stored = dict[str, str] | str
MARK = 8
"""Letters of a keyed hash that tell apart addresses which are shown alike."""


def shown_of(stored: Stored) -> str:
    """Return what may be shown of a stored address."""
    if isinstance(stored, dict):
        return stored["shown"]
    try:
        return _shown(read_address(stored))
    except ParameterError:  # nothing was checked then: whatever it is, it may hold a token
        return f"unreadable…{hashlib.sha256(keyring().fingerprint(stored).encode()).hexdigest()[:MARK]}"


def keep_addresses(sent: Any, before: Sequence[Stored]) -> tuple[list[Stored], list[Problem]]:
    """Return addresses as a revision keeps them, and what is wrong with them; `sent` None: those there were before."""
    texts = [shown_of(each) for each in before] if sent is None else sent
    if not isinstance(texts, list) or len(texts) > MAX_NOTIFY or not all(isinstance(each, str) for each in texts):
        return [], [Problem("notify", "invalid", f"This must be a list of at most {MAX_NOTIFY} addresses.")]
    known = {shown_of(each): each for each in before}
    kept: dict[str, Stored] = {}
    problems = []
    for number, text in enumerate(texts):
        try:
            shown, stored = _kept(text.strip(), known)
            kept[shown] = stored
        except ParameterError as error:
            problems.append(Problem(f"notify.{number}", "invalid", error.message))
    return list(kept.values()), problems


def _kept(text: str, known: dict[str, Stored]) -> tuple[str, Stored]:
    """Return an address by what is shown of it: as it is kept already, or encrypted now."""
    stored = known.get(text)
    if stored is None:
        address = read_address(text)
        shown = _shown(address)
        stored = known.get(shown, address.text)
    else:
        shown = text
    return shown, stored if isinstance(stored, dict) else _encrypted(stored)


def _encrypted(text: str) -> Stored:
    try:
        address = read_address(text)
    except ParameterError:  # from before addresses were checked: it is told nothing, and stays until it is taken out
        return text
    return address.kept() | {"shown": _shown(address)}


def _shown(address: Address) -> str:
    return address.shown if address.channel == MAIL else f"{address.shown}{address.key[:MARK]}"
