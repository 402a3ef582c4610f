/* Drafts of forms and editors in this browser, by person and place. They are gone when they were sent and another page
   has come, when the person signs out, when another person is signed in here, and after a week without a change.

   A place is the value of [data-draft] on the page. A draft is an object; `isSent` says that it was sent to be stored,
   `at` when it was kept. Pages without a person, such as the sign-in page, only remove the old ones. */

const ALL = "toolgate.draft.";
const KEPT_FOR = 7 * 24 * 3600 * 1000;
// The slash ends the name: drafts of "ann" are not those of "ann.lee".
const OWN = `${ALL}${encodeURIComponent(document.body.dataset.person)}/`;

/** Return the draft of a place; an empty object if there is none. */
export function load(place) {
  return read(OWN + place);
}

/** Keep a draft; return whether the browser stored it. */
export function save(place, draft) {
  try {
    localStorage.setItem(OWN + place, JSON.stringify({ ...draft, at: Date.now() }));
    return true;
  } catch {
    return false; // private browsing, or no room
  }
}

export function remove(place) {
  removeWhere((key) => key === OWN + place);
}

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? {};
  } catch {
    return {};
  }
}

function removeWhere(isEnded) {
  try {
    const keys = Object.keys(localStorage).filter((key) => key.startsWith(ALL));
    for (const key of keys.filter(isEnded)) localStorage.removeItem(key);
  } catch {
    /* private browsing */
  }
}

removeWhere((key) => !(Date.now() - read(key).at < KEPT_FOR));
if (document.body.dataset.person) {
  const here = [...document.querySelectorAll("[data-draft]")].map((part) => OWN + part.dataset.draft);
  removeWhere((key) => !key.startsWith(OWN) || (!here.includes(key) && read(key).isSent));
}

addEventListener("submit", (event) => {
  const isSigningOut = event.target.getAttribute("action")?.endsWith("/sign-out/");
  if (isSigningOut && !event.defaultPrevented) removeWhere(() => true);
});
