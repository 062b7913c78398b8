"""What is computed: questions, tools, rollouts, rewards, credit and PPO. It knows no Prefect, no MLflow and no store."""

__version__ = "0.1.0"
