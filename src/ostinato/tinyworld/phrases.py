"""The wordings of requests and replies. `{...}` are filled from the task.

Each kind has precise wordings and vague ones (two or more of seven).
"""

PRECISE: dict[str, tuple[str, ...]] = {
    "bug": (
        "{call} should be {want}",
        "{name} is wrong: {call} should be {want}",
        "fix {name}, {call} must give {want}",
        "{call} gives a wrong result, expected {want}",
        "fix the bug in {name}",
        "bug in {name}, it should give: {phrase}",
        "there is a bug in {name}",
    ),
    "feature": (
        "write {name}: {phrase}",
        "{name} should give: {phrase}",
        "implement {name} ({phrase})",
        "add {name}, {phrase}",
        "{name} is missing: {phrase}",
    ),
    "rename": (
        "rename {name} to {new}",
        "{name} should be called {new}",
        "call it {new}, not {name}",
        "please rename {name}: {new}",
        "change the name {name} to {new}",
    ),
    "lint": (
        "remove the {rule} in {path}",
        "fix lint in {path}: {rule}",
        "{path}: {rule}",
        "{name} has a {rule}",
        "lint says {rule} in {name}",
    ),
    "where": (
        "where is {name} defined?",
        "which file has {name}?",
        "where do I find {name}?",
        "in which file is {name}?",
        "what file defines {name}?",
    ),
    "returns": (
        "what does {call} return?",
        "what is {call}?",
        "what should {call} give?",
        "which value does {call} have?",
        "result of {call}?",
    ),
    "first": (
        "what is the first argument of {name}?",
        "first parameter of {name}?",
        "which argument of {name} comes first?",
        "name the first argument of {name}",
        "what does {name} take first?",
    ),
}

VAGUE: dict[str, tuple[str, ...]] = {
    "bug": ("{name} seems off", "results of {name} look wrong", "{name} acts up again"),
    "feature": ("{name} is not there yet", "please finish {name}"),
    "rename": ("{name} is a bad name, {new} reads better", "{name} confuses people, maybe {new}"),
    "lint": ("{path} could be cleaner", "the linter dislikes {name}"),
    "where": ("I lost {name}", "looking for {name}"),
    "returns": ("not sure about {call}", "{call}, hm"),
    "first": ("not sure what {name} takes first", "the first thing for {name}"),
}

VAGUE_SHARE = 2 / 7

REPLIES: dict[str, tuple[str, ...]] = {
    "bug": ("Fixed {name} in {path}.", "{name} is fixed."),
    "feature": ("Wrote {name} in {path}.", "{name} is done."),
    "rename": ("Renamed {name} to {new}.", "{name} is now {new}."),
    "lint": ("Cleaned {path}.", "{path} is clean."),
    "where": ("{name} is in {answer}.", "It is in {answer}."),
    "returns": ("It returns {answer}.", "{call} is {answer}."),
    "first": ("The first is {answer}.", "It takes {answer} first."),
}

QUESTIONS: dict[str, tuple[str, ...]] = {
    "bug": ("Which behaviour do you expect from {name}?", "What should {name} return?"),
    "feature": ("What exactly should {name} do?", "Can you describe {name}?"),
    "rename": ("Do you want {name} renamed everywhere?", "Should I rename {name}?"),
    "lint": ("Which rule do you mean?", "What should I clean up?"),
    "where": ("What do you need it for?", "Do you want to change {name}?"),
    "returns": ("What do you expect?", "Is something wrong with {name}?"),
    "first": ("What do you need it for?", "Do you want to change {name}?"),
}

JUNK: dict[str, tuple[str, ...]] = {
    "bug": ("  # fixed", "  # fixed", "  # changed"),
    "feature": ("  # added", "  # new"),
    "rename": ("  # renamed", "  # changed"),
    "lint": ("  # cleaned", "  # changed"),
    "question": ("  # checked", "  # seen"),
}
"""Comments that say nothing, appended to an edited line."""

BEFORE_WORK = (
    "Let me have a look at this first.",
    "I will look into this step by step.",
    "Let me see what is there.",
    "First I need to find the right place.",
)
"""Said before the first call; nobody reads it."""

BEFORE_EDIT = (
    "Now I will change this line.",
    "I can see it, so I change it now.",
    "Here is the change that I make.",
)
"""Said before the first edit; nobody reads it."""

SEEN = (
    "There are tests for it, and other code that may call it, so a change here can break more than one thing.",
    "It is not long and I could change it at once, but I do not know what you have in mind for it.",
    "I have read the code around it as well and found no word on what it is meant to do in this case.",
)
"""Said after a look that leads to a question."""

BEFORE_QUESTION = (
    "Before I change it I want to be sure of what is meant here.",
    "There is more than one way to do this, so I ask first.",
    "I can see the code, but it does not say what you want from it.",
)
"""Said between the look and the question."""

SUMMARIES = (
    "I looked at the code, found the line and changed it; all other parts are as before.",
    "To sum up, I have read the file, made the change and left the rest as it was.",
    "This is what I did: find the place, read it, and change it as you asked for.",
)
"""Said after the reply; nobody reads it."""
