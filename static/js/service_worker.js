/* Shows web pushes, opens their page when they are clicked, and tells Toolgate if the browser replaces its subscription.
   Caches nothing: every page comes from the server. */

const OWN = self.location.origin;
const DEVICES = "/profile/notifications/";

/** Return the address of a path of this site; the home page for any other. */
function address(path) {
  const url = new URL(typeof path === "string" ? path : "/", OWN);
  return url.origin === OWN ? url.href : `${OWN}/`;
}

function read(data) {
  try {
    return data.json();
  } catch {
    return {};
  }
}

async function open(url) {
  const windows = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const same = windows.find((each) => each.url === url);
  if (same) return same.focus();
  return self.clients.openWindow(url);
}

/** Send the subscription that replaces an earlier one, as its person; nothing if they have signed out. */
async function replaceSubscription(made) {
  const page = await (await fetch(DEVICES)).text();
  const key = page.match(/data-push-key="([\w-]+)"/)?.[1];
  const token = page.match(/name="csrfmiddlewaretoken" value="(\w+)"/)?.[1];
  if (!key || !token) return;
  const options = { userVisibleOnly: true, applicationServerKey: key };
  const { endpoint, keys } = (made ?? (await self.registration.pushManager.subscribe(options))).toJSON();
  const body = new URLSearchParams({ endpoint, ...keys });
  await fetch(`${DEVICES}devices/`, { method: "POST", headers: { "X-CSRFToken": token }, body });
}

self.addEventListener("install", () => self.skipWaiting());

self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("push", (event) => {
  const { title, body, tag, path } = event.data ? read(event.data) : {};
  const shown = { body, tag, renotify: Boolean(tag), data: { url: address(path) } };
  event.waitUntil(self.registration.showNotification(title || "Toolgate", shown));
});

self.addEventListener("pushsubscriptionchange", (event) => event.waitUntil(replaceSubscription(event.newSubscription)));

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data?.url ?? `${OWN}/`));
});
