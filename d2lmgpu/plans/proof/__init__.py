"""What a plan does, found without computing; prove.py is the beginning.

check.py looks at the plan's form; replay.py, with rules.py, follows its values through all steps; memory.py adds up
what devices hold. live_ranges.py says when they hold it, and sizes.py how many bytes it has.
"""
