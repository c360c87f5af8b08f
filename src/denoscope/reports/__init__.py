"""Figures and the HTML report: read results, draw them."""

from denoscope.reports.errors import ReportError
from denoscope.reports.page import render_report, write_report
from denoscope.reports.pictures import ReportImages

__all__ = ["ReportError", "ReportImages", "render_report", "write_report"]
