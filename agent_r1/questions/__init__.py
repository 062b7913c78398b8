"""Questions from files, whatever their layout: `load` for a list, `iter_questions` for a stream."""

from agent_r1.questions.loading import iter_questions, load
from agent_r1.questions.records import Evidence, Json, Passage, Question

__all__ = ["Evidence", "Json", "Passage", "Question", "iter_questions", "load"]
