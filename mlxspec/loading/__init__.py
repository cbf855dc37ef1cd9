"""Load a model: find the checkpoint, read it, check it, and build the network."""

from mlxspec.loading.fetch.default_model import fetch_default_model
from mlxspec.loading.fetch.models import LocalModel, list_local_models
from mlxspec.loading.folder import UNCHANGED, Changes, Sharing
from mlxspec.loading.heads.file import HeadCheckpoint
from mlxspec.loading.heads.load import load_head
from mlxspec.loading.load import LoadedModel, adapted, load_model, wrapped_tokenizer
from mlxspec.loading.room import Room
from mlxspec.text.tokenizer import Tokenizer
