"""Who may ask, from where, how much and with what body. Nothing here knows a model or a wire format.

A request passes `hosts`, `origins`, `auth` (with `keys`) and `limits`, in that order, inside `middleware`; the
handler then reads its body through `body`.
"""
