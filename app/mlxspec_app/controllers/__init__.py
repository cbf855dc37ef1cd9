"""Controllers: the logic of the screens, one concern a class, testable without Textual."""
