"""The flags, one row for each: its name, its help, the verbs that have it, the setting that it gives, its group.

The options of the commands, the flag that a message names beside a setting, and the tables of docs/verbs.md all come from
here. A setting that is not given stays None: defaults have one home, config.py. The help repeats them, because loading
config.py would make it slow; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.cli import lab_flags
from headstart.cli.complete import packs, runs
from headstart.cli.flag import Flag
from headstart.cli.label_flags import LABELLING, LABELLING_VERBS
from headstart.cli.settings import label_count, label_words, placed, placed_base, placed_tokenizer, rate, template
from headstart.study.arms import listed_arms
from headstart.task import TASKS

TRAIN = ("pretrain", "finetune", "translate train", "match train")
PRETRAIN, FINETUNE, TRANSLATE, MATCH = ((verb,) for verb in TRAIN)
STUDIES = ("compare", "translate grid", "match compare")
COMPARE, GRID, TOWERS = ((verb,) for verb in STUDIES)
WHICH = ("which",)
DECODE = ("translate apply", "translate evaluate")
EMBED, CLUSTER = ("embed",), ("cluster",)
SEARCH = ("search",)
AUDIT = ("audit",)
WORK = ("work",)
VERIFY = ("verify",)
# With a column of labels.
TABLES = (*FINETUNE, *COMPARE, *WHICH, *AUDIT, "evaluate", "inspect", "export", "data check", "data table")
FILES = (*TRAIN, *COMPARE, *WHICH, *AUDIT, *EMBED, *CLUSTER, *SEARCH, "predict", "evaluate", "inspect", "translate evaluate", "match evaluate", "data check", "data table", "label start")  # fmt: skip
OPENS = (*PRETRAIN, *FINETUNE, *MATCH, *COMPARE, *WHICH, *TOWERS, *DECODE, *EMBED, *CLUSTER, *AUDIT, "export", "inspect", "generate", "predict", "evaluate", "params", "search", "match evaluate", "match classify", "label start")  # fmt: skip
PNG, SVG, HTML = (".png",), (".svg",), (".html", ".htm")
BARS = (*TRAIN, *WORK, *VERIFY, *STUDIES, *WHICH, *EMBED, *CLUSTER, *AUDIT, "demo", "predict", "search", "match evaluate", "match classify", "lab run", "label start")  # fmt: skip
EVERY = (*FILES, *OPENS, *BARS, *LABELLING_VERBS, "runs", "serve", "report", "data list", "data get", *lab_flags.VERBS)  # fmt: skip
RUNS = ("export", "inspect", "generate", "predict", "evaluate", "match evaluate", "match classify", *DECODE)  # fmt: skip

GROUPS: dict[str, tuple[Flag, ...]] = {
    "Study": (
        Flag("--base", "A pretrained run; an external model: a folder, minilm, mpnet, use-multilingual, smollm2, hf:NAME; auto: the best at hand, by headstart which; for "
             "scratch alone gpt, bert or classic; may be given several times.", COMPARE, "bases", many=True, place=placed_base, complete=runs),
        Flag("--base", "A pretrained run or an external model to rank; may be given several times. [default: packs in the cache, runs below runs/]",
             WHICH, "bases", many=True, complete=runs),
        Flag("--base", "A pretrained run or an external model whose probes judge the labels, beside TF-IDF; may be given several times. [default: minilm]",
             AUDIT, "bases", many=True, complete=runs),
        Flag("--packs", "Download the packs of models, word vectors and the lexicon that are missing, and rank them too.", WHICH, kind=bool),
        Flag("--minutes", "Time limit: the sample of rows shrinks, and slow bases are skipped, to keep it.", WHICH, kind=float, default=5.0, least=0),
        Flag("--then", "compare: run the study of the best base.", WHICH),
        Flag("--arms", f"Out of {listed_arms()}; with commas. With an external causal language model zero-shot and prompt are added to the default, and ensemble where there is another base. "
             "[default: majority,tfidf,scratch,frozen,full]", COMPARE, "arms", commas=True),
        Flag("--labels", "Label counts to compare at: 50,200,800,all. [default: all]", COMPARE, "labels", commas=True, place=label_count),
        Flag("--model", "Model; may be given several times. [default: gru, gru-additive, attention, transformer]", GRID, "models", many=True),
        Flag("--hidden", "Hidden size; may be given several times. [default: 32, 64]", GRID, "hidden", int, many=True),
        Flag("--text", "Text tower; may be given several times. [default: minilm]", TOWERS, "text", many=True, place=placed_base, complete=runs),
        Flag("--image", "Image tower; may be given several times. [default: efficientnet-lite0]", TOWERS, "image", many=True, place=placed_base),
        Flag("--train", "What to train, with commas: head, full. [default: head,full]", TOWERS, "scope", commas=True),
        Flag("--seeds", "Runs of each arm that depends on the seed. [default: 5]", COMPARE, "seeds", int),
        Flag("--seeds", "Runs of each combination. [default: 3]", GRID, "seeds", int),
        Flag("--splits", "Runs of each combination, each on another split of the images. [default: 3]", TOWERS, "splits", int),
        Flag("--corpus", "Text to pretrain a base on, as a part of the study; may be given several times.", COMPARE, "pretrain.data.paths",
             many=True, place=placed),
        Flag("--objective", "For --corpus: causal, masked, distill, or several with commas. [default: causal]", COMPARE, "objectives",
             commas=True),
        Flag("--jobs", "Runs in parallel. [default: 1; as many as cores, for many steps of small bases without --threads]", COMPARE, kind=int, least=1),
        Flag("--jobs", "Runs in parallel.", (*GRID, *TOWERS), kind=int, default=1, least=1),
        Flag("--on", "Where to run: ray, a cluster made of this machine, or ray:ADDRESS, an existing cluster. [default: here]", STUDIES),
        Flag("--jobs", "With --then: runs in parallel.", WHICH, kind=int, default=1, least=1),
        Flag("--out", "The study's folder; an interrupted study continues there.", COMPARE, default="runs/study"),
        Flag("--out", "With --then: the study's folder.", WHICH, default="runs/study"),
        Flag("--out", "The study's folder; an interrupted study continues there.", GRID, default="studies/ladder"),
        Flag("--out", "The study's folder; an interrupted study continues there.", TOWERS, default="studies/towers"),
        Flag("--against", "Another study: compare both on the test rows that they share.", ("compare", "report")),
        Flag("--dry-run", "Estimate the time of the study; nothing is trained.", STUDIES, kind=bool),
        Flag("--prepare", "Only prepare the study: headstart work runs its cells, on any number of machines.", STUDIES, kind=bool),
        Flag("--beat", "Seconds between two signs of life; after three that are missing, others take over the cell.", WORK, kind=float, default=30.0, least=0.1),
        Flag("--cell", "Cell to run again, or all of them with all; may be given several times. [default: one at random, and quick baselines]", VERIFY, many=True),
        Flag("--no-rerun", "Run nothing again.", VERIFY, kind=bool),
        Flag("--seed", "Seed of the choice of the cell. [default: a new one each time]", VERIFY, kind=int, least=0),
        Flag("--dry-run", "With --then: estimate the time of the study; nothing is trained.", WHICH, kind=bool),
        Flag("--yes", "Start even if it will take more than half an hour.", (*COMPARE, *WHICH), kind=bool),
    ),
    "Data": (
        Flag("DIR", "The folder to search.", ("runs",), default="runs"),
        Flag("DIR", "The folder of runs and studies; made if it is not there.", ("serve",), default="runs"),
        Flag("STUDY", "The folder of a study.", ("report", *WORK), required=True),
        Flag("STUDY|RUN", "The folder of a study, or a finished run directory.", VERIFY, required=True, complete=runs),
        Flag("PAIRS...", "Tables of pairs, one per data set.", GRID, "data", many=True, required=True, place=placed),
        Flag("PAIRS", "A table of captions, a folder or a pack.", TOWERS, "data", required=True, place=placed),
        Flag("RUN", "A finished run directory.", RUNS, required=True, complete=runs),
        Flag("RUN|BASE", "A run, or an external model: minilm, mpnet, use-multilingual, smollm2, a folder, hf:NAME.", (*EMBED, *CLUSTER), required=True, complete=runs),
        Flag("RUN|PRESET", "A run; gpt, bert or classic; or a model of translate train.", ("params",), required=True),
        Flag("prompt", "The text to continue.", ("generate",), default=""),
        Flag("TEXT...", "Texts to label.", ("predict",), many=True),
        Flag("TEXT...", "Texts to look at.", ("inspect",), many=True),
        Flag("TEXT...", "Texts to translate.", ("translate apply",), many=True),
        Flag("data", "Labelled rows for a classifier, text for a language model.", ("evaluate",), many=True, required=True),
        Flag("PAIRS", "One table of pairs, or two files.", ("translate evaluate",), many=True, required=True),
        Flag("PAIRS", "A table of captions, or a pack.", ("match evaluate",), required=True),
        Flag("IMAGES", "A folder of .png, .jpg and .webp files, or a pack.", ("match classify",), required=True),
        Flag("IMAGES|TEXTS", "A folder of .png, .jpg and .webp files; a table or .txt file of texts, one per line; or a pack.", SEARCH, required=True),
        Flag("QUERY...", "What to look for: captions of images, or texts.", SEARCH, many=True),
        Flag("files", "Tables or texts: one, or the parts of a split.", ("data check",), many=True, required=True),
        Flag("TEXTS", "A text, one per line; a table; a .tar.gz of text files.", ("data table",), required=True),
        Flag("LABELS", "The labels of TEXTS, one per line.", ("data table",)),
        Flag("name", "A name from `headstart data list`.", ("data get",), required=True, complete=packs),
        *lab_flags.ARGUMENTS,
        Flag("CORPUS", "Text: .txt, .csv, .tsv, .jsonl, .parquet, or folders.", PRETRAIN, "data.paths", many=True, place=placed,
             needed="a CORPUS: files or folders of text"),
        Flag("DATA", "Labelled rows: .csv, .tsv, .jsonl, .parquet or a folder.", (*FINETUNE, *COMPARE, *WHICH, *AUDIT), "data.train", place=placed, needed="DATA"),
        Flag("PAIRS", "One .tsv, .csv, .jsonl or .txt of pairs, or two files, line by line.", TRANSLATE, "data.pairs", many=True,
             place=placed, needed="PAIRS: a table of pairs, or two files"),
        Flag("PAIRS", "A .csv, .tsv or .jsonl of file and caption; or a folder with pairs.csv, a pack.", MATCH, "data.pairs", place=placed,
             needed="PAIRS: a table of captions"),
        Flag("--images", "Folder of the files. [default: images/ beside PAIRS, or the folder of PAIRS]",
             (*MATCH, *TOWERS, "match evaluate"), "data.images", place=placed),
        Flag("--unit", "What one text is: line, sentence or document. [default: document]", PRETRAIN, "data.unit"),
        Flag("--unit", "For --corpus: line, sentence or document. [default: document]", COMPARE, "pretrain.data.unit"),
        Flag("--unit", "For text: line, sentence or document; as in training if not given.", ("evaluate",)),
        Flag("--unit", "For plain text: line, sentence or document.", ("data check",), default="line"),
        Flag("--file", "Texts to label: one per line, or a table.", ("predict",)),
        Flag("--file", "Texts to translate: one per line.", ("translate apply",)),
        Flag("--file", "Texts to embed: one per line, or a table.", EMBED),
        Flag("--file", "Texts to cluster: one per line, or a table.", CLUSTER),
        Flag("--clusters", "How many; auto: as many as give the largest silhouette, up to 20.", CLUSTER, default="auto"),
        Flag("--seed", "Seed of the first centres.", CLUSTER, kind=int, default=0, least=0),
        Flag("--apply", "A table of suspects, edited: writes DATA with the labels that it suggests. [default: none]", AUDIT),
        Flag("--file", "More queries: one per line, or a table.", SEARCH),
        Flag("--data", "Labelled rows: adds the evidence for each label, and what each layer knows.", ("inspect",)),
        Flag("--rows", "Maximum rows of a label to take from --data.", ("inspect",), kind=int, default=50, least=1),
        Flag("--int8", "For onnx: also write it with 8-bit matrices, and score both on these labelled rows.", ("export",)),
        Flag("--labels", "Names of the labels, with commas. [default: names of the sub-folders]", ("match classify",)),
        Flag("--template", "A caption with {} for the label; several are averaged. [default: a photo of a {}, and two more]",
             ("match classify",), many=True),
        *lab_flags.DATA,
        Flag("--first", "Only the first N rows. [default: all]", ("data table",), kind=int, least=1),
        Flag("--draw", "N random rows, the same ones each time. [default: all]", ("data table",), kind=int, least=1),
        Flag("--pieces", "TEXTS were cut by SentencePiece: join the pieces.", ("data table",), kind=bool),
        Flag("--labels", "Train on this many rows only; below 200, none are held out for validation. [default: all]", FINETUNE,
             "data.labels", int),
        Flag("--labels", "Rank with this many training rows only. [default: all]", WHICH, "data.labels", int),
        Flag("--valid", "Validation rows. [default: held out from DATA]", (*FINETUNE, *COMPARE), "data.valid", place=placed),
        Flag("--test", "Test rows. [default: held out from DATA]", (*FINETUNE, *COMPARE), "data.test", place=placed),
        Flag("--valid", "Validation rows, which count among the training rows here. [default: none]", WHICH, "data.valid", place=placed),
        Flag("--test", "Test rows, which are not opened; none are held out from DATA then. [default: held out from DATA]", (*WHICH, *AUDIT), "data.test",
             place=placed),
        Flag("--valid", "Validation pairs; given twice: two files. [default: held out from PAIRS]", TRANSLATE, "data.valid", many=True,
             place=placed),
        Flag("--test", "Test pairs; given twice: two files. [default: held out from PAIRS]", TRANSLATE, "data.test", many=True, place=placed),
        Flag("--split", "texts, or words: translate a text word by word. [default: texts]", TRANSLATE, "split"),
        Flag("--split", "texts or words. [default: as in training]", DECODE),
        Flag("--hold-out", "A source to keep out of training; may be given several times. [default: none]", TRANSLATE, "data.hold_out",
             many=True),
        Flag("--text-column", "Column of the text; of text pairs, two: premise,hypothesis. [default: found by its name]", (*PRETRAIN, *EMBED, *CLUSTER, *SEARCH, "predict", *TABLES), "data.text_column"),
        Flag("--label-column", "Column of the label; or several of 0 and 1, with commas. [default: found by its name]", TABLES, "data.label_column"),
        Flag("--source-column", "Column of the source. [default: found by its name]", (*TRANSLATE, "translate evaluate"), "data.source_column"),
        Flag("--target-column", "Column of the target. [default: found by its name]", (*TRANSLATE, "translate evaluate"), "data.target_column"),
        Flag("--file-column", "Column of the files. [default: found by its name]", (*MATCH, "match evaluate"), "data.file_column"),
        Flag("--caption-column", "Column of the captions. [default: found by its name]", (*MATCH, "match evaluate"), "data.caption_column"),
        Flag("--group-column", "Images of one group stay in one part of the split. [default: group, if there is one]", MATCH,
             "data.group_column"),
    ),
    "Model": (
        Flag("--base", "Continue training a run or an external model: a folder, minilm, mpnet, use-multilingual, smollm2, hf:NAME.", PRETRAIN, "base",
             place=placed_base, complete=runs),
        Flag("--base", "A pretrained run; an external model: a folder, minilm, mpnet, use-multilingual, smollm2, hf:NAME; a preset with --init scratch.", FINETUNE,
             "base", place=placed_base, complete=runs, needed="--base (a run of headstart pretrain, or gpt with --init scratch)"),
        Flag("--init", "pretrained or scratch. [default: pretrained]", FINETUNE, "init"),
        Flag("--preset", "gpt, bert or classic. [default: gpt; bert when masked or distilled]", PRETRAIN, "model.preset", settled=True),
        Flag("--size", "nano, micro, mini, small or medium. [default: micro; classic has its own]", (*PRETRAIN, *FINETUNE, *COMPARE, "params"),
             "model.size", settled=True),
        Flag("--context", "Maximum tokens of a text or block. [default: what the size has]", (*PRETRAIN, *FINETUNE, *COMPARE, "params"),
             "model.context", int),
        Flag("--before", "The run that RUN was tuned from: adds what changed, on --data or the texts.", ("inspect",)),
        Flag("--also", "Another run, or .onnx file, to compare; may be given several times.", ("predict",), many=True),
        Flag("--model", "A run of match train, a folder with a CLIP model, hf:NAME. [default: the newest such run in runs/; where there is "
             "none, and for the pack emoji, one trained on emoji. For texts: a pretrained run, a classifier or an external model, minilm by default]", SEARCH,
             complete=runs),
        Flag("--normalize", "yes or no: scale vectors to length 1. [default: as the base declares]", EMBED),
        Flag("--vocab", "For a preset: entries of its vocabulary.", ("params",), kind=int),
        Flag("--head", "For a preset: lm or classify.", ("params",), default="lm"),
        Flag("--labels", "For --head classify: how many.", ("params",), kind=int, default=2, least=2),
        Flag("--hidden", "For a model of translate train: its width. [default: 64]", ("params",), kind=int),
        Flag("--tokenizer", "Count tokens too, by this kind, tokenizer.json, .model or run.", ("data check",)),
        Flag("--context", "With --tokenizer: count the rows that have more tokens.", ("data check",), kind=int),
        Flag("--model", "gru, lstm, gru-additive, lstm-additive, attention or transformer. [default: transformer]", TRANSLATE, "model.kind"),
        Flag("--hidden", "Hidden size. [default: 64]", TRANSLATE, "model.hidden", int),
        Flag("--level", "What a token is: char, bpe or word. [default: char]", TRANSLATE, "source.kind"),
        Flag("--target-level", "The same, for the target. [default: char; as --level if that is given]", TRANSLATE, "target.kind"),
        Flag("--context", "Maximum tokens of a text; longer pairs are left out. [default: what the model has]", TRANSLATE, "model.context", int),
        Flag("--tokenizer", "bpe, unigram, wordpiece, word, char; or a tokenizer.json, SentencePiece .model, run, or the pack gpt2-tokenizer. [default: bpe]",
             (*PRETRAIN, *FINETUNE), "tokenizer.kind", place=placed_tokenizer, settled=True),
        Flag("--vocab", "Entries of the vocabulary. [default: what the text feeds]", (*PRETRAIN, *FINETUNE, *COMPARE), "tokenizer.vocab", int,
             settled=True),
        Flag("--pool", "What the head reads: last, cls or mean. [default: what suits the base and the rows]", (*FINETUNE, *COMPARE), "pool"),
        Flag("--long", "Texts longer than the context: truncate, or window (the mean over windows). [default: truncate]", (*FINETUNE, *COMPARE),
             "long"),
        Flag("--text", "Base of the text tower: a run, minilm, a folder, hf:NAME. [default: minilm]", MATCH, "text", place=placed_base,
             complete=runs),
        Flag("--image", "Image tower: efficientnet-lite0, mobilenet-v2; or transformer, from scratch. [default: efficientnet-lite0]",
             MATCH, "image", place=placed_base),
        Flag("--pool", "Pooling of the text tower: last, cls or mean. [default: what suits the base]", MATCH, "pool"),
        Flag("--start", "Initial token embeddings: cooccurrence (PPMI-SVD), random or auto. [default: auto]", (*PRETRAIN, *COMPARE), "start",
             settled=True),
        Flag("--vectors", "External word vectors, beside the co-occurrence (PPMI-SVD) embeddings: a .vec file, a spaCy pipeline's folder, "
             "or a pack. [default: none]", (*PRETRAIN, *COMPARE), "vectors", place=placed_base),
    ),
    "Training": (
        Flag("--objective", "causal (left to right), masked (bidirectional), distill (from --teacher), or auto. [default: causal]",
             PRETRAIN, "objective", settled=True),
        Flag("--objective", "classify, or contrastive: train on pairs of texts of the same and of different classes, then fit the head (SetFit). "
             "[default: classify]", FINETUNE, "objective"),
        Flag("--teacher", "Teacher of the objective distill: minilm, a folder, hf:NAME or a run. [default: none]", (*PRETRAIN, *COMPARE), "teacher",
             place=placed_base, complete=runs, settled=True),
        Flag("--train", "What to train: full, head, last:K layers, or lora. [default: full]", FINETUNE, "scope"),
        Flag("--train", "head: the projections alone; full: the towers too. [default: head]", MATCH, "scope"),
        Flag("--steps", "Optimizer steps. [default: 2000]", PRETRAIN, "train.steps", int),
        Flag("--steps", "For --corpus: optimizer steps of the pretraining. [default: 2000]", COMPARE, "pretrain.train.steps", int),
        Flag("--rates", "Learning rates to try on the validation rows, with commas. [default: three that suit the arm]", COMPARE, "rates",
             commas=True, place=rate),
        Flag("--minutes", "As many steps as fit into this time on this machine, instead of --steps.", PRETRAIN, kind=float, least=0),
        Flag("--epochs", "Times through the training rows. [default: 10]", (*FINETUNE, *COMPARE), "epochs", int),
        Flag("--epochs", "Times through the training pairs. [default: 20]", (*TRANSLATE, *GRID), "epochs", int),
        Flag("--epochs", "Times through the training images. [default: 10]", (*MATCH, *TOWERS), "epochs", int),
        Flag("--batch-size", "Examples in one forward pass. [default: 32]", PRETRAIN, "train.batch_size", int),
        Flag("--batch-size", "Examples in one forward pass. [default: 16]", (*FINETUNE, *COMPARE), "train.batch_size", int),
        Flag("--batch-size", "Pairs in one forward pass. [default: 64]", TRANSLATE, "train.batch_size", int),
        Flag("--batch-size", "Batch size (in-batch negatives). [default: 256]", (*MATCH, *TOWERS), "train.batch_size", int),
        Flag("--lr", "Peak learning rate. [default: 0.001]", PRETRAIN, "train.lr", float),
        Flag("--lr", "Peak learning rate. [default: what suits the base: 0.0005 for one of ours]", FINETUNE, "train.lr", float),
        Flag("--lr", "Peak learning rate. [default: 0.005]", TRANSLATE, "train.lr", float),
        Flag("--lr", "Peak learning rate. [default: 0.0001]", (*MATCH, *TOWERS), "train.lr", float),
        Flag("--prompt", "Template with {text} for the arms zero-shot and prompt, such as 'Review: {text}\\nSentiment:'; may be given several "
             "times. [default: by the names of the labels]", (*COMPARE, *WHICH), "prompts", many=True, place=template),
        Flag("--prompt", "Read each text in a template with {text}, such as 'Review: {text}\\nSentiment:', and start from label words; auto: by "
             "the names of the labels. [default: none]", FINETUNE, "prompt", place=template),
        Flag("--label-words", "Words that stand for the labels in a prompt: neg=bad,pos=good. [default: by the names of the labels]",
             (*FINETUNE, *COMPARE, *WHICH), "label_words", place=label_words),
        Flag("--class-weights", "Weight classes by inverse frequency.", (*FINETUNE, *COMPARE), "class_weights", bool),
        Flag("--sample", "Text to continue after each evaluation; may be given several times. [default: '']", PRETRAIN, "samples", many=True),
        Flag("--sample", "Text to translate after each evaluation; may be given several times. [default: validation rows]", TRANSLATE,
             "samples", many=True),
        Flag("--beam", "Beam size of the scores at the end. [default: 1]", TRANSLATE, "beam", int),
        Flag("--seed", "Seed of everything random. [default: 0]", TRAIN, "train.seed", int),
        Flag("--device", "cpu, cuda, mps. [default: cpu]", (*TRAIN, *COMPARE, *TOWERS), "train.device"),
        Flag("--threads", "CPU threads of a process. [default: what torch chooses; of several processes, its share of the cores]",
             (*TRAIN, *GRID, *TOWERS), "train.threads", int),
        Flag("--threads", "CPU threads of a run. [default: what torch chooses; with --jobs, its share of the cores]", COMPARE, "train.threads", int),
        Flag("--precision", "float32 or bf16: of matrix products while training; bf16 is tried in a process of its own first. [default: float32]", TRAIN, "train.precision"),
        Flag("--checkpoint-layers", "Recompute activations in the backward pass (gradient checkpointing): less memory, more time, the same weights.", TRAIN, "train.checkpoint_layers", bool),
        Flag("--compile", "Compile the layers (torch.compile); on a CPU this needs a C++ compiler.", TRAIN, "train.compile", bool),
        Flag("--shard", "Keep only a part of the weights, gradients and moments in each of several processes (FSDP2).", (*PRETRAIN, *FINETUNE), "train.shard", bool),
        Flag("--processes", "Processes that share the micro-batches of a step, at most train.accumulate. [default: 1]", TRAIN, kind=int, least=1),
    ),
    "Decoding": (
        Flag("--tokens", "Maximum tokens to generate.", ("generate",), kind=int, default=40, least=1),
        Flag("--temperature", "0 takes the most probable token; 1 samples from the model's distribution.", ("generate",), kind=float,
             default=0.0, least=0),
        Flag("--top-k", "Sample among the K most probable tokens; 0 = all.", ("generate",), kind=int, default=0, least=0),
        Flag("--top-p", "Sample among the tokens that hold this much probability.", ("generate",), kind=float, default=1.0, least=0, most=1),
        Flag("--tokens", "Generate this many tokens first.", ("inspect",), kind=int, default=0, least=0),
        Flag("--sample", "Sample the generated tokens at --temperature; else the most probable.", ("inspect",), kind=bool),
        Flag("--temperature", "Probabilities at this temperature.", ("inspect",), kind=float, default=1.0),
        Flag("--seed", "Seed of the sampling.", ("generate", "inspect"), kind=int, default=0, least=0),
        Flag("--beam", "Beam size; 1 is greedy.", DECODE, kind=int, default=1, least=1),
        Flag("--n-best", "Print this many translations; the beam is at least as large.", ("translate apply",), kind=int, default=1, least=1),
        Flag("--length-penalty", "Divide scores by length to this power; 0 favours short translations.", DECODE, kind=float, default=1.0,
             least=0),
    ),
    "What to show": (
        Flag("--abstain-below", "Give no label to texts whose most probable label has less than this probability.", ("predict",), kind=float,
             least=0, most=1),
        Flag("--coverage", "Add the set of labels that holds the right one with this probability, such as 0.9: split conformal prediction (LAC) "
             "on the validation rows. Holds on average over texts drawn like the validation rows.", ("predict",), kind=float, least=0, most=1),
        Flag("--show", "Only this, once or more: probabilities, lens, labels, attribution, attention.", ("inspect",), many=True),
        Flag("--top", "Most probable tokens to show at each place.", ("inspect",), kind=int, default=6, least=1),
        Flag("--top", "Show the K most probable tokens at each place.", ("generate",), kind=int, default=0, least=0),
        Flag("--top", "Images or texts to show for each query.", SEARCH, kind=int, default=10, least=1),
        Flag("--target", "The wanted image, by file or caption: reports its rank for each caption, and the effect of each word.", SEARCH),
        Flag("--layer", "Layer whose attention is shown first; 0 = the last.", ("inspect",), kind=int, default=0, least=0),
        Flag("--head", "Head whose attention is shown first: mean, rollout or 1, 2, ...", ("inspect",), default="mean"),
        Flag("--label", "Label to attribute to the tokens; else the most probable.", ("inspect",)),
        Flag("--tree", "As a tree, each module with the sum of what is inside.", ("params",), kind=bool),
    ),
    "Output": (
        Flag("--to", "hf (a folder for transformers), onnx (a file for onnxruntime) or html (a page that runs the model offline).", ("export",), default="hf"),
        Flag("--out", "The folder, or the .onnx or .html file, to make.", ("export",), default="exported"),
        Flag("--out", "The .csv file to write.", ("data table",), default="rows.csv"),
        Flag("--out", "The .parquet, .jsonl or .npy file to write.", EMBED, default="vectors.parquet"),
        Flag("--out", "The .csv file to write. [default: suspects.csv; with --apply corrected.csv]", AUDIT),
        Flag("--out", "The .csv file to write: every column of the input, and the cluster of each row.", CLUSTER, default="clusters.csv"),
        Flag("--overwrite", "Replace the file if it is there.", (*EMBED, *CLUSTER, *AUDIT, "data table"), kind=bool),
        Flag("--escape-formulas", "Put ' before cells that a spreadsheet would compute: = + - @.", ("data table",), kind=bool),
        Flag("--out", "Write the rows of --file, with all of their columns and the label and probability of each, to this .csv, .tsv, .jsonl or "
             ".parquet file. [default: print]", ("predict",)),
        Flag("--all-probabilities", "With --out: a column for the probability of every label.", ("predict",), kind=bool),
        Flag("--prefix", "With --out: put this before the names of the added columns.", ("predict",), default=""),
        Flag("--skip-blank", "With --out: leave the label of blank texts empty, and count them; else they are refused.", ("predict",), kind=bool),
        Flag("--overwrite", "With --out: replace the file if it is there.", ("predict",), kind=bool),
        *lab_flags.OUTPUT,
        Flag("--plot", "Draw the table of tokens and probabilities to this file.", ("generate",), kind=Path),
        Flag("--plot", "Draw labels, lengths and overlaps to this file.", ("data check",), kind=Path),
        Flag("--plot", "Draw scores with intervals against seconds to this file.", WHICH, kind=Path, ends=PNG),
        Flag("--attention", "Draw the attention of each token to this .png, .svg or .html file.", ("translate apply",), kind=Path,
             ends=(*PNG, *SVG, *HTML)),
        Flag("--html", "Write an interactive page to this file.", ("inspect",), kind=Path, ends=HTML),
        Flag("--html", "Write a page with the treemap to this file.", ("params",), kind=Path, ends=HTML),
        Flag("--html", "Write a contact sheet as one page to this file.", ("search",), kind=Path, ends=HTML),
        Flag("--png", "Draw a contact sheet to this file, of 200 images at most.", ("search",), kind=Path, ends=PNG),
        Flag("--png", "Draw to this file.", ("inspect", "params"), kind=Path, ends=PNG),
        Flag("--svg", "Draw to this file.", ("inspect", "params"), kind=Path, ends=SVG),
        Flag("--packs", "Also ask the pretrained language model smollm2 in words (downloads 93 MB; four minutes more).", ("demo",), kind=bool),
        Flag("--quick", "Whether everything works, in a minute: fewer texts, steps and seeds, too few to conclude from.", ("demo",), kind=bool),
        Flag("--out", "The folder of the runs and the page. [default: runs/demo; with --quick runs/demo-quick]", ("demo",)),
        Flag("--out", "The run directory to make.", PRETRAIN, default="runs/pretrained"),
        Flag("--out", "The run directory to make.", FINETUNE, default="runs/finetuned"),
        Flag("--out", "The run directory to make.", TRANSLATE, default="runs/translator"),
        Flag("--out", "The run directory to make.", MATCH, default="runs/matcher"),
        Flag("--resume", "Continue the run in --out.", TRAIN, kind=bool),
        Flag("--dry-run", "Only report what the run would cost, after a few steps; nothing is written.", TRAIN, kind=bool),
        Flag("--json", "Print the result as JSON.", EVERY, kind=bool),
        Flag("--quiet", "No progress, no notes.", BARS, kind=bool),
    ),
    "Labelling": LABELLING,
    "Server": (
        Flag("--host", "Address to listen on; one that other machines reach needs the token.", ("serve",), default="127.0.0.1"),
        Flag("--port", "Port to listen on.", ("serve",), kind=int, default=8642, least=1, most=65535),
        Flag("--allow-host", "Another host name that the server is reached by; may be given several times.", ("serve",), many=True),
        Flag("--read-only", "No uploads, no jobs; models and pages only.", ("serve",), kind=bool),
        Flag("--no-token", "Ask for no token; for 127.0.0.1 on a machine that nobody else uses.", ("serve",), kind=bool),
        Flag("--memory", "GB of weights that stay loaded; the least recently used models make room.", ("serve",), kind=float, default=2.0, least=0),
        Flag("--open", "Open the page in the browser.", ("serve",), kind=bool),
    ),
    "Reading files": (
        Flag("--encoding", "Encoding of the text files. [default: utf-8]", FILES, "data.encoding"),
        Flag("--on-bad-bytes", "Invalid bytes: fail, or replace by U+FFFD and count. [default: fail]", FILES, "data.on_bad_bytes"),
        Flag("--strip-nul", "Drop NUL characters, and count them.", FILES, "data.strip_nul", bool),
        Flag("--max-line-bytes", "Refuse a file with a longer line. [default: any length]", FILES, "data.max_line_bytes", int),
        Flag("--skip-blank", "Drop rows without a text or a label, and count them.", (*FINETUNE, *COMPARE, *WHICH, "evaluate", "data check"),
             "data.skip_blank", bool),
        Flag("--clean-labels", "Merge labels that differ only by white space or case, and count them.",
             (*FINETUNE, *COMPARE, *WHICH, "evaluate", "data check"), "data.clean_labels", bool),
        Flag("--balanced", "With --labels: draw equally many rows of each class.", (*FINETUNE, *COMPARE, *WHICH), "data.balanced", bool),
        Flag("--task", f"Out of {', '.join(TASKS)}. [default: auto; found in the labels]", (*FINETUNE, *COMPARE, *WHICH, *AUDIT), "data.task"),
        Flag("--label-separator", "Between several labels in one cell. [default: found in the labels]", (*FINETUNE, *COMPARE, *WHICH, *AUDIT), "data.label_separator"),
        Flag("--any-labels", "Accept labels that look like numbers, ids or lists.", (*FINETUNE, *COMPARE, *WHICH, *AUDIT), "data.any_labels", bool),
        Flag("--strict-leakage", "Refuse test rows that are also training rows.", (*FINETUNE, *COMPARE), "strict_leakage", bool),
        Flag("--strict", "Refuse images that cannot be used, instead of leaving them out.",
             (*MATCH, "match evaluate", "match classify", "search"), "data.strict", bool),
    ),
    "Other": (
        Flag("--config", "Settings in a TOML file, such as config.toml of a run; flags win over it.", TRAIN),
        Flag("--config", "Settings in a TOML file, such as study.toml of a study; flags win over it.", COMPARE, kind=Path),
        Flag("--set", "Any setting of config.toml: train.lr=0.001.", (*TRAIN, *STUDIES, "params"), many=True),
        Flag("--set", "With --then: any setting of study.toml: seeds=3.", WHICH, many=True),
        Flag("--allow-pickle", "Open pickled weights of --base if it has no others; tensors only.", (*PRETRAIN, *FINETUNE),
             "allow_pickle", bool),
        Flag("--no-verify", "Open a model although its files are not those that were written.", OPENS, kind=bool),
        Flag("--debug", "Print the traceback of an error.", EVERY, kind=bool),
    ),
}  # fmt: skip
ROWS = [(flag, group) for group, flags in GROUPS.items() for flag in flags]
FLAGS = {
    flag.setting: flag.name for flag, _ in ROWS if flag.setting and set(flag.verbs) & set(TRAIN)
}  # messages name them
FLAGS["context"] = "--context"


def flags_of(verb: str) -> Iterator[tuple[Flag, str]]:
    """The flags of a verb with their groups, in the order of its help."""
    return ((flag, group) for flag, group in ROWS if verb in flag.verbs)


@dataclass(frozen=True)
class Given:
    """The values of the flags of a verb, by flag; of one that was not given, None, False or its default."""

    verb: str
    values: dict[str, Any]

    def __getitem__(self, flag: str) -> Any:
        return self.values[flag]

    def settings(self) -> dict[str, Any]:
        """The settings that they give, by dotted name; None: not given."""
        rows = [flag for flag, _ in flags_of(self.verb) if flag.setting]
        return {flag.setting: flag.value(self.values[flag.name]) for flag in rows}

    def settled(self) -> list[str]:
        """The flags among them that a base settles."""
        rows = [flag for flag, _ in flags_of(self.verb) if flag.settled]
        return sorted(flag.name for flag in rows if self.values[flag.name] is not None)
