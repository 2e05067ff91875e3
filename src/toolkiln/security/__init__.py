"""Sessions, rules, approvals, secrets and the audit. Names load on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkiln.security.approvals import (
        ApprovalRequest,
        ApprovalService,
        ApprovalStore,
        PendingApprovals,
        may_answer,
    )
    from toolkiln.security.audit import AuditFailed, AuditReader, AuditWriter, audit_key, sanitized
    from toolkiln.security.authentication import Authenticator, KeyScope, NewApiKey, is_loopback
    from toolkiln.security.credentials import (
        KEY_VARIABLE,
        TOKEN_VARIABLE,
        Credential,
        find_credential,
    )
    from toolkiln.security.guard import NO_MASK, Guard, Rates, RateStore
    from toolkiln.security.live_settings import LIVE, PERMISSIONS, FleetLive
    from toolkiln.security.masking import Mask, SecretError
    from toolkiln.security.redaction import redacted_arguments
    from toolkiln.security.rules import Rules, decide
    from toolkiln.security.secrets import Secrets, find_references, resolve_references
    from toolkiln.security.security import (
        Security,
        StateStores,
        admits_own_tools,
        authoring_refusal,
        missing_privilege,
        privilege_hint,
    )
    from toolkiln.security.sessions import (
        LOCAL_OPERATOR,
        SESSION,
        NoSession,
        SessionService,
        SessionStore,
        SessionToken,
        account_name,
        acting_session,
        check_identity,
        token_hash,
    )
    from toolkiln.security.tool_settings import (
        NO_SETTINGS,
        CallSettings,
        ToolSettingsService,
        unreviewed_hint,
    )

_HOMES = {
    "ApprovalRequest": "approvals",
    "ApprovalService": "approvals",
    "ApprovalStore": "approvals",
    "AuditReader": "audit",
    "AuditFailed": "audit",
    "AuditWriter": "audit",
    "Authenticator": "authentication",
    "Credential": "credentials",
    "FleetLive": "live_settings",
    "Guard": "guard",
    "KEY_VARIABLE": "credentials",
    "KeyScope": "authentication",
    "LIVE": "live_settings",
    "LOCAL_OPERATOR": "sessions",
    "Mask": "masking",
    "NO_SETTINGS": "tool_settings",
    "NO_MASK": "guard",
    "NewApiKey": "authentication",
    "NoSession": "sessions",
    "PERMISSIONS": "live_settings",
    "PendingApprovals": "approvals",
    "RateStore": "guard",
    "Rates": "guard",
    "Rules": "rules",
    "SESSION": "sessions",
    "SecretError": "masking",
    "Secrets": "secrets",
    "Security": "security",
    "SessionService": "sessions",
    "SessionStore": "sessions",
    "SessionToken": "sessions",
    "StateStores": "security",
    "CallSettings": "tool_settings",
    "TOKEN_VARIABLE": "credentials",
    "ToolSettingsService": "tool_settings",
    "account_name": "sessions",
    "acting_session": "sessions",
    "admits_own_tools": "security",
    "audit_key": "audit",
    "authoring_refusal": "security",
    "sanitized": "audit",
    "decide": "rules",
    "redacted_arguments": "redaction",
    "find_credential": "credentials",
    "privilege_hint": "security",
    "is_loopback": "authentication",
    "missing_privilege": "security",
    "may_answer": "approvals",
    "find_references": "secrets",
    "check_identity": "sessions",
    "resolve_references": "secrets",
    "token_hash": "sessions",
    "unreviewed_hint": "tool_settings",
}

__all__ = [
    "KEY_VARIABLE",
    "LIVE",
    "LOCAL_OPERATOR",
    "NO_MASK",
    "NO_SETTINGS",
    "PERMISSIONS",
    "SESSION",
    "TOKEN_VARIABLE",
    "ApprovalRequest",
    "ApprovalService",
    "ApprovalStore",
    "AuditFailed",
    "AuditReader",
    "AuditWriter",
    "Authenticator",
    "CallSettings",
    "Credential",
    "FleetLive",
    "Guard",
    "KeyScope",
    "Mask",
    "NewApiKey",
    "NoSession",
    "PendingApprovals",
    "RateStore",
    "Rates",
    "Rules",
    "SecretError",
    "Secrets",
    "Security",
    "SessionService",
    "SessionStore",
    "SessionToken",
    "StateStores",
    "ToolSettingsService",
    "account_name",
    "acting_session",
    "admits_own_tools",
    "audit_key",
    "authoring_refusal",
    "check_identity",
    "decide",
    "find_credential",
    "find_references",
    "is_loopback",
    "may_answer",
    "missing_privilege",
    "privilege_hint",
    "redacted_arguments",
    "resolve_references",
    "sanitized",
    "token_hash",
    "unreviewed_hint",
]


if not TYPE_CHECKING:  # a type checker reports unknown names itself

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
