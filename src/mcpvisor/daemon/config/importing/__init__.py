"""What becomes of another program's file when it is imported: entries of ours, shown first and then written."""
