"""Reports from run directories: tables, curves, one HTML page. Reads runs, never changes them. And the picture of an audit."""

from lowkey.report.audits import write_audit
from lowkey.report.render import write_report

__all__ = ["write_audit", "write_report"]
