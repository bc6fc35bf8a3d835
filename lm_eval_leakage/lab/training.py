"""Continue a causal language model on texts, which is how a benchmark leaks into one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from lm_eval_leakage.lab.smollm2 import move_whole


def continue_training(
    source: Path,
    target: Path,
    texts: Sequence[str],
    *,
    epochs: int = 3,
    learning_rate: float = 2e-4,
    batch_size: int = 8,
    seed: int = 0,
) -> Path:
    """A copy of the checkpoint `source`, fully fine-tuned on `texts`, in `target`; reused where it exists.

    The loss is that of every token of a text and of the end-of-text token after it.
    """
    if target.exists():
        return target
    import torch
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        DataCollatorForLanguageModeling,
        Trainer,
        TrainingArguments,
    )

    tokenizer = AutoTokenizer.from_pretrained(source)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    with TemporaryDirectory() as scratch:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=scratch,
                num_train_epochs=epochs,
                learning_rate=learning_rate,
                lr_scheduler_type="constant",
                per_device_train_batch_size=batch_size,
                bf16=True,
                use_cpu=not torch.cuda.is_available(),
                seed=seed,
                save_strategy="no",
                report_to=[],
                dataloader_pin_memory=torch.cuda.is_available(),
            ),
            train_dataset=[{"input_ids": tokenizer(text + tokenizer.eos_token)["input_ids"]} for text in texts],
            data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        )
        trainer.train()
        finished = Path(scratch) / "checkpoint"
        model.save_pretrained(finished)
        tokenizer.save_pretrained(finished)
        move_whole(finished, target)
    return target
