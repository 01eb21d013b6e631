"""The dashboard: what its pages say and how they look. How they are reached is ``server/dashboard.py``'s.

How to add a page
-----------------
1. ``dashboard/<page>.py``: a frozen dataclass that holds all that the page shows, and a function that fills it from a
   ``Reader`` (and ``Parts``, where it asks what is in memory). It decides nothing and writes nothing. The same object
   is the page's JSON, so name its fields for people who write programs.
2. ``templates/<page>.html``: ``{% extends "base.html" %}``; the context is ``page``, what all pages share is ``frame``
   (see ``frame.py``). Parts that are fetched by themselves (rows, dialogs) are templates of their own which the page
   includes; import the macros with ``{% import "parts.html" as parts with context %}``.
3. ``server/dashboard_<page>.py``: ``def routes(pages: Pages) -> list[Route]`` with ``pages.page(path, show)`` for what
   is shown and ``pages.form(path, act, again=show)`` for what is done; add it to ``server/dashboard.py``'s list. The
   page's ``.json`` comes by itself.
4. Styles that only the page needs go to ``static/<page>.css`` and a module to ``static/<page>.js``; name them in the
   template's ``styles`` and ``modules`` blocks.
5. A row in ``docs/reference/dashboard.md`` (a test compares), tests in ``tests/dashboard``: over plain HTTP for every
   form, with ``browser_page`` for the rest.

What every page keeps to
------------------------
* Every action is a ``<form method=post>`` with the token of ``parts.form``, works without JavaScript, and ends in a
  303; a refusal is shown on the page that asked. JavaScript makes it quicker, never possible.
* Nothing inline: no ``style=``, no ``<script>`` with text, no handler attributes. SVG is styled by classes.
* Texts of agents and models are put in as plain ``{{ text }}``: templates escape, and make visible what cannot be seen.
  ``|safe`` is for nobody; what ``markup.py`` and ``svg.py`` return is safe already. Inside ``value=`` and
  ``<textarea>``, where a person edits, ``{{ text|exact }}`` leaves the characters as they are.
* Colour is state, and never alone: ``parts.pill(state)`` has the glyph and the word.
"""
