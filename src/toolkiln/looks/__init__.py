"""Looks: the icons and colors that tools are shown with, for whoever draws them.

How a page or a list is laid out is for the surfaces.
"""

from toolkiln.looks.colors import color_problem, paint
from toolkiln.looks.icons import icon_problem, svg

__all__ = ["color_problem", "icon_problem", "paint", "svg"]
