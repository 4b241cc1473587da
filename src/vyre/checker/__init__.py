"""Is a program legal? Scopes, types, uniformity, transfers and limits, each error with a code, a place and a fix."""

from vyre.checker.capabilities import Capabilities
from vyre.checker.check import check
from vyre.checker.codes import CODES, Rule, Severity
from vyre.checker.diagnostics import Diagnostic, Report, render_diagnostic

__all__ = ["CODES", "Capabilities", "Diagnostic", "Report", "Rule", "Severity", "check", "render_diagnostic"]
