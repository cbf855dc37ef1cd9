"""A session that is told what to say: for tests of screens, and of what works without one."""

from mlxspec_app.conversation.session import SessionNotice


class ScriptedSession:
    """A session that says what the test puts into `news`, and notes its orders."""

    def __init__(self, *news):
        self.news = list(news)
        self.orders = []
        self.busy = True

    def start(self):
        self.orders.append("start")

    def send(self, text):
        self.orders.append(("send", text))

    def regenerate(self):
        self.orders.append("regenerate")

    def new_chat(self):
        self.orders.append("new_chat")

    def prove(self):
        self.orders.append("prove")

    def find_alternatives(self, turn, position):
        self.orders.append(("find_alternatives", turn, position))

    def branch(self, turn, position, token):
        self.orders.append(("branch", turn, position, token))

    def race(self, text):
        self.orders.append(("race", text))

    def edit(self, turn, text):
        self.orders.append(("edit", turn, text))

    def open_chat(self, chat):
        self.orders.append(("open_chat", chat))

    def adjustable(self):
        return {"temp": "0.0", "k": "15", "seed": "7"}

    def origins(self):
        return {"temp": "usual in chats"}

    def adjust(self, name, value):
        self.orders.append(("adjust", name, value))

    def set_system(self, text):
        self.orders.append(("set_system", text))

    def forget_oldest(self, allowed):
        self.orders.append(("forget_oldest", allowed))

    def load(self, choice):
        self.orders.append(("load", choice))

    def notify(self, message):
        self.news.append(SessionNotice(message))

    def stop(self):
        self.orders.append("stop")

    def close(self):
        self.orders.append("close")

    def drain(self):
        news, self.news = self.news, []
        return news
