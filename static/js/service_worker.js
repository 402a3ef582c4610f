/* Shows web pushes, and opens their page when they are clicked. Caches nothing: every page comes from the server. */

const OWN = self.location.origin;

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

self.addEventListener("install", () => self.skipWaiting());

self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("push", (event) => {
  const { title, body, tag, path } = event.data ? read(event.data) : {};
  const shown = { body, tag, renotify: Boolean(tag), data: { url: address(path) } };
  event.waitUntil(self.registration.showNotification(title || "Toolgate", shown));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data?.url ?? `${OWN}/`));
});
