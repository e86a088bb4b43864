"""Function templates about dictionaries and pairs. The notation is explained in `templates.py`."""

TEXT = """
lookup | get lookup find | value of a key, else 0 | map elem
    return $a.get($b, 0)

count_words | count tally freq | how often each word occurs | dupwords
    $m = {}
    for $w in $a:
        $m[$w] = $m.get($w, 0) + 1
    return $m

invert | invert swap flip | keys and values swapped | map
    return {$v: $k for $k, $v in $a.items()}

value_sum | total sum add | sum of the values | map
    return sum($a.values())

keys_above | above keys over | sorted keys whose value is above a limit | map limit:nat
    return sorted([$k for $k, $v in $a.items() if $v > $b])

! keys_below | below under cheap | sorted keys whose value is below a limit | map limit:nat
    return sorted([$k for $k, $v in $a.items() if $v < $b])

merge | merge join update | both, the second wins | minimap other:minimap
    $m = dict($a)
    $m.update($b)
    return $m

has_key | has known contains | whether a key is there | map elem
    return $b in $a

names | names keys list | sorted keys | map
    return sorted($a.keys())

from_pairs | build make table | a dictionary from pairs | pairs
    $m = {}
    for $k, $v in $a:
        $m[$k] = $v
    return $m

pair_total | total sum all | sum of the second parts | pairs
    $t = 0
    for $k, $v in $a:
        $t += $v
    return $t

pair_find | find lookup get | second part for a name, else 0 | pairs firsts
    for $k, $v in $a:
        if $k == $b:
            return $v
    return 0

drop_key | drop remove without | a copy without a key | map elem
    return {$k: $v for $k, $v in $a.items() if $k != $b}

raise_all | raise bump adjust | add $K to each value | map
    return {$k: $v + $K for $k, $v in $a.items()}

! scale_all | scale grow factor | each value times $N | map
    return {$k: $v * $N for $k, $v in $a.items()}

pair_names | names heads firsts | the first parts | pairs
    return [$k for $k, $v in $a]

! count_values | count many above | how many values are above a limit | map limit:nat
    $t = 0
    for $v in $a.values():
        if $v > $b:
            $t += 1
    return $t

max_value | max peak high | largest value, 0 when empty | map
    $h = 0
    for $v in $a.values():
        if $v > $h:
            $h = $v
    return $h

set_key | set put store | a copy with a key set to $K | map elem
    $m = dict($a)
    $m[$b] = $K
    return $m
"""
