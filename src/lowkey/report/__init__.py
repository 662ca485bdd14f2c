"""Reports from run directories: tables, pictures, one HTML page; and the picture of an audit. No run is changed."""

from lowkey.report.audits import write_audit
from lowkey.report.canvas import Picture
from lowkey.report.figures import FIGURES
from lowkey.report.render import write_report

__all__ = ["FIGURES", "Picture", "write_audit", "write_report"]
