"""The prompts of the task cordcal_prompts."""


def choices(doc: dict) -> list[str]:
    """Return one prompt per option."""
    return [doc["start"] + " " + option for option in doc["nouns"]]
