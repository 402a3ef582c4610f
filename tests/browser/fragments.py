"""Fragments put into a page of a test without a socket."""

PUT = """async (fragments) => {
    const app = document.querySelector("script[type=module]").src;
    const { apply } = await import(app.replace("app.js", "js/core/fragments.js"));
    apply(fragments);
}"""
"""Puts fragments into the page as its socket does."""
