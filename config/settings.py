"""Settings of Toolgate, read from the environment and `.env`. Unsafe values prevent the start; the error names them."""

import os
from pathlib import Path
from typing import Any

import dj_database_url
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from dotenv import load_dotenv
from environs import Env

from config import environment, setting_checks
from config.environment import check_secret_keys, check_vapid_key, load_or_create_keys, read_email_url, read_tool_limits
from config.operations import logging
from config.serving.static_files import folder_digest, font_folders
from toolgate import places

if _refusal := places.refusal():
    raise ImproperlyConfigured(_refusal)
BASE_DIR, SHIPPED_DIR, VAR_DIR = places.CODE_DIR, places.SHIPPED_DIR, places.data_dir()
if places.IS_INSTALLED:
    VAR_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
_in_environment = frozenset(os.environ)
# Into the environment, and not only into `env`: the keys of model providers and OTEL_… are read there by libraries.
load_dotenv(places.home_dir() / ".env")
env = Env()
# Origin of each variable that has a value; what is set later, such as by `serve`, is not in it.
SETTING_ORIGINS = {
    name: "environment" if name in _in_environment else ".env" for name, value in os.environ.items() if value
}

DEBUG = env.bool("DEBUG", False)
TOOLGATE_HOME = env.str("TOOLGATE_HOME", "")
if SETTING_ORIGINS.get("TOOLGATE_HOME") == ".env":
    raise ImproperlyConfigured("TOOLGATE_HOME says where .env is: set it in the environment, not in .env.")

# --- database ------------------------------------------------------------------------------------------------
DATABASE_URL = env.str("DATABASE_URL", "") or f"sqlite:///{VAR_DIR / 'toolgate.sqlite3'}"
DATABASES: dict[str, Any] = {"default": dj_database_url.parse(DATABASE_URL)}
ON_SQLITE = DATABASES["default"]["ENGINE"].endswith("sqlite3")
if not ON_SQLITE and not DATABASES["default"]["ENGINE"].endswith("postgresql"):
    raise ImproperlyConfigured("DATABASE_URL must name a SQLite file (sqlite:///…) or PostgreSQL (postgres://…).")
TOOLGATE_SQLITE_SYNCHRONOUS = env.str("TOOLGATE_SQLITE_SYNCHRONOUS", "FULL")
TOOLGATE_THREADS = env.int("TOOLGATE_THREADS", 4)
WEB_THREADS = 16
MCP_THREADS = 3
MCP_CALL_THREADS = 4
MCP_HELD_THREADS = 3
if TOOLGATE_SQLITE_SYNCHRONOUS not in ("FULL", "NORMAL"):
    raise ImproperlyConfigured("TOOLGATE_SQLITE_SYNCHRONOUS must be FULL or NORMAL.")
if ON_SQLITE:
    DATABASES["default"]["ENGINE"] = "config.db.sqlite"
    Path(DATABASES["default"]["NAME"]).parent.mkdir(parents=True, exist_ok=True)
    # Opening a connection costs more than most requests, so that serving threads keep theirs.
    DATABASES["default"]["CONN_MAX_AGE"] = None
    # Checkpoints of the write-ahead log every 4,000 pages instead of 1,000 copy half as many pages, as most recur.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 5,
        "init_command": (
            f"PRAGMA journal_mode=WAL; PRAGMA synchronous={TOOLGATE_SQLITE_SYNCHRONOUS}; "
            "PRAGMA cache_size=-16000; PRAGMA temp_store=MEMORY; PRAGMA journal_size_limit=67108864; "
            "PRAGMA wal_autocheckpoint=4000"
        ),
    }
else:
    DATABASES["default"]["ENGINE"] = "config.db.postgresql"
    # One connection for each possible thread: web, MCP, executor, as many again abandoned or returning from a wait; the
    # rest are for the feed's readers, previews, probes, the ticker, and the renewal of leases.
    DATABASES["default"]["OPTIONS"] = environment.postgresql_options(
        DATABASES["default"].get("OPTIONS", {}),
        connections=WEB_THREADS + MCP_THREADS + MCP_CALL_THREADS + MCP_HELD_THREADS + 2 * TOOLGATE_THREADS + 13,
    )
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- cluster -------------------------------------------------------------------------------------------------
REDIS_URL = env.str("REDIS_URL", "")
TOOLGATE_EXECUTOR = env.str("TOOLGATE_EXECUTOR", "embedded")
if TOOLGATE_EXECUTOR not in ("embedded", "procrastinate"):
    raise ImproperlyConfigured("TOOLGATE_EXECUTOR must be embedded or procrastinate.")
if TOOLGATE_EXECUTOR == "procrastinate" and ON_SQLITE:
    raise ImproperlyConfigured("TOOLGATE_EXECUTOR=procrastinate needs PostgreSQL: set DATABASE_URL=postgres://…")
if TOOLGATE_EXECUTOR == "procrastinate" and not REDIS_URL:
    raise ImproperlyConfigured("TOOLGATE_EXECUTOR=procrastinate needs REDIS_URL, for notifications between processes.")

# --- keys ----------------------------------------------------------------------------------------------------
_generated = load_or_create_keys(VAR_DIR / "keys.env") if ON_SQLITE else {}
SECRET_KEY = env.str("SECRET_KEY", "") or _generated.get("SECRET_KEY", "")
TOOLGATE_AUDIT_KEY = env.str("TOOLGATE_AUDIT_KEY", "") or _generated.get("TOOLGATE_AUDIT_KEY", "")
setting_checks.check_key("SECRET_KEY", SECRET_KEY, least=32)
setting_checks.check_key("TOOLGATE_AUDIT_KEY", TOOLGATE_AUDIT_KEY, least=32)
# The first key encrypts, all decrypt.
TOOLGATE_SECRET_KEYS = check_secret_keys(
    env.list("TOOLGATE_SECRET_KEYS", []) or [key for key in [_generated.get("TOOLGATE_SECRET_KEYS")] if key]
)

# Without this key, which is optional, browsers are not notified by web push.
TOOLGATE_VAPID_KEY = check_vapid_key(env.str("TOOLGATE_VAPID_KEY", "") or _generated.get("TOOLGATE_VAPID_KEY", ""))

# --- the audit log ---------------------------------------------------------------------------------------------
# Next to the database, not in it: a restored database must not contain its own proof.
_data_path = Path(DATABASES["default"]["NAME"]) if ON_SQLITE else VAR_DIR / "toolgate"
TOOLGATE_AUDIT_CHECKPOINTS = Path(
    env.str("TOOLGATE_AUDIT_CHECKPOINTS", "") or _data_path.with_name(f"{_data_path.stem}.checkpoints")
)

# --- requests that leave -------------------------------------------------------------------------------------
TOOLGATE_EGRESS_ALLOW: list[str] = list(filter(None, map(str.strip, env.list("TOOLGATE_EGRESS_ALLOW", []))))
TOOLGATE_NOTIFY_URLS: list[str] = list(filter(None, map(str.strip, env.list("TOOLGATE_NOTIFY_URLS", []))))
TOOLGATE_WEBHOOK_KEY = env.str("TOOLGATE_WEBHOOK_KEY", "")
if TOOLGATE_WEBHOOK_KEY:
    setting_checks.check_key("TOOLGATE_WEBHOOK_KEY", TOOLGATE_WEBHOOK_KEY, least=32)

# --- the web -------------------------------------------------------------------------------------------------
ALLOWED_HOSTS: list[str] = env.list("ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS: list[str] = env.list("CSRF_TRUSTED_ORIGINS", [])
TOOLGATE_URL = env.str("TOOLGATE_URL", "http://127.0.0.1:8000").rstrip("/")
TOOLGATE_HTTPS = env.bool("TOOLGATE_HTTPS", False)
setting_checks.check_url_setting("TOOLGATE_URL", TOOLGATE_URL)
if not DEBUG:
    setting_checks.check_hosts(ALLOWED_HOSTS)
_cookie_prefix = "__Host-" if TOOLGATE_HTTPS else ""
SESSION_COOKIE_NAME = f"{_cookie_prefix}toolgate_session"
CSRF_COOKIE_NAME = f"{_cookie_prefix}toolgate_csrf"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = TOOLGATE_HTTPS
SESSION_COOKIE_AGE = 12 * 3600
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
CSRF_FAILURE_VIEW = "config.views.csrf_failure"
# Probes and scrapes arrive over plain HTTP, bypassing the proxy. Clients take a redirected metadata document for none.
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$", r"^\.well-known(/|$)"]
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if TOOLGATE_HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = TOOLGATE_HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if TOOLGATE_HTTPS else None
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
DEFAULT_EXCEPTION_REPORTER_FILTER = "config.operations.logging.RedactingReporterFilter"
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024
DATA_UPLOAD_MAX_NUMBER_FIELDS = 10_000  # the preview of a source with 2,000 tools has three fields for each
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "manifest-src": [SELF],
        "worker-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "object-src": [NONE],
    }
}

INSTALLED_APPS = [
    "plans.apps.PlansConfig",
    "approvals.apps.ApprovalsConfig",
    "catalog.connections.apps.ConnectionsConfig",
    "catalog.apps.CatalogConfig",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.forms",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
    "channels",
    "csp",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "oauth2_provider",
]
if not ON_SQLITE:
    # Installed even before TOOLGATE_EXECUTOR is switched, so that its tables exist.
    INSTALLED_APPS.append("procrastinate.contrib.django")
PROCRASTINATE_AUTODISCOVER_MODULE_NAME = ""
MIDDLEWARE = [
    "config.operations.request_log.RequestLogMiddleware",
    "catalog.rest.problems.ProblemDetailsMiddleware",
    "catalog.connections.middleware.ClientErrorMiddleware",
    "config.operations.request_log.CompressionMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "config.operations.request_log.RefusedBodyMiddleware",
    "config.serving.static_files.StaticFiles",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "catalog.ui.reader.ReaderMiddleware",
    "catalog.accounts.middleware.SessionActivityMiddleware",
    "catalog.accounts.middleware.SecondFactorMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "config.operations.restored_database.RestoredDatabaseMiddleware",
    "config.operations.request_log.RefusedTextMiddleware",
]
ROOT_URLCONF = "config.urls"
FORM_RENDERER = "catalog.ui.page_forms.PageFormRenderer"
ASGI_APPLICATION = "config.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [SHIPPED_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "config.page_frame.frame_context",
            ]
        },
    }
]
AUTHENTICATION_BACKENDS = ["catalog.access.backends.PasswordBackend"]
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
# The application "allauth" itself is not installed: none of its templates must ever be shown.
ACCOUNT_ADAPTER = "catalog.accounts.adapters.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
MFA_ADAPTER = "catalog.accounts.adapters.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["recovery_codes", "totp", "webauthn"]
MFA_RECOVERY_CODES_SHOW_ONCE = MFA_PASSKEY_LOGIN_ENABLED = True
TOOLGATE_SECOND_FACTOR_ROLES = setting_checks.check_roles(
    "TOOLGATE_SECOND_FACTOR_ROLES", env.list("TOOLGATE_SECOND_FACTOR_ROLES", [])
)
PASSWORD_RESET_TIMEOUT = 3600
TOOLGATE_SSO_ISSUER = env.str("TOOLGATE_SSO_ISSUER", "").rstrip("/")
TOOLGATE_SSO_CLIENT_ID = env.str("TOOLGATE_SSO_CLIENT_ID", "")
TOOLGATE_SSO_CLIENT_SECRET = env.str("TOOLGATE_SSO_CLIENT_SECRET", "")
TOOLGATE_SSO_NAME = env.str("TOOLGATE_SSO_NAME", "single sign-on")
TOOLGATE_SSO_CREATE = env.bool("TOOLGATE_SSO_CREATE", False)
TOOLGATE_SSO_GROUPS_CLAIM = env.str("TOOLGATE_SSO_GROUPS_CLAIM", "groups")
TOOLGATE_SSO_GROUPS = setting_checks.read_group_map(env.list("TOOLGATE_SSO_GROUPS", []))
if TOOLGATE_SSO_ISSUER:
    setting_checks.check_sso(TOOLGATE_SSO_ISSUER, TOOLGATE_SSO_CLIENT_ID)
    INSTALLED_APPS.append("allauth.socialaccount")
SOCIALACCOUNT_ADAPTER = "catalog.accounts.sso.SsoAccountAdapter"
ACCOUNT_RATE_LIMITS = MFA_RATE_LIMITS = False  # attempts are counted in the database: catalog.access.sign_in
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "sign-in"
LANGUAGE_CODE = "en-us"
USE_I18N = True
LOCALE_PATHS = [SHIPPED_DIR / "locale"]
USE_TZ = True
TIME_ZONE = "UTC"
TOOLGATE_TIME_ZONE = setting_checks.check_time_zone(env.str("TOOLGATE_TIME_ZONE", "UTC"))
STATIC_DIGEST = folder_digest(SHIPPED_DIR / "static")
# With DEBUG on, files may change while they are served.
STATIC_URL = "static/" if DEBUG else f"static/{STATIC_DIGEST}/"
WHITENOISE_IMMUTABLE_FILE_TEST = rf"^/static/{STATIC_DIGEST}/"
STATICFILES_DIRS = [SHIPPED_DIR / "static", *(("fonts", folder) for folder in font_folders())]
STATIC_ROOT = None
# Served directly from the source folders, so that `serve` needs no collectstatic.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG

CHANNEL_LAYERS: dict[str, Any] = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        # Streamed model output passes through Redis (plans.live.streaming), and must not be readable there.
        "CONFIG": {"hosts": [REDIS_URL], "symmetric_encryption_keys": TOOLGATE_SECRET_KEYS},
    }
    if REDIS_URL
    else {"BACKEND": "channels.layers.InMemoryChannelLayer"}
}
REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "catalog.rest.authentication.BearerAuthentication",
        "catalog.rest.authentication.SignedInAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PARSER_CLASSES": ["catalog.rest.serializers.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "catalog.rest.problems.exception_handler",
    "UNAUTHENTICATED_USER": None,
    "DATETIME_FORMAT": "%Y-%m-%dT%H:%M:%S.%fZ",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Toolgate",
    "VERSION": "0.1.0",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "PATH_CONVERTER_OVERRIDES": {"number": {"type": "integer"}},
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "catalog.rest.openapi.describe_refusals",
        "catalog.rest.openapi.describe_fields",
        "catalog.rest.openapi.let_alternatives_overlap",
        "catalog.rest.examples.add_examples",
    ],
    "ENUM_NAME_OVERRIDES": {
        "SafetyLevel": "catalog.inventory.selectors.LEVELS",
        "SourceKind": "catalog.api.sources.KINDS",
        "ListedSourceKind": "catalog.api.sources.LISTED_KINDS",
        "SourceStatus": "catalog.api.sources.STATUSES",
        "ToolStatus": "catalog.api.serializers.TOOL_STATUSES",
        "OfferedChange": "catalog.api.sources.CHANGES",
        "PlanningStrategy": "plans.strategies.STRATEGIES",
        "TokenKind": "catalog.access.tokens.KINDS",
        "PlanKind": "plans.api.serializers.PLAN_KINDS",
        "PlanStatus": "plans.states.PlanStatus.values",
        "CallStatus": "plans.api.serializers.CALL_STATUSES",
        "RequestKind": "approvals.api.request_serializers.REQUEST_KINDS",
        "RequestStatus": "approvals.states.RequestStatus.values",
        "Verdict": "approvals.states.ReviewVerdict.values",
        "OutcomeVerdict": "plans.api.serializers.OUTCOMES",
        "PersonState": "catalog.access.people.STATES",
        "Role": "catalog.access.roles.ROLES",
        "AccountLinkKind": "approvals.api.people.LINK_KINDS",
        "LinkDelivery": "approvals.api.people.DELIVERIES",
        "PolicyEffect": "approvals.api.policies.EFFECTS",
        "RejectionEffect": "approvals.states.REJECTION_EFFECTS",
    },
}

# --- agents that sign in (OAuth) -----------------------------------------------------------------------------
TOOLGATE_OAUTH_CLIENTS = env.str("TOOLGATE_OAUTH_CLIENTS", "any")
if TOOLGATE_OAUTH_CLIENTS not in ("any", "known", "off"):
    raise ImproperlyConfigured("TOOLGATE_OAUTH_CLIENTS must be any, known or off.")
OAUTH2_PROVIDER_APPLICATION_MODEL = "connections.Client"
OAUTH2_PROVIDER_GRANT_MODEL = "connections.Grant"
OAUTH2_PROVIDER_ACCESS_TOKEN_MODEL = "connections.AccessToken"  # noqa: S105 - name of a model
OAUTH2_PROVIDER_REFRESH_TOKEN_MODEL = "connections.RefreshToken"  # noqa: S105 - name of a model
# OpenID Connect and the device flow are off. The library needs some model for them, which it never uses.
OAUTH2_PROVIDER_ID_TOKEN_MODEL = "connections.Connection"  # noqa: S105 - name of a model
OAUTH2_PROVIDER_DEVICE_GRANT_MODEL = "connections.Step"
# All of the library's models are swapped, so that its migrations would write no table.
MIGRATION_MODULES = {"oauth2_provider": None}
OAUTH2_PROVIDER: dict[str, Any] = {
    "OAUTH2_BACKEND_CLASS": "catalog.connections.backend.ConnectionCore",
    "OAUTH2_VALIDATOR_CLASS": "catalog.connections.validator.ConnectionValidator",
    "SCOPES_BACKEND_CLASS": "catalog.connections.scopes.ConnectionScopes",
    "ACCESS_TOKEN_GENERATOR": "catalog.connections.credentials.new_access_token",
    "REFRESH_TOKEN_GENERATOR": "catalog.connections.credentials.new_refresh_token",
    "REFRESH_TOKEN_REUSE_PROTECTION": True,
    "COMPLIANT_BCP_RFC9700_IMPLICIT_GRANT": True,
    "COMPLIANT_BCP_RFC9700_PASSWORD_GRANT": True,
    "COMPLIANT_BCP_RFC9700_PKCE_METHOD": True,
    "COMPLIANT_BCP_RFC9700_ACCESS_TOKEN_TRANSPORT": True,
    "COMPLIANT_BCP_RFC9700_AUTHZ_RESPONSE_ISS": True,
    "COMPLIANT_BCP_RFC9700_TOKEN_STORAGE": True,
    "COMPLIANT_BCP_RFC9700_REFRESH_TOKEN": True,
    "COMPLIANT_BCP_RFC9700_REDIRECT_URI_MATCHING": True,
    "COMPLIANT_BCP_RFC9700_PKCE_REQUIRED": True,
    **dict.fromkeys(
        [
            *("APPLICATION_ADMIN_CLASS", "ACCESS_TOKEN_ADMIN_CLASS", "GRANT_ADMIN_CLASS"),
            *("ID_TOKEN_ADMIN_CLASS", "REFRESH_TOKEN_ADMIN_CLASS"),
        ],
        "catalog.connections.admin.HiddenAdmin",
    ),
}
# Clients on a person's machine are redirected to over http on a loopback address; Client.clean allows no other http.
SILENCED_SYSTEM_CHECKS = ["oauth2_provider.W008"]

# --- Toolgate ------------------------------------------------------------------------------------------------
TOOLGATE_TOOLS: list[str] = env.list("TOOLGATE_TOOLS", [])
TOOLGATE_STDIO_COMMANDS: list[str] = env.list("TOOLGATE_STDIO_COMMANDS", [])
TOOLGATE_STDIO_ENVIRONMENT = setting_checks.check_variable_patterns(env.list("TOOLGATE_STDIO_ENVIRONMENT", []))
TOOLGATE_TRACE_HTTP_TOOLS = env.bool("TOOLGATE_TRACE_HTTP_TOOLS", False)
TOOLGATE_MODEL = env.str("TOOLGATE_MODEL", "").strip()
TOOLGATE_WORKSPACE = Path(env.str("TOOLGATE_WORKSPACE", str(VAR_DIR / "workspace")))
_protected_files = [
    VAR_DIR / "keys.env",
    TOOLGATE_AUDIT_CHECKPOINTS,
    *([Path(DATABASES["default"]["NAME"])] if ON_SQLITE else []),
]
setting_checks.check_workspace(TOOLGATE_WORKSPACE, _protected_files)
TOOLGATE_LEASE_SECONDS = env.float("TOOLGATE_LEASE_SECONDS", 30.0)
TOOLGATE_UNDO_SECONDS = env.float("TOOLGATE_UNDO_SECONDS", 5.0)
TOOLGATE_APPROVAL_TTL_SECONDS = env.int("TOOLGATE_APPROVAL_TTL_SECONDS", 24 * 3600)
TOOLGATE_RUN_WINDOW_SECONDS = env.int("TOOLGATE_RUN_WINDOW_SECONDS", 15 * 60)
TOOLGATE_MAX_RUNNING_PER_PLAN = env.int("TOOLGATE_MAX_RUNNING_PER_PLAN", 16)
TOOLGATE_MAX_RUNNING_PER_TOOL = read_tool_limits(env.str("TOOLGATE_MAX_RUNNING_PER_TOOL", ""))
TOOLGATE_MAX_PENDING_PER_REQUESTER = env.int("TOOLGATE_MAX_PENDING_PER_REQUESTER", 200)
TOOLGATE_MAX_PENDING_PER_TOKEN = env.int("TOOLGATE_MAX_PENDING_PER_TOKEN", 0)
TOOLGATE_MAX_PENDING_PER_PLAN = env.int("TOOLGATE_MAX_PENDING_PER_PLAN", 100)
_YEAR = 366 * 24 * 3600
for _name, _number, _least, _most in (
    ("TOOLGATE_LEASE_SECONDS", TOOLGATE_LEASE_SECONDS, 1, 3600),
    ("TOOLGATE_UNDO_SECONDS", TOOLGATE_UNDO_SECONDS, 0, 3600),
    ("TOOLGATE_APPROVAL_TTL_SECONDS", TOOLGATE_APPROVAL_TTL_SECONDS, 1, _YEAR),
    ("TOOLGATE_RUN_WINDOW_SECONDS", TOOLGATE_RUN_WINDOW_SECONDS, 1, _YEAR),
    ("TOOLGATE_THREADS", TOOLGATE_THREADS, 1, 256),
    ("TOOLGATE_MAX_RUNNING_PER_PLAN", TOOLGATE_MAX_RUNNING_PER_PLAN, 0, 10_000),
    ("TOOLGATE_MAX_PENDING_PER_REQUESTER", TOOLGATE_MAX_PENDING_PER_REQUESTER, 0, 1_000_000),
    ("TOOLGATE_MAX_PENDING_PER_TOKEN", TOOLGATE_MAX_PENDING_PER_TOKEN, 0, 1_000_000),
    ("TOOLGATE_MAX_PENDING_PER_PLAN", TOOLGATE_MAX_PENDING_PER_PLAN, 0, 1_000_000),
):
    if not _least <= _number <= _most:
        raise ImproperlyConfigured(f"{_name} must be between {_least} and {_most}.")

# --- mail ----------------------------------------------------------------------------------------------------
# Without this URL mails are only printed, so that notifications by mail are off.
TOOLGATE_SENDS_MAIL = bool(env.str("TOOLGATE_EMAIL_URL", ""))
_mail = read_email_url(env.str("TOOLGATE_EMAIL_URL", "") or "console:")
EMAIL_BACKEND, DEFAULT_FROM_EMAIL, EMAIL_HOST, EMAIL_PORT = _mail.backend, _mail.sender, _mail.host, _mail.port
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD, EMAIL_FILE_PATH = _mail.user, _mail.password, _mail.folder or None
EMAIL_USE_TLS, EMAIL_USE_SSL, EMAIL_TIMEOUT = _mail.use_tls, _mail.use_ssl, 15

# --- operations ----------------------------------------------------------------------------------------------
TOOLGATE_LOG_FORMAT = env.str("TOOLGATE_LOG_FORMAT", "text")
TOOLGATE_LOG_LEVEL = env.str("TOOLGATE_LOG_LEVEL", "INFO").upper()
TOOLGATE_METRICS_TOKEN = env.str("TOOLGATE_METRICS_TOKEN", "")
for _name, _value, _choices in (
    ("TOOLGATE_LOG_FORMAT", TOOLGATE_LOG_FORMAT, logging.LOG_FORMATS),
    ("TOOLGATE_LOG_LEVEL", TOOLGATE_LOG_LEVEL, logging.LOG_LEVELS),
):
    if _value not in _choices:
        raise ImproperlyConfigured(f"{_name} must be one of {', '.join(_choices)}.")
if TOOLGATE_METRICS_TOKEN:
    setting_checks.check_key("TOOLGATE_METRICS_TOKEN", TOOLGATE_METRICS_TOKEN, least=16)
LOGGING = logging.logging_config(TOOLGATE_LOG_FORMAT, TOOLGATE_LOG_LEVEL)

UNKNOWN_NAMES = setting_checks.check_setting_names(
    os.environ, known=[*filter(str.isupper, globals()), "TOOLGATE_EMAIL_URL"]
)
