"""Function templates about texts. The notation is explained in `templates.py`."""

TEXT = """
initials | initials letters heads | first letters of the words | text
    return "".join([$w[0] for $w in $a.split()])

shout | shout call loud | upper case with a mark | word
    return $a.upper() + "!"

shorten | shorten cut trim | at most so many letters | word small
    if len($a) > $b:
        return $a[:$b]
    return $a

pad_left | pad align fill | pad on the left to $K dots | word
    return $a.rjust($K, ".")

repeat | repeat copy times | repeat a text | word small
    return $a * $b

join_with | join link chain | join words with a "$S" | words
    return "$S".join($a)

reverse | reverse flip mirror | letters in reverse order | word
    return $a[::-1]

! is_mirror | mirror same palindrome | whether it reads the same backwards | mirror
    return $a == $a[::-1]

count_char | count tally times | how often a letter occurs | word char:elem
    return $a.count($b)

starts | starts begins opens | whether it starts with a letter | word char:elem
    return $a.startswith($b)

! ends | ends closes stops | whether it ends with a letter | word char:elem
    return $a.endswith($b)

first_word | first head lead | the first word | text
    return $a.split()[0]

last_word | last tail final | the last word | text
    return $a.split()[-1]

word_count | words count size | number of words | text
    return len($a.split())

slug | slug key path | lower case, spaces to "$S" | title
    return $a.lower().replace(" ", "$S")

drop_char | drop strip clean | remove a letter | word char:elem
    return $a.replace($b, "")

mask | mask hide cover | hide all after the first $N letters | word
    return $a[:$N] + "*" * (len($a) - $N)

extension | ending type suffix | the part after the last "$S" | dotted
    return $a.split("$S")[-1]

surround | wrap surround frame | put a mark on both sides | word mark:char
    return $b + $a + $b

label | label show tag | text and number with "$S" | word nat
    return $a + "$S" + str($b)

longest_word | longest largest max | the longest word | text
    $h = ""
    for $w in $a.split():
        if len($w) > len($h):
            $h = $w
    return $h

drop_last | drop chop cut | without the last letter | word
    return $a[:-1]

head | head start take | the first $N letters | word
    return $a[:$N]

rest | rest skip tail | without the first $N letters | word
    return $a[$N:]

amount_text | amount text show | number, then the name | word nat
    return str($b) + " " + $a

! money | money price show | number with the sign "$S" in front | nat
    return "$S" + str($a)

is_long | long big wide | whether it has more than 3 letters | word
    return len($a) > 3

capital | capital title upper | first letter in upper case | word
    return $a[0].upper() + $a[1:]

! same_start | share match pair | whether both start alike | word alike
    return $a[0] == $b[0]

lines_of | list rows split | parts between "$S" | dotted
    return $a.split("$S")

has_char | has contains holds | whether a letter occurs | word char:elem
    return $b in $a
"""
