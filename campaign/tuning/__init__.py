"""``campaign tune``: a search of variants and settings, and searches played on what is measured."""
