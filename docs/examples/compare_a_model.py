"""Does a model family give the logits that mlx-lm gives, for every node of a draft tree?

This is the test that a new family has to pass first. The model is tiny and its weights are random,
so nothing is downloaded. Change `CONFIG` and the module of mlx-lm to those of your family.
"""

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models import qwen2

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafts.tree import DraftTree
from mlxspec.models import ModelConfig, build_model

CONFIG = {
    "model_type": "qwen2",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
PROMPT = [5, 17, 3]
TOKENS, PARENTS = [9, 21, 40, 7, 7], [-1, 0, 0, 1, 2]  # the root, two children, a child of each

mx.random.seed(0)
model = build_model(ModelConfig.from_dict(CONFIG))
theirs = qwen2.Model(qwen2.ModelArgs.from_dict(CONFIG))
theirs.load_weights(tree_flatten(model.parameters()), strict=True)  # the names have to agree

target = Decoder(model)
target.observe(PROMPT)
logits = target.logits(target.forward_tree(DraftTree.from_lists(TOKENS, PARENTS)))

for node in range(len(TOKENS)):
    path = [node]
    while PARENTS[path[0]] >= 0:
        path.insert(0, PARENTS[path[0]])
    alone = theirs(mx.array([PROMPT + [TOKENS[step] for step in path]]))[0, -1]
    error = mx.abs(logits[node] - alone).max().item()
    print(f"node {node}: largest difference {error:.1g}")
    assert error < 1e-4
