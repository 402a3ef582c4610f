/* Theme: system, light, dark. A person's setting comes with the page, so that it never flashes; this browser keeps a
   copy for pages without a person, such as the one to sign in. Loaded before the page is drawn. */

(() => {
  const NEXT = { system: "light", light: "dark", dark: "system" };
  const root = document.documentElement;
  const stored = () => {
    try {
      return localStorage.getItem("toolgate.theme");
    } catch {
      return null;
    }
  };
  const keep = () => {
    try {
      localStorage.setItem("toolgate.theme", theme);
    } catch {
      /* private browsing */
    }
  };
  let theme = root.dataset.themeSaved ?? (NEXT[stored()] ? stored() : "system");
  let saved = Promise.resolve();
  if (root.dataset.themeSaved) keep();

  const show = () => {
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
    for (const label of document.querySelectorAll("[data-theme-next] span")) label.textContent = `Theme: ${theme}`;
  };

  /* One request after the other, so that the last choice is the one that is kept. */
  const save = (address) => {
    const headers = JSON.parse(document.body.getAttribute("hx-headers"));
    const body = new URLSearchParams({ theme });
    saved = saved.then(() => fetch(address, { method: "POST", headers, body })).catch(() => {});
  };

  show();
  document.addEventListener("DOMContentLoaded", show);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-theme-next]");
    if (!button) return;
    theme = NEXT[theme];
    keep();
    show();
    save(button.dataset.themeNext);
  });
})();
