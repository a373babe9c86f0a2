"""The ground that all other packages stand on: what a setting is. It imports none of them."""

OWNER = "dvfs-campaign"  # campaign/verbs/command_line.py looks for this
