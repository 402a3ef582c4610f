/* form[data-passkey-from] decides what a policy wants signed: before an approval or an answer is sent, the browser has the
   decision signed by a passkey. An error of the decision itself is explained when it is sent, without a signature. */

import { toast } from "../components/toasts.js";
import { answer } from "../core/announce.js";
import { askForPasskey } from "./passkeys.js";

const SIGNED = ["approve", "respond"];
const signing = new WeakSet();

/** Fill in the signature. Return false if the form must not be sent: it has none, or is being signed already. */
async function sign(form, sent) {
  if (signing.has(form)) return false;
  signing.add(form);
  try {
    const response = await fetch(form.dataset.passkeyFrom, { method: "POST", body: sent });
    if (!response.ok) return true;
    const { nonce, options } = await response.json();
    const signature = await askForPasskey("get", options).catch(() => "");
    if (!signature) return refuse("No passkey was used, so nothing was sent.");
    if (!form.isConnected) return refuse("The request has changed, so nothing was sent.");
    form.elements.passkey.value = signature;
    form.elements.passkey_nonce.value = nonce;
    return true;
  } catch {
    return refuse("Could not reach the server. Nothing was sent.");
  } finally {
    signing.delete(form);
  }
}

function refuse(text) {
  toast(text);
  answer(text);
  return false;
}

function needsSignature(form, sent) {
  return SIGNED.includes(sent.get("verdict")) && !form.elements.passkey.value;
}

document.addEventListener("htmx:confirm", async (event) => {
  const form = event.detail.elt.closest("form[data-passkey-from]");
  const submit = event.detail.triggeringEvent;
  if (!form || submit?.type !== "submit") return;
  const sent = new FormData(form, submit.submitter);
  if (!needsSignature(form, sent)) return;
  event.preventDefault();
  if (await sign(form, sent)) event.detail.issueRequest(true);
});

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-passkey-from]:not([hx-post])");
  if (!form || event.defaultPrevented) return;
  const { submitter } = event;
  const sent = new FormData(form, submitter);
  if (!needsSignature(form, sent)) return;
  event.preventDefault();
  if (await sign(form, sent)) form.requestSubmit(submitter);
});
