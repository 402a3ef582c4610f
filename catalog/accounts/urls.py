"""URLs of sign-in and of a person's own account. Of django-allauth's views none is reachable."""

from django.conf import settings
from django.contrib.auth.views import LogoutView
from django.urls import path

from catalog.accounts import password_reset, security, sign_in, sign_ins

urlpatterns = [
    path("sign-in/", sign_in.sign_in, name="sign-in"),
    path("sign-in/code/", sign_in.sign_in_code, name="sign-in-code"),
    path("sign-in/passkey/", sign_in.sign_in_with_passkey, name="sign-in-passkey"),
    path("sign-in/reset/", password_reset.reset_password, name="reset"),
    path("sign-in/reset/<str:uidb64>/", password_reset.ResetConfirmView.as_view(), name="reset-confirm"),
    path("sign-out/", LogoutView.as_view(), name="sign-out"),
    path("profile/security/", security.security, name="security"),
    path("profile/security/password/", security.change_password, name="security-password"),
    path("profile/security/mail/", security.change_mail, name="security-mail"),
    path("profile/security/mail/confirm/", security.confirm_mail, name="security-mail-confirm"),
    path("profile/security/app/", security.set_up_app, name="authenticator-app"),
    path("profile/security/app/remove/", security.remove_app, name="authenticator-app-remove"),
    path("profile/security/codes/", security.recovery_codes, name="recovery-codes"),
    path("profile/security/passkeys/new/", security.add_passkey, name="passkey-new"),
    path("profile/security/passkeys/<number:number>/remove/", security.remove_passkey, name="passkey-remove"),
    path("profile/sign-ins/", sign_ins.sign_ins, name="sign-ins"),
    path("profile/sign-ins/end/<number:number>/", sign_ins.end_sign_in, name="sign-in-end"),
    path("profile/sign-ins/end-others/", sign_ins.sign_out_everywhere, name="sign-out-everywhere"),
    # django-allauth redirects to these names.
    path("sign-in/", sign_in.sign_in, name="account_login"),
    path("sign-in/code/", sign_in.sign_in_code, name="mfa_authenticate"),
]

if settings.TOOLGATE_SSO_ISSUER:  # without it, the models of the extra are not installed
    from catalog.accounts import sso

    urlpatterns += [
        path("sign-in/sso/", sso.sso_sign_in, name="sso"),
        path("sign-in/sso/callback/", sso.sso_callback, name="sso-callback"),
        path("profile/security/sso/link/", sso.link_sso, name="sso-link"),
        path("profile/security/sso/unlink/", sso.unlink_sso, name="sso-unlink"),
    ]
