"""Rows and runs as one self-contained page; see `driftnorm.views.report.page.make_report`."""
