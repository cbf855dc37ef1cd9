"""The settings screen: one row per setting; a change is applied and written to the file at once."""

from collections.abc import Mapping
from typing import ClassVar

from textual import getters, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from mlxspec.params.table import STORED
from mlxspec_app.conversation.messages import Span
from mlxspec_app.conversation.views import XRAY, ink_named
from mlxspec_app.screens.dialogs import PressKeyScreen
from mlxspec_app.screens.steady import SteadyScreen
from mlxspec_app.sessions.session import CHAT_DEFAULTS, ReplySettings
from mlxspec_app.settings.file import Settings, value_of
from mlxspec_app.settings.keys.choices import all_bindings, shown_keys, usable_keys
from mlxspec_app.settings.rules import KEYS, SAMPLING, SECTIONS, Rule, Value, rule_of
from mlxspec_app.text.safe_text import safe_line
from mlxspec_app.widgets.chat.key_footer import KeyFooter
from mlxspec_app.widgets.chat.token_message import TokenMessage

_NAME_CELLS = 24
_MUTED = "$spec-muted"
_UNSET = {"theme": "the app's own", "model": "the default model"}
_SPANS = (
    Span("Five", "plain", 1, 0.62),
    Span(" words", "accepted", 2, 0.95, 0.9, "suffix"),
    Span(" were", "accepted", 2, 0.97, 0.4, "suffix"),
    Span(" not", "corrected", 2, 0.34),
    Span(" drafted", "accepted", 3, 0.71, 0.93, "eagle3"),
    Span(" by", "accepted", 3, 0.88, 0.09, "eagle3"),
    Span(" a", "bonus", 3, 0.81),
    Span(" small", "accepted", 4, 0.22, 0.8, "model"),
    Span(" model.", "corrected", 4, 0.18),
)


class SettingList(OptionList):
    """The rows of the settings; its keys change the highlighted one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "screen.cycle(-1)", "Previous", show=False),
        Binding("right", "screen.cycle(1)", "Next", key_display="←→"),
        Binding("enter", "select", "Change"),
        Binding("delete,backspace", "screen.reset", "Default", key_display="Del"),
    ]


class SettingsScreen(SteadyScreen[None]):
    """Shows and changes the settings."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f5", "leave", "Back"),
        Binding("ctrl+c", "leave", "Back", show=False, priority=True),
    ]

    _list = getters.query_one(SettingList)
    _field = getters.query_one(Input)

    def __init__(self, next_reply: ReplySettings | None = None) -> None:
        """Make the screen; without `next_reply` it does not show the settings of the next reply."""
        super().__init__()
        self._now = next_reply.adjustable() if next_reply is not None else {}
        self._origins = next_reply.origins() if next_reply is not None else {}
        self._bindings_by_id = all_bindings()

    def compose(self) -> ComposeResult:
        yield Static(_title(self.app.settings_path), id="settings-title")
        if self._now:
            figures = " · ".join(f"{name} {value}" for name, value in self._now.items())
            yield Static(Content.styled(f"next reply: {figures}", _MUTED), id="settings-now")
        if self.app.notices:
            notices = "\n".join(f"! {safe_line(n)}" for n in self.app.notices)
            yield Static(Content.styled(notices, "$spec-corrected"), id="settings-notices")
        yield SettingList(
            *setting_options(self.app.settings, self._bindings_by_id, self._unset()),
            id="settings-list",
            compact=True,
        )
        sample = TokenMessage(view=XRAY)
        sample.extend(_SPANS)
        sample.set_ink(ink_named(self.app.settings.ink))
        yield sample
        yield Static(id="settings-detail")
        yield Input(id="settings-field", compact=True)
        yield KeyFooter()

    def on_mount(self) -> None:
        self._field.display = False
        self._list.focus()

    @property
    def _chosen(self) -> str:  # the name of the highlighted setting, or ""
        option = self._list.highlighted_option
        return (option.id or "") if option is not None else ""

    @property
    def _rule(self) -> Rule:
        return rule_of(self._chosen)

    @on(SettingList.OptionHighlighted)
    def _describe(self) -> None:
        self._show_detail()

    @on(SettingList.OptionSelected)
    def _select(self) -> None:
        table, _, rest = self._chosen.partition(".")
        if table == KEYS:
            question = PressKeyScreen(self._bindings_by_id[rest].tooltip)
            self.app.push_screen(question, self._set_key)
        elif self._rule.choices or self._rule.kind is bool:
            self.action_cycle(1)
        else:
            self._edit()

    @on(Input.Submitted)
    def _submit(self, event: Input.Submitted) -> None:
        try:
            value = self._rule.read_typed(event.value)
        except ValueError as error:
            self._show_detail(f"{self._chosen} {error}")
            return
        self._stop_editing()
        self._change(value)

    def action_cycle(self, step: int) -> None:
        """Change the highlighted setting to its next value, if its values are a list."""
        rule, value = self._rule, value_of(self.app.settings, self._chosen)
        # the theme in use may come from the command line, not from the settings
        value = self.app.theme if self._chosen == "theme" else value
        if rule.kind is bool:
            self._change(not value)
        elif options := rule.choices or rule.examples:
            index = options.index(str(value)) if value in options else -step
            self._change(options[(index + step) % len(options)] or None)

    def action_reset(self) -> None:
        if self._chosen:
            self._change(None)

    def action_leave(self) -> None:
        if self._field.display:
            self._stop_editing()
            self._show_detail()
        else:
            self.dismiss()

    def _edit(self) -> None:
        self._field.value = written(value_of(self.app.settings, self._chosen))
        self._field.display = True
        self._field.focus()
        self.call_after_refresh(self._list.scroll_to_highlight)

    def _stop_editing(self) -> None:
        self._field.display = False
        self._list.focus()

    def _set_key(self, key: str | None) -> None:
        if key is None:
            return
        chosen = dict(self.app.settings.keys)
        before = usable_keys(chosen).troubles
        chosen[self._chosen.partition(".")[2]] = key
        # only the conflicts of this key: older ones must not block the change
        troubles = [t for t in usable_keys(chosen).troubles if t not in before]
        if troubles:
            self._show_detail(troubles[0])
        else:
            self._change(key)

    def _change(self, value: Value | None) -> None:
        name = self._chosen
        self.app.change(name, value)
        row = setting_row(self.app.settings, name, self._bindings_by_id, self._unset())
        self._list.replace_option_prompt(name, row)
        self.query_one(TokenMessage).set_ink(ink_named(self.app.settings.ink))
        self._show_detail()

    def _unset(self) -> dict[str, str]:
        """Return the values in use of unset sampling params and their source, by dotted name."""
        known = {name: row.word for name, row in STORED.items() if row.word in self._origins}
        return {
            name: self._origins[word]
            if STORED[name].repeats
            else f"{self._now.get(word, '')}, {self._origins[word]}"
            for name, word in known.items()
        }

    def _show_detail(self, error: str = "") -> None:
        name = self._chosen
        if not name:
            return
        table, _, rest = name.partition(".")
        if table == KEYS:
            binding = self._bindings_by_id[rest]
            meaning, default = binding.tooltip, binding.key
        else:
            meaning, default = self._rule.meaning, written(value_of(Settings(), name)) or '""'
            default = f"the model's, else {default}" if rest in CHAT_DEFAULTS else default
        self.query_one("#settings-detail", Static).update(
            detail(self._rule, meaning, default, error)
        )


def _title(path: str) -> Content:
    return Content.assemble(
        (" mlxspec ", "bold $background on $foreground"),
        (" settings ", "$foreground on $spec-line"),
        (f"  {safe_line(path)}", _MUTED),
    )


def setting_options(
    settings: Settings, bindings: Mapping[str, Binding], unset: Mapping[str, str]
) -> list[Option]:
    """Return a row for every setting and key; `unset` has values that the file does not set."""
    options: list[Option] = []
    for heading, names in SECTIONS.items():
        options.append(_heading(heading, is_first=not options))
        options += [Option(setting_row(settings, name, bindings, unset), name) for name in names]
    options.append(_heading("Keys", is_first=False))
    keys = [f"{KEYS}.{name}" for name in bindings]
    return options + [Option(setting_row(settings, name, bindings, unset), name) for name in keys]


def setting_row(
    settings: Settings, name: str, bindings: Mapping[str, Binding], unset: Mapping[str, str]
) -> Content:
    """Return the row of a setting; a value that the user changed is bold with a star."""
    table, _, rest = name.partition(".")
    value = value_of(settings, name)
    if table == KEYS:
        shown = shown_keys(bindings[rest], settings.keys.get(rest, ""))
    else:
        shown = _UNSET.get(name, '""') if value == "" else safe_line(written(value))
    is_usual = value == value_of(Settings(), name)
    if table == SAMPLING and (is_usual := rest not in settings.sampling):
        shown = unset.get(name, shown)
    return Content.assemble(
        (f"  {rest or name}".ljust(_NAME_CELLS), "$foreground"),
        (" " if is_usual else "*", "$spec-corrected"),
        (f" {shown}", _MUTED if is_usual else "$foreground bold"),
    )


def detail(rule: Rule, meaning: str, default: str, error: str = "") -> Content:
    """Return the meaning of a setting, and its allowed values or an error."""
    if error:
        why = (safe_line(error), "$spec-rejected")
        second = Content.assemble(("✗ ", "$spec-rejected bold"), why)
    else:
        second = Content.styled(f"{rule.allowed}; default {default}", _MUTED)
    return Content("\n").join([Content.styled(meaning, "$foreground"), second])


def written(value: Value | None) -> str:
    """Return a value as in the settings file, without quotation marks."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _heading(text: str, *, is_first: bool) -> Option:
    return Option(
        Content.styled(("" if is_first else "\n") + text, f"{_MUTED} bold"), disabled=True
    )
