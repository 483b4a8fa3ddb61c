"""What people read: rows to tables, figures and pages. Importing this never imports torch."""
