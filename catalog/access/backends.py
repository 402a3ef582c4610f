"""Authentication by username and password."""

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User


class PasswordBackend(ModelBackend):
    """Reads the person of a session together with their own settings, which every page needs, in one statement."""

    def get_user(self, user_id: int) -> User | None:
        person = User.objects.select_related("personal_settings").filter(pk=user_id).first()
        return person if person is not None and self.user_can_authenticate(person) else None
