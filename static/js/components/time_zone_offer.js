/* Offers the browser's time zone to a person who has chosen none; nothing changes until they accept or decline. */

const UNIVERSAL = new Set(["UTC", "Etc/UTC", "Etc/GMT", "GMT"]);
const offer = document.getElementById("zone-offer");
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

function isSame(one, other) {
  return one === other || (UNIVERSAL.has(one) && UNIVERSAL.has(other));
}

if (offer && zone && !isSame(zone, offer.dataset.zone)) {
  offer.querySelector("[data-zone-name]").textContent = zone;
  offer.querySelector("[data-zone-take]").value = zone;
  offer.hidden = false;
}
