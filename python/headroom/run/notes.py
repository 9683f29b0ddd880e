"""What the report says beside its figures: one note about each thing, its latest words.

The program's threads and the report's write it, and neither waits for the other: it is one dict,
each of whose operations is whole by itself.
"""

MOST = 32


class Notes:
    def __init__(self):
        self._words = {}

    def append(self, words):
        self.say(words, words)

    def say(self, about, words):
        """In place of what was said about it."""
        if about in self._words or len(self._words) < MOST:
            self._words[about] = words

    def take_back(self, about):
        self._words.pop(about, None)

    def forget(self):
        self._words.clear()

    def words(self):
        return list(self._words.values())
