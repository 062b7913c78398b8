"""What is computed: questions, tools, rollouts, rewards, credit and PPO. It knows no Prefect, no MLflow, no store."""

__version__ = "0.1.0"
