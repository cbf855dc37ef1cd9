"""The target models: Llama and Qwen2 on shared layers."""
