"""Output of the shared template tags: labels, escaping, hidden characters, diffs."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.template import Context, Template

from catalog.ui import labels
from tests.corpus import faults
from tests.pages import compact

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def draw(source: str, **context: object) -> str:
    return Template("{% load toolgate %}" + source).render(Context(context))


def test_every_word_has_its_icon_in_the_sprite() -> None:
    sprite = (Path(settings.BASE_DIR) / "templates" / "_sprite.html").read_text()

    used = [*labels.STATUS_BADGES.values(), *labels.WAITING_BADGES.values(), *labels.SAFETY_BADGES.values()]

    assert [word.icon for word in used if f'id="i-{word.icon}"' not in sprite] == []


def test_safety_is_a_badge_with_icon_and_word() -> None:
    assert draw('{% safety "dangerous" %}') == (
        '<span class="level dangerous"><svg class="icon " aria-hidden="true"><use href="#i-dangerous"/></svg>'
        "Dangerous</span>"
    )


@pytest.mark.parametrize(("count", "said"), [(0, "0"), (999, "999"), (10_020, "10,020")])
def test_counts_are_written_as_people_do(count, said) -> None:
    assert draw("{{ count|grouped }}", count=count) == said


@pytest.mark.parametrize(
    ("status", "waiting_for", "said", "hue"),
    [
        ("pending", None, "Not started", "idle"),
        ("pending", "approval", "Waiting for approval", "human"),
        ("in_progress", "retry", "Retrying", "warn"),
        ("in_progress", "outcome", "Outcome unknown", "human"),
        ("completed", "approval", "Done", "ok"),
        ("brand_new", None, "Brand new", "idle"),
    ],
)
def test_status_is_said_by_what_it_waits_for_while_open(status, waiting_for, said, hue) -> None:
    drawn = draw("{% status status waiting_for %}", status=status, waiting_for=waiting_for)

    assert f'class="status {hue}"' in drawn
    assert drawn.endswith(f"{said}</span>")


def test_unknown_status_is_escaped() -> None:
    assert "<b>" not in draw("{% status status %}{% safety status %}", status="<b>")


@pytest.mark.parametrize(
    ("age", "said"),
    [
        (timedelta(seconds=-9), "just now"),
        (timedelta(seconds=48), "48 s ago"),
        (timedelta(minutes=4, seconds=50), "4 min ago"),
        (timedelta(hours=2), "2 h ago"),
        (timedelta(hours=30), "yesterday"),
        (timedelta(days=3), "18 Nov 2026"),
    ],
)
def test_age_is_said_in_the_largest_whole_unit(age, said) -> None:
    assert labels.format_time_ago(NOON - age, NOON) == said


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (-1, "no time left"),
        (59, "59 s left"),
        (1565, "26 min left"),
        (3599, "1 h left"),
        (86400, "24 h left"),
        (7 * 86400 - 1, "7 days left"),
        (9 * 86400, "9 days left"),
    ],
)
def test_time_left_is_rounded_to_the_nearest_unit(left, said) -> None:
    assert labels.format_time_left(NOON + timedelta(seconds=left), NOON) == said


def test_relative_time_carries_the_exact_time() -> None:
    drawn = draw("{{ moment|relative_time }}", moment=NOON)

    assert '<time datetime="2026-11-21T12:00:00Z" title="2026-11-21 12:00:00 UTC" data-ago="21 Nov 2026">' in drawn


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [
        (41, "41 ms"),
        (2400, "2.4 s"),
        (12_000, "12 s"),
        (249_000, "4 min 09 s"),
        (7_500_000, "2 h 05 min"),
        (None, ""),
    ],
)
def test_duration_is_said_with_units(milliseconds, said) -> None:
    assert draw("{{ ms|duration_ms }}", ms=milliseconds) == said


@pytest.mark.parametrize(
    ("count", "said"), [(1, "1 byte"), (588, "588 bytes"), (41_984, "41 KB"), (1_258_291, "1.2 MB")]
)
def test_size_is_said_with_units(count, said) -> None:
    assert draw("{{ count|bytes_size }}", count=count) == said


def test_hidden_characters_are_spelled_out() -> None:
    def check(code) -> None:
        text = f"a{chr(int(code, 16))}b"

        assert draw("{{ text|revealed }}", text=text) == f'a<span class="hidden-char">U+{code}</span>b'
        assert draw("{{ text|hidden_count }}", text=text) == "1"

    hidden = ["202E", "200B", "0000", "001B", "000D", "00A0", "FEFF", "2028", "3164", "FE0F", "E0041"]
    assert faults(check, hidden) == {}


def test_visible_text_of_any_script_is_left_alone() -> None:
    text = "naïve 東京 Привет שלום\n\tend"

    assert draw("{{ text|revealed }}", text=text) == text


def test_revealed_text_is_escaped() -> None:
    assert draw("{{ text|revealed }}", text="<script>\u202e</script>") == (
        '&lt;script&gt;<span class="hidden-char">U+202E</span>&lt;/script&gt;'
    )


def test_json_is_pretty_and_escaped() -> None:
    drawn = draw("{{ value|pretty_json|revealed }}", value={"path": "a</pre>\u202e"})

    assert drawn == '{\n  &quot;path&quot;: &quot;a&lt;/pre&gt;<span class="hidden-char">U+202E</span>&quot;\n}'


def test_long_id_keeps_both_ends_and_copies_in_full() -> None:
    drawn = draw("{% copyable value %}", value="plan_0123456789abcdef")

    assert 'data-copy="plan_0123456789abcdef"' in drawn
    assert "plan_01234…cdef" in drawn


def test_diff_marks_the_words_that_changed() -> None:
    drawn = compact(draw("{% diff before after %}", before="keep\nthe old word\n", after="keep\nthe new word\n"))

    assert '<tr class="del">' in drawn
    assert "<td>the <del>old</del> word</td>" in drawn
    assert "<td>the <ins>new</ins> word</td>" in drawn


def test_diff_escapes_and_reveals_both_sides() -> None:
    drawn = draw("{% diff before after %}", before="<b>\u200b", after="<i>\u202e")

    assert "<b>" not in drawn
    assert "<i>" not in drawn
    assert "U+200B" in drawn
    assert "U+202E" in drawn


@pytest.mark.parametrize(
    "text", ["", "plain", "exactly 10", "more than 10", "e\u0301" * 5, "e\u0301" * 11, "ﬁ<b>", "\n" * 12]
)
def test_shortened_cuts_as_truncatechars_does(text: str) -> None:
    """Combining marks are not counted, and composed."""
    assert draw("{{ text|shortened:10 }}", text=text) == draw("{{ text|truncatechars:10 }}", text=text)


def test_joined_texts_are_escaped_once() -> None:
    assert draw("{{ names|joined }}", names=["R&D", "a\u202eb"]).startswith("R&amp;D, a<")
