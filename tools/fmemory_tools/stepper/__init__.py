"""The terminal view of `fmemory step`: a model without a screen, and the panes that show it.

`timeline`, `states`, `content`, `search`, `cursor` and `lines` know no terminal and are tested by
themselves; `panes`, `screens` and `app` need textual, which comes with the extra `step`. Nothing
here writes to a store, and nothing that is stored is ever taken for markup or for commands to a
terminal.
"""
