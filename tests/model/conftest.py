"""Torch with one thread: the machine's cores are shared."""

import torch

torch.set_num_threads(1)
