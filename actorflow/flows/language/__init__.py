"""The flow language: from text to tree and back."""
