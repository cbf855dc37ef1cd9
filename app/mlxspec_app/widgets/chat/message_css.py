"""The style sheet of a message: a rule for each style name of the inks and of Markdown."""

MESSAGE_CSS = """
TokenMessage {
    height: auto;
    color: $spec-plain;
    .token-message--plain { color: $spec-plain; }
    .token-message--accepted { color: $spec-accepted; }
    .token-message--corrected { color: $spec-corrected; text-style: bold underline; }
    .token-message--bonus { color: $spec-bonus; text-style: italic; }
    .token-message--forced { color: $spec-step-1; text-style: italic; }
    .token-message--kept { color: $spec-muted; }
    .token-message--step-1 { color: $spec-step-1; }
    .token-message--step-2 { color: $spec-step-2; }
    .token-message--step-3 { color: $spec-step-3; }
    .token-message--step-4 { color: $spec-step-4; text-style: bold; }
    .token-message--step-5 { color: $spec-step-5; text-style: bold underline; }
    .token-message--over { color: $spec-corrected; text-style: underline; }
    .token-message--far-over { color: $spec-corrected; text-style: bold underline; }
    .token-message--under { color: $spec-bonus; text-style: italic; }
    .token-message--far-under { color: $spec-bonus; text-style: bold italic; }
    .token-message--text { color: $spec-accepted; }
    .token-message--head { color: $spec-bonus; text-style: italic; }
    .token-message--model { color: $spec-corrected; text-style: underline; }
    .token-message--own { color: $spec-plain; }
    .token-message--own-loud { color: $spec-loud; }
    .token-message--own-quiet { color: $spec-muted; }
    .token-message--guess { color: $spec-guess; }
    .token-message--guess-loud { color: $spec-guess-loud; }
    .token-message--guess-quiet { color: $spec-guess-quiet; }
    &:nocolor .token-message--guess { text-style: italic; }
    &:nocolor .token-message--guess-loud { text-style: italic; }
    &:nocolor .token-message--guess-quiet { text-style: italic; }
    .token-message--band-a { background: $spec-band-a; }
    .token-message--band-b { background: $spec-band-b; }
    .token-message--gutter { color: $spec-muted; }
    .token-message--share { color: $spec-accepted 45%; }
    .token-message--caret { color: $foreground; }
    &:nocolor .token-message--kept { text-style: dim; }
    &:nocolor .token-message--step-1 { text-style: dim; }
    &:ansi .token-message--step-1 { text-style: dim; }
    .token-message--mark { text-style: dim; }
    .token-message--strong { text-style: bold; }
    .token-message--emphasis { text-style: italic; }
    .token-message--reasoning { text-style: dim italic; }
    .token-message--code { background: $panel; }
    .token-message--block { color: $spec-muted; background: $panel; }
}
TokenMessage.-user {
    background: $surface;
    .token-message--gutter { color: $foreground; }
}
TokenMessage.-system {
    border: round $border-blurred;
    border-title-color: $spec-muted;
    background: $background;
    .token-message--gutter { color: $spec-muted; }
}
"""
