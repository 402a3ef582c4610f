"""The page of the audit log: read, searched, and checked. Only its export adds an entry."""

from django.http import HttpResponse, HttpResponseBadRequest, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods, require_POST

from approvals.audit.queries import FORMATS, exported
from approvals.audit.verification import verify
from approvals.audit_page import audit_page, read_query
from catalog.ui.requests import PageRequest, name_address, signed_in, wants_part

PARTS = {"log": "approvals/_log_answer.html", "chain": "approvals/_chain.html"}


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def log(request: PageRequest) -> HttpResponse:
    """Show the entries that fit; a POST checks the whole chain first."""
    page = audit_page(request.user, read_query(request.GET))
    shown = {"section": "audit", "log": page, "query": page.query}
    if request.method == "POST":
        shown["verification"] = verify()
    if not wants_part(request, *PARTS):
        return render(request, "approvals/audit.html", shown)
    response = render(request, PARTS[request.headers["HX-Target"]], shown)
    if request.method != "POST":
        name_address(request, response, page.query.address(before=page.query.before, after=page.query.after))
    return response


@require_POST
@signed_in
def export(request: PageRequest) -> StreamingHttpResponse | HttpResponseBadRequest:
    """Send all entries that fit as a file, and keep in the log who has it."""
    form = request.POST.get("format", "")
    if form not in FORMATS:
        return HttpResponseBadRequest("format is jsonl or csv.")
    lines = exported(request.user, read_query(request.GET).filters, form)
    response = StreamingHttpResponse(lines, content_type=FORMATS[form])
    response["Content-Disposition"] = f'attachment; filename="audit.{form}"'
    return response
