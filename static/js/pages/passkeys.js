/* form[data-passkey] asks the browser for a passkey and is then sent with it, as JSON in the field `credential`.
   data-passkey is "create" or "get"; the options are in data-options, or are read from the address data-options-from. */

let pending = new WeakSet();

function toBytes(text) {
  const base64 = text.replaceAll("-", "+").replaceAll("_", "/");
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

function toText(buffer) {
  const letters = Array.from(new Uint8Array(buffer), (byte) => String.fromCharCode(byte)).join("");
  return btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function withBytes(credentials) {
  return (credentials ?? []).map((each) => ({ ...each, id: toBytes(each.id) }));
}

function readOptions({ publicKey }) {
  const options = { ...publicKey, challenge: toBytes(publicKey.challenge) };
  if (publicKey.user) options.user = { ...publicKey.user, id: toBytes(publicKey.user.id) };
  if (publicKey.excludeCredentials) options.excludeCredentials = withBytes(publicKey.excludeCredentials);
  if (publicKey.allowCredentials) options.allowCredentials = withBytes(publicKey.allowCredentials);
  return { publicKey: options };
}

function write(credential) {
  const { response } = credential;
  const names = ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"];
  const sent = names.filter((name) => response[name]).map((name) => [name, toText(response[name])]);
  return JSON.stringify({
    id: credential.id,
    rawId: toText(credential.rawId),
    type: credential.type,
    response: Object.fromEntries(sent),
    clientExtensionResults: credential.getClientExtensionResults(),
  });
}

/** Return the passkey's answer to the options of the form, as JSON. */
export async function askForPasskey(kind, options) {
  const read = readOptions(options);
  return write(await (kind === "create" ? navigator.credentials.create(read) : navigator.credentials.get(read)));
}

async function optionsOf(form) {
  if (form.dataset.options) return JSON.parse(form.dataset.options);
  const response = await fetch(form.dataset.optionsFrom, { headers: { Accept: "application/json" } });
  if (!response.ok) throw new Error(`options: ${response.status}`);
  return response.json();
}

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-passkey]");
  if (!form) return;
  event.preventDefault();
  if (pending.has(form)) return;
  pending.add(form);
  const fault = form.querySelector("[data-passkey-fault]");
  fault.hidden = true;
  try {
    form.elements.credential.value = await askForPasskey(form.dataset.passkey, await optionsOf(form));
    form.submit();
  } catch {
    fault.hidden = false;
    pending.delete(form);
  }
});

// A page that comes back from the browser's cache may be sent again.
addEventListener("pageshow", () => {
  pending = new WeakSet();
});
