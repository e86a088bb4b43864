"""Function templates about lists. The notation is explained in `templates.py`."""

TEXT = """
total | total sum add | sum of all | ints
    $t = 0
    for $i in $a:
        $t += $i
    return $t

count_above | count above many | how many are above a limit | ints limit:nat
    $t = 0
    for $i in $a:
        if $i > $b:
            $t += 1
    return $t

keep_above | keep above filter | those above a limit | ints limit:nat
    return [$i for $i in $a if $i > $b]

! keep_below | below under lower | those below a limit | ints limit:nat
    return [$i for $i in $a if $i < $b]

first_or | first head lead | the first, or 0 when empty | empties
    if not $a:
        return 0
    return $a[0]

last_or | last tail final | the last, or 0 when empty | empties
    if not $a:
        return 0
    return $a[-1]

biggest | biggest top peak | the largest one | ints
    $h = $a[0]
    for $i in $a:
        if $i > $h:
            $h = $i
    return $h

! smallest | smallest least low | the smallest one | ints
    $h = $a[0]
    for $i in $a:
        if $i < $h:
            $h = $i
    return $h

spread | spread range span | largest minus smallest | ints
    return max($a) - min($a)

evens | evens pairs even | the even ones | ints
    return [$i for $i in $a if $i % 2 == 0]

! odds | odds singles odd | the odd ones | ints
    return [$i for $i in $a if $i % 2 == 1]

squared | squared squares power | each one squared | ints
    return [$i * $i for $i in $a]

scaled | scaled times grow | each one times $N | ints
    return [$i * $N for $i in $a]

shifted | shifted plus raise | add $K to each | ints
    return [$i + $K for $i in $a]

running | running sums steps | running sums | ints
    $t = 0
    $o = []
    for $i in $a:
        $t += $i
        $o.append($t)
    return $o

index_of | index find place | place of a value, else -1 | ints elem
    for $p in range(len($a)):
        if $a[$p] == $b:
            return $p
    return -1

contains | has contains holds | whether a value occurs | ints elem
    return $b in $a

without | without drop remove | all but a value | ints elem
    return [$i for $i in $a if $i != $b]

unique | unique distinct once | each value once | dups
    $o = []
    for $i in $a:
        if $i not in $o:
            $o.append($i)
    return $o

backwards | reverse back flip | in reverse order | ints
    return $a[::-1]

sorted_down | sort order rank | sorted, largest first | ints
    return sorted($a, reverse=True)

top | top best most | the largest so many | ints small
    return sorted($a)[-$b:]

! bottom | bottom worst least | the smallest so many | ints small
    return sorted($a)[:$b]

skip | skip rest after | without the first $N | ints
    return $a[$N:]

pair_sums | pair sum both | sums of two lists, place by place | ints other:ints
    return [$i + $j for $i, $j in zip($a, $b)]

dot | dot product weigh | sum of products of two lists | ints other:ints
    $t = 0
    for $i, $j in zip($a, $b):
        $t += $i * $j
    return $t

flatten | flatten merge flat | all lists in one | grid
    $o = []
    for $r in $a:
        $o.extend($r)
    return $o

row_sums | rows sums lines | sum of each row | grid
    return [sum($r) for $r in $a]

count_equal | count equal same | how often a value occurs | dups elem
    $t = 0
    for $i in $a:
        if $i == $b:
            $t += 1
    return $t

places | places where spots | all places of a value | dups elem
    $o = []
    for $p, $i in enumerate($a):
        if $i == $b:
            $o.append($p)
    return $o

rotate | rotate turn cycle | move the first $N to the end | ints
    return $a[$N:] + $a[:$N]

any_above | any some one | whether one is above a limit | ints limit:nat
    for $i in $a:
        if $i > $b:
            return True
    return False

product | product times multiply | product of all | ints
    $t = 1
    for $i in $a:
        $t *= $i
    return $t

sum_even | even sum add | sum of the even ones | ints
    $t = 0
    for $i in $a:
        if $i % 2 == 0:
            $t += $i
    return $t

lengths | lengths sizes widths | length of each text | words
    return [len($w) for $w in $a]

by_start | by start filter | texts that start with a letter | words char:first
    return [$w for $w in $a if $w[0] == $b]

add_end | push append put | a copy with a value at the end | ints value:int
    return $a + [$b]

! add_front | insert front before | a copy with a value in front | ints value:int
    return [$b] + $a

common | common shared both | those that both have | dups other:dups
    return [$i for $i in $a if $i in $b]

! missing | missing lost lack | those that the other lacks | dups other:dups
    return [$i for $i in $a if $i not in $b]
"""
