"""The semantic cache: answers repeats, and only those it can vouch for."""
