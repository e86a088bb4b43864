"""What persons write after a session: plain words in several tones. Which of them complain is known here only."""

CONTENT: tuple[str, ...] = (
    "thanks, that did it",
    "Works, thank you!",
    "perfect",
    "great, committed",
    "nice, just what I wanted",
    "ok good, next one is the report",
    "good job",
    "All tests green here. Thanks.",
    "thx",
    "yes, that's right",
    "cool, merging now",
    "looks good to me",
    "exactly, cheers",
    "now the same for the other module please",
    "great, that is solved then",
)

FAILING: tuple[str, ...] = (
    "this is still wrong",
    "my tests fail with your change",
    "it still gives the wrong value",
    "no, that broke it, I took it out again",
    "that's not the right fix",
    "AssertionError with your version. Reverted.",
    "Wrong. It fails for other inputs.",
    "your edit doesn't fix anything",
    "that made it worse, undo",
    "still failing here, I had to roll it back",
)

COMMENT: tuple[str, ...] = (
    "why did you add that comment? I removed it",
    "please no needless comments in my code",
    "the comment is noise, reverted",
    "I don't want comments like this in the file",
    "useless comment, took it out",
)

ASKED: tuple[str, ...] = (
    "just fix it, don't ask",
    "I asked you to fix it, not to ask me",
    "why do you ask? the tests tell you",
    "stop asking and do the work",
    "no answer from me, I did it myself",
)

NOTHING: tuple[str, ...] = (
    "you did not change anything",
    "nothing happened, the file is the same",
    "that is not done, I see no edit",
    "it's not fixed at all",
    "so you did nothing? I had to do it by hand",
)

UNWANTED: tuple[str, ...] = (
    "I only had a question, why did you edit my code?",
    "don't change files when I ask something. Reverted.",
    "that edit was not wanted",
    "I did not ask for a change",
)

UNANSWERED: tuple[str, ...] = (
    "that does not answer my question",
    "wrong answer, I looked it up myself",
    "no, that's not it",
    "that's incorrect",
    "not helpful",
)

SLOW: tuple[str, ...] = (
    "that took far too long",
    "too many steps for such a small thing",
    "too slow, I wasted my time waiting",
    "why did it need so long?",
)
