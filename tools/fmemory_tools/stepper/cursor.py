"""Which row of a list is selected and which are in view: the arithmetic of `less` on a list."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Cursor:
    """A selected row that is always in view, and always a row if there is any.

    Attributes:
        count: Rows of the list.
        height: Rows in view; 1 or more.
        selected: The selected row, from 0.
        top: The first row in view.
    """

    count: int = 0
    height: int = 1
    selected: int = 0
    top: int = 0

    def go(self, row: int) -> None:
        """Select a row, or the nearest there is.

        >>> cursor = Cursor(count=100, height=10)
        >>> cursor.go(50)
        >>> cursor.selected, cursor.top
        (50, 45)
        """
        self.selected = min(max(0, row), max(0, self.count - 1))
        if not self.top <= self.selected < self.top + self.height:
            near = abs(self.selected - self._nearest_end()) < self.height
            self.top = self._scrolled() if near else self.selected - self.height // 2
        self._settle()

    def move(self, rows: int) -> None:
        """Select the row that many further on, or back.

        >>> cursor = Cursor(count=100, height=10)
        >>> cursor.move(12)
        >>> cursor.selected, cursor.top
        (12, 3)
        """
        self.go(self.selected + rows)

    def page(self, pages: float) -> None:
        """Select as far on as the view is high, and move the view with it."""
        rows = int(max(1, self.height) * abs(pages)) * (1 if pages > 0 else -1)
        self.top += rows
        self.selected += rows
        self._settle()

    def resize(self, *, count: int | None = None, height: int | None = None) -> None:
        """Take in that the list or the view has another size; the selected row stays selected."""
        self.count = self.count if count is None else count
        self.height = self.height if height is None else max(1, height)
        self.go(self.selected)

    @property
    def visible(self) -> range:
        """The rows in view."""
        return range(self.top, min(self.count, self.top + self.height))

    @property
    def is_last(self) -> bool:
        """Whether the last row is selected, or there is none."""
        return self.selected >= self.count - 1

    def _nearest_end(self) -> int:
        return self.top if self.selected < self.top else self.top + self.height - 1

    def _scrolled(self) -> int:
        """The top with which the selected row is just in view."""
        return self.selected if self.selected < self.top else self.selected - self.height + 1

    def _settle(self) -> None:
        self.selected = min(max(0, self.selected), max(0, self.count - 1))
        self.top = min(max(0, self.top), max(0, self.count - self.height))
        self.top = min(self.top, self.selected)
        self.top = max(self.top, self.selected - self.height + 1)
