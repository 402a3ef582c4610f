"""Stand in for a browser in which a person is signed in: open the page of the consent, agree, and go to the client.

Clients start it as `xdg-open ADDRESS`. BROWSER_COOKIE is the person's session, as `name=value`.
"""

import os
import re
import sys

import httpx2

address = sys.argv[-1]
name, _, value = os.environ["BROWSER_COOKIE"].partition("=")
with httpx2.Client(cookies={name: value}, timeout=60) as browser:
    page = browser.get(address)
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
    if page.status_code != 200 or found is None:
        sys.exit(f"{page.status_code} {page.headers.get('location', '')} {page.text[:500]}")
    form = {"csrfmiddlewaretoken": found[1], "decision": "allow", "days": "30"}
    sent = browser.post(address, data=form, headers={"Referer": address})
    if sent.status_code != 303:
        sys.exit(f"{sent.status_code} {sent.text[:500]}")
    browser.get(sent.headers["location"])
