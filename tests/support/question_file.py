"""A file with a few short questions, for the commands that read questions."""

import json

QUESTIONS = [("qa", ["abcab", "ba"]), ("writing", ["aabbccaabbcc"]), ("copy", ["cab"])]


def save_questions(folder, count=None):
    """Write the file of the first questions and return its path."""
    path = folder / "question.jsonl"
    path.write_text(
        "\n".join(
            json.dumps({"question_id": number, "category": category, "turns": turns})
            for number, (category, turns) in enumerate(QUESTIONS[:count], 81)
        )
    )
    return path
