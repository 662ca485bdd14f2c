"""Reports from run directories: tables, curves, one HTML page. Reads runs, never changes them."""

from lowkey.report.render import write_report

__all__ = ["write_report"]
