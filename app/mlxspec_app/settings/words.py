"""What each setting means, in the order and under the headings in which they are shown."""

SECTIONS: dict[str, dict[str, str]] = {
    "Look": {
        "theme": "colours of the app",
        "ink": "what the colours of a reply say when a chat begins; F2 changes it for now",
        "frame_rate": "frames a second; 0 is 30, and 15 over SSH",
        "reduced_motion": "nothing moves or blinks",
        "ascii_glyphs": "signs around the text in ASCII",
    },
    "Chat": {
        "context_full": "when a chat no longer fits the model: ask; drop its oldest turns; rotate, "
        "forget the oldest tokens; begin a new chat",
        "model": 'model to begin with, "" for the default one; from the next start on',
        "drafter": "drafter to begin with; from the next start on",
        "learn": "keep what the table learns from your chats, readable by you alone; from the next "
        "start on",
    },
    "Sampling": {
        "sampling.temperature": "0 takes the likeliest token, 1 draws as the model would",
        "sampling.top_k": "keep this many of the likeliest tokens; 0 keeps all",
        "sampling.top_p": "keep the likeliest tokens of this share together",
        "sampling.min_p": "keep tokens with this share of the best one's probability",
        "sampling.repetition_penalty": "makes tokens of prompt and reply less likely; 1 for none",
        "sampling.presence_penalty": "makes tokens of the reply less likely; 0 for none",
        "sampling.frequency_penalty": "likewise, once per occurrence; 0 for none",
        "sampling.max_tokens": "tokens of a reply at most",
    },
}


def meaning_of(name: str) -> str:
    """Return what a setting means."""
    return {name: text for section in SECTIONS.values() for name, text in section.items()}[name]
