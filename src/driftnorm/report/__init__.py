"""Rows and runs as one self-contained page; see `driftnorm.report.page.make_report`."""
