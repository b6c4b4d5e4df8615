"""An application that sells pictures, with Django and psycopg: `python shop_django.py runserver`."""

from __future__ import annotations

import os
import sys
import uuid

import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

from airunner import enqueue_generation_sync

_database = conninfo_to_dict(os.environ["DATABASE_URL"])
settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": _database.pop("dbname"),
            "OPTIONS": _database,
        }
    },
    ROOT_URLCONF=__name__,
)
django.setup()

# Models can be defined from here on.
from django.db import IntegrityError, connection, models, transaction  # noqa: E402
from django.db.models import F  # noqa: E402
from django.http import HttpRequest, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402


class Account(models.Model):  # type: ignore[misc]  # Django has no types of its own
    credits = models.IntegerField()

    class Meta:
        app_label = "shop"
        db_table = "accounts"

    def __str__(self) -> str:
        return f"account {self.pk}"


class Reservation(models.Model):  # type: ignore[misc]  # same
    id = models.UUIDField(primary_key=True)
    account = models.ForeignKey(Account, models.CASCADE, db_column="account")
    state = models.TextField(default="reserved")

    class Meta:
        app_label = "shop"
        db_table = "reservations"

    def __str__(self) -> str:
        return f"reservation {self.pk}"


class OutOfCredits(Exception):
    pass


def order_picture(request: HttpRequest) -> JsonResponse:
    user, picture = current_user(request), uuid.UUID(request.headers["Idempotency-Key"])
    try:
        with transaction.atomic():
            _, is_new = Reservation.objects.get_or_create(id=picture, defaults={"account_id": user})
            if is_new:
                pay(user)
            payload = {"prompt": request.POST["prompt"], "user_id": str(user)}
            enqueue_generation_sync(connection, "paint", payload, request_id=picture)
    except OutOfCredits:
        return JsonResponse({"detail": "there is no credit left"}, status=402)
    except IntegrityError:
        return JsonResponse({"detail": "this idempotency key was used for something else"}, status=409)
    return JsonResponse({"id": str(picture)}, status=202)


def pay(user: int) -> None:
    """Take a credit; without one, everything of the transaction is undone."""
    if not Account.objects.filter(id=user, credits__gt=0).update(credits=F("credits") - 1):
        raise OutOfCredits


def current_user(request: HttpRequest) -> int:
    """Stand for the login of your application."""
    return int(request.headers["X-User"])


urlpatterns = [path("pictures", order_picture)]

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
