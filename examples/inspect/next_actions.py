"""A model's guesses at the eval rows of a dataset: `inspect eval next_actions.py -T dataset=DIR --model MODEL`."""

import datasets
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState, generate

from foretrace.evaluation.figures import judge_completion

ROLES = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}


@task
def next_actions(dataset: str = "dataset") -> Task:
    rows = datasets.load_dataset(dataset, "eval", split="test").filter(lambda row: row["natural"])
    return Task(dataset=MemoryDataset([make_sample(row) for row in rows]), solver=generate(), scorer=same_action())


def make_sample(row: dict) -> Sample:
    prompt = [ROLES[message["role"]](content=message["content"]) for message in row["prompt"]]
    name = f"{row['key']}#{row['step']}"
    return Sample(id=name, input=prompt, target=row["completion"][0]["content"], metadata={"group": row["group"]})


@scorer(metrics={"*": [mean(), stderr(cluster="group")]})
def same_action() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value=judge_completion(state.output.completion, target.text), answer=state.output.completion)

    return score
