"""Authentication backends: a person is read together with their own settings, which every page needs."""

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User


class WithSettings(ModelBackend):
    """Mixin of all backends: reads the person of a session and their settings in one statement."""

    def get_user(self, user_id: int) -> User | None:
        person = User.objects.select_related("personal_settings").filter(pk=user_id).first()
        return person if person is not None and self.user_can_authenticate(person) else None


class PasswordBackend(WithSettings):
    """Authenticates by username and password."""
