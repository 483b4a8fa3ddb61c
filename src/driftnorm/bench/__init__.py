"""What measures: cells to rows."""
