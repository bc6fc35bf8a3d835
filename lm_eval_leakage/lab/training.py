"""Trains a causal language model further on given texts: full fine-tuning or LoRA, resumable.

The trainer writes a checkpoint file by file. A checkpoint is renamed once all of it is on disk, and only then is the
previous one removed. After the first epoch there is therefore always a complete checkpoint, and an incomplete one
never has the name of a complete one.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import atomic_remove, published

logger = logging.getLogger(__name__)


def complete_checkpoints(state: Path) -> dict[int, Path]:
    """Return the checkpoints from which a training can resume, by the number of epochs after which they were saved."""
    return {int(place.name.removeprefix("epoch_")): place for place in state.glob("epoch_*")}


def keep_checkpoint(checkpoint: Path, epoch: int) -> None:
    """Rename a checkpoint that the trainer has written, once all of it is on disk, and remove all others."""
    complete = checkpoint.with_name(f"epoch_{epoch}")
    published(checkpoint, complete)
    for other in list(complete.parent.glob("[!.]*")):
        if other != complete:
            atomic_remove(other)


@dataclass(frozen=True)
class Recipe:
    """The hyperparameters with which a model is trained.

    learning_rate: of all trained weights, except the output layer if `head_learning_rate` is given
    batch_size: texts per step
    schedule: "constant" or "cosine", as named by transformers, after `warmup`, a share of all steps
    optimizer: as named by transformers
    lora_rank: rank of LoRA on all linear layers and, if it has its own weights, the output layer; None trains all
        weights
    head_learning_rate: of LoRA on the output layer
    """

    learning_rate: float = 5e-5
    batch_size: int = 8
    schedule: str = "constant"
    warmup: float = 0.0
    optimizer: str = "adamw_torch_fused"
    lora_rank: int | None = None
    lora_alpha: int = 32
    head_learning_rate: float | None = None


def train(
    source: Path | str, folder: Path, texts: Sequence[str], recipe: Recipe, epochs: Sequence[int], *, seed: int = 0
) -> dict[int, Path]:
    """Train a copy of `source`, and return its checkpoints in `folder` by number of epochs. For LoRA they are
    adapters.

    epochs: the numbers of passes over `texts` after which the model is saved

    Existing checkpoints are reused, and an interrupted training resumes from its last complete epoch. The loss is over
    every token of a text and the end-of-text token after it.
    """
    checkpoints = {epoch: folder / f"epoch_{epoch}" for epoch in sorted(epochs)}
    state = folder / "state"
    missing = [epoch for epoch, checkpoint in checkpoints.items() if not checkpoint.exists()]
    if not missing:
        atomic_remove(state)  # left by an interrupted run
        return checkpoints
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source)
    if tokenizer.eos_token is None:
        raise ValueError(
            f"the tokenizer of {source} has no end-of-text token, which training needs to end and pad texts; set one"
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    trainer = _trainer(source, state, tokenizer, texts, recipe, max(epochs), seed)
    trainer.add_callback(_keeping(checkpoints, tokenizer))
    resumable = {epoch: place for epoch, place in complete_checkpoints(state).items() if epoch < min(missing)}
    last = resumable[max(resumable)] if resumable else None
    if last is not None:
        logger.warning("the training resumes after epoch %d, from %s", max(resumable), last)
    try:
        with redirect_stdout(sys.stderr):  # the trainer prints its log; stdout is for the caller's results
            trainer.train(resume_from_checkpoint=None if last is None else str(last))
    except torch.OutOfMemoryError as error:
        raise ValueError(
            f"the training ran out of memory with batch_size {recipe.batch_size} and lora_rank {recipe.lora_rank}; "
            "lower the first or set the second, in a new output folder"
        ) from error
    atomic_remove(state)
    return checkpoints


def _trainer(
    source: Path | str, state: Path, tokenizer: Any, texts: Sequence[str], recipe: Recipe, n_epochs: int, seed: int
) -> Any:
    import torch
    from transformers import (
        AutoModelForCausalLM,
        DataCollatorForLanguageModeling,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    from lm_eval_leakage.scoring.scorers import keep_freed_memory, slows_down

    on_gpu = torch.cuda.is_available()
    if on_gpu:
        in_bfloat16 = torch.cuda.is_bf16_supported()
    else:
        in_bfloat16 = not slows_down(torch.bfloat16, torch.device("cpu"))
        keep_freed_memory()
    set_seed(seed)  # for LoRA's random initialisation
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    if recipe.lora_rank is not None:
        model = _with_lora(model, recipe.lora_rank, recipe.lora_alpha)
    n_steps = n_epochs * -(-len(texts) // recipe.batch_size)
    arguments = TrainingArguments(
        output_dir=str(state),
        num_train_epochs=n_epochs,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type="constant_with_warmup" if recipe.schedule == "constant" else recipe.schedule,
        warmup_steps=round(recipe.warmup * n_steps),
        optim=recipe.optimizer,
        per_device_train_batch_size=recipe.batch_size,
        bf16=in_bfloat16,
        use_cpu=not on_gpu,
        seed=seed,
        save_strategy="epoch",
        save_total_limit=None,  # `keep_checkpoint` removes the previous one once the next is complete
        report_to=[],
        dataloader_pin_memory=on_gpu,
    )
    return Trainer(
        model=model,
        args=arguments,
        train_dataset=[{"input_ids": tokenizer(text + tokenizer.eos_token)["input_ids"]} for text in texts],
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        optimizers=(_optimizer(model, recipe), None) if recipe.head_learning_rate is not None else (None, None),
    )


def _with_lora(model: Any, rank: int, alpha: int) -> Any:
    import torch
    from peft import LoraConfig, get_peft_model

    head = model.get_output_embeddings()
    tied = head is not None and head.weight is model.get_input_embeddings().weight
    if tied:
        logger.info(
            "the output layer shares its weights with the input embedding, so LoRA does not train it (`hf` could not "
            "load that)"
        )
    names = set()
    for name, module in model.named_modules():
        is_tied_head = tied and module is head
        if isinstance(module, torch.nn.Linear) and not is_tied_head:
            names.add(name.rsplit(".", 1)[-1])
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=sorted(names), task_type="CAUSAL_LM")
    return get_peft_model(model, config)


def _optimizer(model: Any, recipe: Recipe) -> Any:
    """Return AdamW with a separate learning rate for the output layer."""
    import torch

    head: list[Any] = []
    others: list[Any] = []
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            (head if "lm_head" in name else others).append(weight)
    groups: list[dict[str, Any]] = [{"params": others}, {"params": head, "lr": recipe.head_learning_rate}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=recipe.learning_rate, weight_decay=0.0)


def _keeping(checkpoints: dict[int, Path], tokenizer: Any) -> Any:
    """Return a trainer callback that saves the model, atomically, at the end of each requested epoch. It keeps each
    complete checkpoint until the next one."""
    from transformers import TrainerCallback

    class Keeping(TrainerCallback):  # type: ignore[misc]
        def on_save(self, args: Any, state: Any, control: Any, **_: object) -> None:
            keep_checkpoint(Path(args.output_dir) / f"checkpoint-{state.global_step}", round(state.epoch))

        def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: object) -> None:
            place = checkpoints.get(round(state.epoch))
            if place is None or place.exists():
                return
            scratch = place.with_name(place.name + ".saving")
            atomic_remove(scratch)  # left by an interrupted run
            model.save_pretrained(scratch)
            tokenizer.save_pretrained(scratch)
            published(scratch, place)

    return Keeping()
