"""What the user can do in a chat: a state allows an action, or there is nothing to act on."""

from mlxspec_app.conversation.messages import without_system
from mlxspec_app.conversation.state import ChatState


def is_at_work(state: ChatState) -> bool:
    """Return whether a reply or a download can be stopped."""
    return state.phase == "busy" or state.loading is not None


def is_possible(action: str, state: ChatState) -> bool:
    """Return whether a state allows an action of the chat; an action without a rule is allowed."""
    has_reply, is_ready = state.reply is not None, state.phase == "ready"
    match action:
        case "stop":
            return is_at_work(state) or bool(state.queue)
        case "replay":
            return has_reply or state.phase == "failed"
        case "model" | "draft":
            return state.choice is not None
        case "verify":
            return is_ready and has_reply
        case "race":
            return is_ready
        case "alternatives":
            return has_reply and state.phase in ("ready", "busy")
        case "regenerate" if state.phase == "failed":
            return state.choice is not None  # without a model, /retry loads the models again
        case "regenerate":
            return is_ready and bool(without_system(state.messages))
        case "resume":
            return is_ready and state.cut_reply is not None
        case "new_chat" | "edit" | "fork":
            return not state.is_empty
    return True
