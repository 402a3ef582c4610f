/* Adds this browser to the devices that Toolgate notifies, and marks it in the list. */

const HERE = "[data-push-here]";

function card() {
  return document.querySelector("[data-push-key]");
}

function say(words) {
  card().querySelector("[data-push-status]").textContent = words;
}

/** Return the reason for which this browser cannot be notified; empty if it can. */
function obstacle() {
  if (!window.isSecureContext) return "Browsers are notified over HTTPS only. Open Toolgate by its https:// address.";
  if (!("serviceWorker" in navigator && "PushManager" in window)) {
    return "This browser cannot be notified. On an iPhone or iPad, add Toolgate to the home screen and open it there.";
  }
  if (Notification.permission === "denied") return "This browser blocks notifications. Allow them in its settings.";
  return "";
}

function decoded(base64) {
  const plain = atob(base64.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(plain, (letter) => letter.charCodeAt(0));
}

async function subscription() {
  const registration = await navigator.serviceWorker.getRegistration("/");
  return registration?.pushManager.getSubscription();
}

async function subscribe() {
  const { pushKey, pushAdd, pushWorker } = card().dataset;
  if ((await Notification.requestPermission()) !== "granted") {
    return say(obstacle() || "Notifications were not allowed.");
  }
  await navigator.serviceWorker.register(pushWorker, { scope: "/" });
  const registration = await navigator.serviceWorker.ready;
  await (await registration.pushManager.getSubscription())?.unsubscribe(); // it may be signed with an earlier key
  const made = await registration.pushManager.subscribe({
    userVisibleOnly: true,
    applicationServerKey: decoded(pushKey),
  });
  const { endpoint, keys } = made.toJSON();
  const body = new URLSearchParams({ endpoint, ...keys });
  const headers = JSON.parse(document.body.getAttribute("hx-headers"));
  const response = await fetch(pushAdd, { method: "POST", headers, body });
  if (response.ok) return location.reload();
  await made.unsubscribe();
  return say(response.status === 422 ? await response.text() : "Toolgate did not accept this browser.");
}

async function markHere() {
  const found = await subscription();
  if (!found) return;
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(found.endpoint));
  const mark = [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const row = document.querySelector(`[data-push-mark="${mark}"]`);
  if (!row) return;
  row.querySelector(HERE).hidden = false;
  const key = new Uint8Array(found.options.applicationServerKey ?? []);
  if (key.join() === decoded(card().dataset.pushKey).join()) {
    document.querySelector("[data-push-subscribe]").hidden = true;
  } else {
    say("This browser gets nothing any more, because Toolgate's key for web pushes has changed. Add it again.");
  }
}

async function leave(form, button) {
  await (await subscription())?.unsubscribe();
  form.requestSubmit(button);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-push-subscribe]");
  if (!button) return;
  const reason = obstacle();
  if (reason) return void say(reason);
  say("");
  button.disabled = true;
  subscribe()
    .catch((error) => say(`This browser could not be added: ${error.message}`))
    .finally(() => {
      button.disabled = false;
    });
});

/* The browser itself forgets its subscription first, so that its vendor keeps nothing. */
document.addEventListener("submit", (event) => {
  const row = event.target.closest("[data-push-mark]");
  const { submitter } = event;
  if (!row || submitter?.value !== "remove" || row.querySelector(HERE).hidden || row.dataset.left) return;
  event.preventDefault();
  row.dataset.left = "yes";
  leave(event.target, submitter).catch(() => event.target.requestSubmit(submitter));
});

if (card() && !obstacle()) markHere().catch(() => {}); // only the mark is missing
