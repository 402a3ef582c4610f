"""REST endpoints of the audit log: list, export, verify."""

from dataclasses import asdict
from typing import Any, ClassVar

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.audit.queries import FORMATS, AuditFilters, entries_for, export_entries
from approvals.audit.verification import verify
from catalog.rest.pagination import page_schema, paginate, paginated_response
from catalog.rest.serializers import (
    MAX_ID_LENGTH,
    BlankAsNullField,
    MomentField,
    PageQuery,
    StrictChoiceField,
    StrictSerializer,
    StrictTextField,
)
from catalog.rest.views import Endpoint


class AuditQuery(PageQuery):
    q = serializers.CharField(required=False, allow_blank=True, max_length=200)
    who = serializers.CharField(required=False, max_length=150)
    action = serializers.CharField(required=False, max_length=64)
    tool = serializers.CharField(required=False, max_length=MAX_ID_LENGTH)
    plan = serializers.CharField(required=False, max_length=MAX_ID_LENGTH)
    object = serializers.CharField(required=False, max_length=MAX_ID_LENGTH)
    since = serializers.DateTimeField(required=False)
    until = serializers.DateTimeField(required=False)


class AuditExportBody(StrictSerializer):
    """The format of an export, and the filters of the list."""

    format = StrictChoiceField(choices=sorted(FORMATS))
    q = StrictTextField(required=False, allow_blank=True, max_length=200)
    who = StrictTextField(required=False, max_length=150)
    action = StrictTextField(required=False, max_length=64)
    tool = StrictTextField(required=False, max_length=MAX_ID_LENGTH)
    plan = StrictTextField(required=False, max_length=MAX_ID_LENGTH)
    object = StrictTextField(required=False, max_length=MAX_ID_LENGTH)
    since = MomentField(required=False)
    until = MomentField(required=False)


class AuditEntrySerializer(serializers.Serializer[Any]):
    """An entry of the tamper-evident log."""

    seq = serializers.IntegerField()
    at = serializers.DateTimeField()
    actor = serializers.CharField(source="actor_name")
    action = serializers.CharField()
    object = BlankAsNullField(source="object_ref")
    tool = BlankAsNullField(source="tool_name")
    plan = BlankAsNullField(source="plan_ref")
    digest = BlankAsNullField()
    details = serializers.JSONField(source="details_json")
    prev_hash = serializers.CharField()
    hash = serializers.CharField()


class VerificationSerializer(serializers.Serializer[Any]):
    """Result of the verification. `reason` is present if the log is not intact, `first_bad` if an entry is wrong."""

    intact = serializers.BooleanField()
    entries = serializers.IntegerField()
    checkpoints = serializers.IntegerField()
    first_bad = serializers.IntegerField(required=False)
    reason = serializers.CharField(required=False)


class AuditList(Endpoint):
    """The audit log."""

    required_scopes: ClassVar = {"GET": ["audit:read"]}

    @extend_schema("audit_list", parameters=[AuditQuery], responses=page_schema(AuditEntrySerializer))
    def get(self, request: Request) -> Response:
        """List the entries, newest first."""
        query, at = self.page_query(AuditQuery)
        page = paginate(entries_for(self.user, AuditFilters(**query)), order="-seq", at=at)
        return paginated_response(request, page, lambda entry: AuditEntrySerializer(entry).data)


class AuditExport(Endpoint):
    """Export of the audit log."""

    required_scopes: ClassVar = {"POST": ["audit:read"]}

    @extend_schema(
        "audit_export",
        request=AuditExportBody,
        responses={(200, kind.partition(";")[0]): OpenApiTypes.STR for kind in FORMATS.values()},
    )
    def post(self, request: Request) -> StreamingHttpResponse:
        """Stream the matching entries as JSON Lines or CSV, oldest first. The export is itself recorded in the log."""
        body = self.body(AuditExportBody)
        name = body.pop("format")
        response = StreamingHttpResponse(
            export_entries(self.user, AuditFilters(**body), name), content_type=FORMATS[name]
        )
        response["Content-Disposition"] = f'attachment; filename="audit.{name}"'
        return response


class AuditVerify(Endpoint):
    """Verification of the audit log."""

    required_scopes: ClassVar = {"POST": ["audit:read"]}

    @extend_schema("audit_verify", request=None, responses=VerificationSerializer)
    def post(self, request: Request) -> Response:
        """Verify the hash chain; `first_bad` is the number of the first wrong or missing entry."""
        found = asdict(verify())
        return Response({name: value for name, value in found.items() if value is not None})
