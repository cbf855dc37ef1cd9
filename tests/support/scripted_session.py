"""A session that is told what to say: for tests of screens, and of what works without one."""

from mlxspec_app.conversation.events import SessionNotice
from mlxspec_app.conversation.orders import Load, OpenChat


class ScriptedSettings:
    """Settings that note their changes among the orders."""

    def __init__(self, orders):
        self._orders = orders

    def adjustable(self):
        return {"temp": "0.0", "k": "15", "seed": "7"}

    def origins(self):
        return {"temp": "usual in chats"}

    def adjust(self, name, value):
        self._orders.append(("adjust", name, value))


class ScriptedSession:
    """A session that says what the test puts into `news`, and notes its orders."""

    def __init__(self, *news):
        self.news = list(news)
        self.orders = []
        self.busy = True
        self.settings = ScriptedSettings(self.orders)

    def start(self):
        self.orders.append("start")

    def send(self, order):
        self.orders.append(order)

    def notify(self, message):
        self.news.append(SessionNotice(message))

    def close(self):
        self.orders.append("close")

    def drain(self):
        news, self.news = self.news, []
        return news

    @property
    def loads(self):
        """The models that it was told to load."""
        return [order.choice for order in self.orders if isinstance(order, Load)]

    @property
    def opened(self):
        """The chats that it was told to open."""
        return [order.chat for order in self.orders if isinstance(order, OpenChat)]
