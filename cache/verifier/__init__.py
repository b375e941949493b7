"""Whether the answer to one text would do for another: `verdict` decides, by the guards and the judge.

A text is cut into pieces (`scan`, `quantities`), its form and its terms are read (`reading`, by `lexicon` and `stems`),
two readings are laid side by side (`alignment`, `order`), and `guards` look for what must not differ.
"""
