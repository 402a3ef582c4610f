"""The path that reveals one secret of a call that people are asked about."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api import ApprovalEndpoint
from approvals.requests.privacy import reveal
from catalog.rest.serializers import StrictSerializer, Text

MAX_PATH = 1000


class SecretPathBody(StrictSerializer):
    """Which secret is to be seen."""

    path = Text(max_length=MAX_PATH, help_text="Dotted, relative to the arguments.")


class SecretSerializer(serializers.Serializer[Any]):
    """One secret."""

    path = serializers.CharField()
    value = serializers.JSONField()


class ApprovalReveal(ApprovalEndpoint):
    """What is redacted in one request."""

    required_scopes: ClassVar = {"POST": ["approvals:decide"]}

    @extend_schema("approvals_reveal", request=SecretPathBody, responses=SecretSerializer)
    def post(self, request: Request, public_id: str) -> Response:
        """Show one redacted value to who may decide the request, and to administrators; kept in the audit log.

        Never under an Idempotency-Key: the answer is stored nowhere.
        """
        path = self.body(SecretPathBody)["path"]
        value = reveal(self.approval(public_id), path, by=self.user)
        return Response({"path": path, "value": value}, headers={"Cache-Control": "no-store"})
