/* Keeps what is typed when the session has ended. Before a form with fields is sent, check that the same person is
   still signed in. If not, nothing is sent and the banner leads to the sign-in page in another tab; after the sign-in
   there, the forms get its new token. Without scripts the server answers with what was typed. */

import { answer } from "./announce.js";
import * as connection from "./connection.js";
import { toast } from "../components/toasts.js";

const TOKEN = "[name=csrfmiddlewaretoken]";
const KEPT = "Nothing was sent. What you typed is still here.";
const asking = new WeakSet();
const allowed = new WeakSet();
let known = cookie();

/** Return the token's cookie, which changes whenever someone signs in. */
function cookie() {
  return document.cookie.match(/toolgate_csrf=([^;]*)/)?.[1];
}

async function look() {
  const response = await fetch(`${document.body.dataset.signIn}?again=1`);
  if (!response.ok) throw new Error(`status ${response.status}`);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  return { person: page.querySelector("[data-person]").dataset.person, token: page.querySelector(TOKEN).value };
}

/** Return whether the same person is still signed in, and give the forms their token; say so where nobody is. */
async function isSame() {
  const now = await look();
  if (now.person !== document.body.dataset.person) {
    tellOf(now.person);
    return false;
  }
  if (known !== cookie()) renew(now.token);
  connection.resume();
  return true;
}

function renew(token) {
  known = cookie();
  document.body.setAttribute("hx-headers", JSON.stringify({ "X-CSRFToken": token }));
  for (const field of document.querySelectorAll(TOKEN)) field.value = token;
}

function tellOf(person) {
  if (person) {
    connection.end(`${person} is signed in here now.`, { more: "Copy what you typed, then reload the page." });
  } else {
    connection.end("You were signed out.", { more: "What you typed stays here until you are back.", signIn: true });
  }
}

function refuse(what) {
  toast(`${what} ${KEPT}`);
  answer(`${what} ${KEPT}`);
}

/** Return the button, or the one that a check of the form has put in its place meanwhile. */
function presentButton(form, button) {
  if (button.form === form) return button;
  return [...form.elements].find(
    (each) => each.type === "submit" && each.name === button.name && each.value === button.value,
  );
}

async function send(form, button) {
  asking.add(form);
  try {
    if (!(await isSame())) return refuse("You are not signed in any more.");
    if (!form.isConnected) return;
    const present = button && presentButton(form, button);
    if (button && !present) return refuse("This button is no longer there.");
    allowed.add(form);
    form.requestSubmit(present);
  } catch {
    refuse("Toolgate does not answer.");
  } finally {
    asking.delete(form);
    allowed.delete(form);
  }
}

function isTyped(form, button) {
  if (!form.matches("[method=post]:not([hx-post])") || button?.matches("[hx-post]")) return false;
  return [...form.elements].some((field) => field.matches("textarea, select, input:not([type=hidden])"));
}

document.addEventListener(
  "submit",
  (event) => {
    const { target: form, submitter: button } = event;
    if (allowed.has(form) || !isTyped(form, button)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (!asking.has(form)) send(form, button);
  },
  true,
);

document.addEventListener("toolgate:signed-out", () => {
  tellOf("");
  refuse("You are not signed in any more.");
});

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState !== "visible" || (known === cookie() && !connection.isEnded())) return;
  isSame().catch(() => {}); // a form that is sent asks again
});
