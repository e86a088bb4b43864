"""A small rule set over the words of a person's next message: one input of the classifier, and its baseline.

Weighted cues are summed. Complaints, reports of failure and requests to undo raise the score; thanks, praise and
turning to something else lower it. A negated cue ("no longer broken", "not right") counts for the other side.
"""

import re

_BIAS = -0.4
"""A message without any cue is taken for a next request: people who are content just go on."""

_NEGATIVE: tuple[tuple[str, float], ...] = (
    (r"\b(?:still|again)\b.*\b(?:fail|broke|broken|wrong|error|crash|same|old|off|red|bug|return|there)\w*", 2.5),
    (r"\b(?:bug|error|problem|issue|crash)\w* (?:is|are) still\b", 2.5),
    (
        r"\b(?:fail|crash|hang|broke|broken|wrong|incorrect|useless|worse|awful|terrible|nonsense|mess|bad|red)(?:s|es|ed|ing)?\b",
        1.8,
    ),
    (r"\b(?:error|exception|traceback|[a-z]+error)\b", 1.8),
    (r"\b(?:undo|revert|restore|roll(?:ed|ing)? (?:it |that |this )?back|(?:put|take) .{0,24}\bback)\b", 2.2),
    (
        r"\b(?:undid|reverted|threw .{0,24}away|had to|by hand)\b"
        r"|\b(?:did|wrote|writing|do|doing|fixed) (?:it|that) (?:myself|alone)\b",
        2.0,
    ),
    (
        r"\b(?:not|isn't|wasn't|doesn't|didn't|don't|won't|can't|hasn't|haven't|never|nothing|no)\b[^.!?]{0,24}\b"
        r"(?:work|right|fix|chang|help|what i|ask|want|correct|pass|answer|happen|done|did|need|good|true|there|use|add"
        r"|sense)\w*",
        2.0,
    ),
    (r"\b(?:does|did|do) nothing\b|\bno sense\b", 1.8),
    (r"\b(?:why (?:did|are|do|would|is|on earth)|that's not|i (?:asked|said|told|meant|wanted|expected))\b", 1.7),
    (r"\b(?:just (?:do|fix|make|change|answer)|stop \w+ing|instead of \w+ing|asked you|try again|once more)\b", 2.0),
    (r"\b(?:unneeded|unnecessary|needless|pointless|unrelated|unwanted|clutter|noise|junk|off by|in circles)\b", 1.7),
    (r"\b(?:took (?:forever|ages|too)|too (?:slow|long|much|many|little))\b", 1.7),
    (r"\b(?:no need|nobody asked|without being asked|left out|missing|missed|forgot|ignored|only half|half of)\b", 1.7),
    (r"\b(?:supposed to|should have|was meant to|ended up)\b", 1.5),
    (r"\b(?:get rid of|remove (?:the|that|this|your)|drop (?:the|that|your)|clean(?:ed)? up after)\b", 1.3),
    (r"^(?:no|nope|nah|hm+|ugh|sigh|wtf|come on|really|seriously)\b", 1.6),
    (r"\b(?:wast|disappoint|annoy|frustrat|unhappy)\w*|\b(?:g[ia]ve up|never ?mind|forget it)\b", 2.2),
    (r"\?\s*\?|!\s*!", 0.6),
)

_POSITIVE: tuple[tuple[str, float], ...] = (
    (r"\b(?:thanks?|thank you|thx|ty|cheers|much appreciated|appreciate it)\b", 1.6),
    (
        r"\b(?:great|perfect|nice|lovely|excellent|awesome|good|super|brilliant|neat|sweet|love it|well done|happy)\b",
        1.8,
    ),
    (
        r"\b(?:work(?:s|ed|ing)?|pass(?:es|ing)?|green|solved|sorted|fixed|correct|exactly|spot on|does the job)\b",
        1.3,
    ),
    (
        r"\b(?:looks? (?:good|right|fine|ok|okay)|lgtm|all good|makes sense|got it|that helps|ship it|shipping)\b"
        r"|\bmerg(?:ed|ing)\b",
        2.0,
    ),
    (r"\b(?:error|bug|crash|problem|issue)s? (?:is|are) (?:gone|solved|fixed)\b|\bno complaints?\b", 3.5),
    (r"\b(?:yes|yep|yeah|ok|okay|cool|fine)\b", 0.9),
    (r"\b(?:next|now (?:please|can|could|let)|on to|moving on|one more|another|also)\b", 0.7),
)

_NEGATION = re.compile(
    r"\b(?:not|no longer|isn'?t|wasn'?t|doesn'?t|didn'?t|don'?t|won'?t|never|no|nothing|without|neither|hardly|zero)\s+"
    r"(?:\w+\s+){0,2}$"
)
_HOPE = re.compile(r"\b(?:should|would|could|if|until|to be|supposed to|expected|please|had|when)\s+(?:\w+\s+){0,2}$")

_NEGATIVE_CUES = tuple((re.compile(pattern), weight) for pattern, weight in _NEGATIVE)
_POSITIVE_CUES = tuple((re.compile(pattern), weight) for pattern, weight in _POSITIVE)


def rule_score(text: str) -> float:
    """Above 0 where the cues say that the writer of `text` did not get what was wanted; in log odds, by hand."""
    said = " ".join(text.lower().replace("\u2019", "'").split())
    score = _BIAS
    for cue, weight in _NEGATIVE_CUES:
        found = cue.search(said)
        if found:
            negated = _NEGATION.search(said[: found.start()]) is not None
            score += -weight / 2 if negated else weight
    for cue, weight in _POSITIVE_CUES:
        found = cue.search(said)
        if found:
            before = said[: found.start()]
            if _NEGATION.search(before):
                score += weight
            elif not _HOPE.search(before):
                score -= weight
    return score
