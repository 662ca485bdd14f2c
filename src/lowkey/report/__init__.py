"""Reports from run directories: tables, curves, one HTML page; and the picture of an audit. Never changes a run."""

from lowkey.report.audits import write_audit
from lowkey.report.render import write_report

__all__ = ["write_audit", "write_report"]
