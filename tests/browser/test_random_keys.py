"""Random keys with random pauses clear the desk: each decision is the answer that was pressed last."""

import random
from collections.abc import Iterator

import pytest

from approvals.models import ApprovalRequest, Review
from tests import counts
from tests.approvals.factories import PREVIEW, ask, make_tool, set_rule
from tests.browser.conftest import PageAs
from tests.browser.desk import LONG, open_inbox
from tests.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]
REQUESTS = counts.count(50, 6)
KEYS = counts.count(10_000, 70)
PRESSED = ("a", "d", "c", "Control+Enter", "Escape", "z", "j", "k", "e", "r", "m", "Enter", "n", "o", "Space")
ANSWERS = {"a": "approve", "d": "reject", "c": "request_changes", "e": "approve", "r": "respond"}
# A key counts where the bar offers it: the key of an answer, and Control Enter where one answer is shown alone. While a
# request is opened, an answer sent or undone, the page may say that a key does not count: then the one before it does.
RECORD = """() => {
  window.pressed = {};
  window.sent = [];
  const trail = [];
  const note = (what) => trail.push(`${Math.round(performance.now())} ${what}`) > 20 && trail.shift();
  const offered = (selector) => document.querySelector(selector)?.checkVisibility({ visibilityProperty: true });
  const menu = ".decide .menu";
  const places = { a: ".decide .go", d: "[data-answer=reject]", c: menu, e: menu, r: menu };
  addEventListener("keydown", (event) => {
    const shown = document.getElementById("detail")?.dataset.shown?.slice(2);
    const isTyping = document.activeElement?.matches("textarea, input:not([type=checkbox], [type=radio]), select");
    const verdict = ANSWERS[event.key];
    const isBusy = document.querySelector("#pane[aria-busy], :is(#pane, #toasts) form.htmx-request") !== null;
    note(`${event.ctrlKey ? "Control+" : ""}${event.key} on ${shown}, typing ${isTyping}, busy ${isBusy}`);
    const press = (answer) => (pressed[shown] = isBusy ? [pressed[shown]?.[0], answer] : [answer]);
    if (!event.ctrlKey && !isTyping && verdict && offered(places[event.key])) press(verdict);
    if (event.ctrlKey && isTyping && offered("#editing")) press("approve");
    if (event.ctrlKey && isTyping && offered("#send-answer")) press("respond");
  }, true);
  document.addEventListener("htmx:configRequest", (event) => {
    const found = event.detail.path.match(/approvals\\/(apr_[^/]+)\\/decision/);
    if (found) note(`sends ${event.detail.formData.get("verdict")} for ${found[1]}`);
    if (found) sent.push([found[1], event.detail.formData.get("verdict"), pressed[found[1]] ?? [], [...trail]]);
  });
}"""


@pytest.mark.timeout(counts.seconds(3600))
def test_each_decision_is_the_answer_pressed_last(ada, rosa, settings, page_as: PageAs):
    """Sent is what was chosen last for the request on screen, and recorded is what was sent."""
    seeded = random.Random(counts.seed())  # noqa: S311 - keys, not secrets
    settings.TOOLGATE_UNDO_SECONDS = 60
    set_rule(reason_required=True)
    wipe = make_tool("wipe_note", reversibility="irreversible")
    for number in range(REQUESTS):
        ask(ada, wipe if number % 5 == 4 else None, preview=LONG if number % 3 == 2 else PREVIEW)
    page = page_as(rosa)
    open_inbox(page)
    page.evaluate(RECORD.replace("ANSWERS", str(ANSWERS)))
    for key in _keys(seeded):
        page.keyboard.press(key)
        if seeded.random() < 0.3:
            page.wait_for_timeout(seeded.choice((5, 40, 150, 800)))
    eventually(lambda: page.locator("html[data-busy]").count() == 0, what="the last answer")
    sent = page.evaluate("sent")
    assert sent
    wrong = [each for each in sent if each[1] not in each[2]]
    assert wrong == [], "\n".join(["Sent, pressed last, and the keys until then:", *map(str, wrong)])
    verdicts = {(public_id, verdict) for public_id, verdict, *_ in sent}
    recorded = Review.objects.values_list("request__public_id", "verdict")
    assert set(recorded) <= verdicts
    assert ApprovalRequest.objects.count() == REQUESTS


def _keys(seeded: random.Random) -> Iterator[str]:
    """Yield keys as someone in a hurry presses them: answers and what sends them more often than all others."""
    for _ in range(KEYS):
        yield seeded.choice(PRESSED[:5]) if seeded.random() < 0.6 else seeded.choice(PRESSED)
