"""How what plays a cloud fails: as `faults.json` in its folder says, which a test may change.

  throttle: every n-th call is refused
  broken: calls that fail by themselves, once each
  lost: calls that are done, once each, and whose answer is not sent
  down: calls, each with seconds: from the first such call on nobody answers for so long, once
What a call is called each cloud says; it may know more faults.
"""

import json, time


class Faults:
    def __init__(self, folder):
        self.file, self.calls, self.now = folder / "faults.json", 0, {}
        self.spent, self.open_again = set(), {}

    def look(self):
        """One more call: what is wrong now."""
        self.calls += 1
        try:
            self.now = json.loads(self.file.read_text())
        except (OSError, ValueError):
            self.now = {}

    def get(self, word, usual):
        return self.now.get(word, usual)

    def is_throttled(self):
        every = self.get("throttle", 0)
        return every > 0 and self.calls % every == 0

    def once(self, kind, called):
        """Whether it fails in this way now; the next one does not."""
        is_now = called in self.get(kind, []) and (kind, called) not in self.spent
        if is_now:
            self.spent.add((kind, called))
        return is_now

    def is_down(self, called):
        """Whether nobody answers now; this call may be the first."""
        for name, seconds in self.get("down", {}).items():
            if called == name:
                self.open_again.setdefault(name, time.time() + seconds)
            if time.time() < self.open_again.get(name, 0):
                return True
        return False
